"""ReplicationTasks: the replication tasks of a broker.

One fetcher per leader that its replicas follow; the sender of changed in-sync sets; the check for lagging followers.

A broker whose partitions have no other replicas has no such task.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.image import changed_partitions
from pykbroker.controller.turns import EachInTurns
from pykbroker.named_tuple import NamedTuple
from pykbroker.replication.fetcher import Fetcher
from pykbroker.replication.follower_fetch_session import FetchLimits, FetchSessionHandler, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage, ImageDelta
    from pykbroker.coordination.broker_sender import NodeConnection
    from pykbroker.replication.alter_partition_manager import AlterPartitionManager
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.partitions import Partitions
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

CHANGED_AT_ONCE = 32
"""Partitions that are given to their fetchers in the step that applies an image. The rest of a large change follows in
turns with other tasks, as in Kafka, whose ReplicaManager does it after the image is published."""


class ReplicationSettings(NamedTuple):
    """Kafka's `replica.*` settings."""

    limits: FetchLimits
    backoff_ms: int
    socket_timeout_ms: int
    lag_time_max_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ReplicationSettings:
        return cls(
            FetchLimits(
                max_wait_ms=config.replication.fetch_wait_max_ms,
                min_bytes=config.replication.fetch_min_bytes,
                max_bytes=config.replication.fetch_response_max_bytes,
                partition_max_bytes=config.replication.fetch_max_bytes,
            ),
            config.replication.fetch_backoff_ms,
            config.replication.socket_timeout_ms,
            config.replication.lag_time_max_ms,
        )


class ReplicationTasks:
    """Fetchers, in-sync set changes and lag checks of a broker's replicas.

    Args:
        partitions: the replicas; their `apply` must be called before the one of this class.
        clock: time of day, for log files.
        alter_partition: proposals of changed in-sync sets.
        connect: returns a client of a broker by its id, whose response bytes are valid until its next request; raises
            NodeUnreachable.
        settings: settings of replication.
        throttle: limits the bytes that this broker fetches as a follower.
    """

    def __init__(
        self,
        partitions: Partitions,
        clock: WallClock,
        alter_partition: AlterPartitionManager,
        connect: Callable[[int], NodeConnection],
        settings: ReplicationSettings,
        throttle: ReplicationThrottle | None,
    ) -> None:
        self._node_id = partitions.environment.node_id
        self._partitions = partitions
        self._clock = clock
        self._connect = connect
        self._settings = settings
        self._throttle = throttle
        self._brokers = partitions.environment.brokers
        self._alter_partition = alter_partition
        # By leader.
        self._fetchers: dict[int, Fetcher] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        # Leader that a partition follows, by its key.
        self._leaders: dict[Key, int] = {}
        # The rests of large changes.
        self._changes: list[Iterator[Key]] = []
        self._has_changes = trio.Event()
        self._nursery: trio.Nursery | None = None

    def _broker_epoch(self) -> int:
        return self._brokers.epoch(self._node_id)

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Assigns partitions to fetchers after a change of the metadata, which `Partitions.apply` has applied."""
        changed = _changed_keys(new.delta)
        first = list(islice(changed, CHANGED_AT_ONCE + 1))
        if len(first) <= CHANGED_AT_ONCE:
            for key in first:
                self._follow_or_stop(key)
        else:
            # Meanwhile the fetchers leave out the partitions that do not follow under these epochs any more.
            self._follow_in_turns(chain(first, changed))

    def follow_all(self) -> None:
        """Assigns all partitions to fetchers again: after offline logs were opened, or the disk became full or free."""
        if self._partitions.environment.storage_failures.is_disk_full:
            # At once: a fetch at a leader's log end would bring the replica back into the in-sync set.
            self._leaders.clear()
            for leader_id in list(self._fetchers):
                self._fetchers[leader_id].session.leave_all()
                self._end(leader_id)
        else:
            self._follow_in_turns((each.topic_id, each.partition) for each in list(self._partitions.all()))

    def _follow_in_turns(self, keys: Iterator[Key]) -> None:
        """Assigns partitions to fetchers, in turns with other tasks if the tasks of this class run."""
        if self._nursery is None:
            for key in keys:
                self._follow_or_stop(key)
        else:
            self._changes.append(keys)
            self._has_changes.set()

    def _follow_or_stop(self, key: Key) -> None:
        """Assigns a partition to a fetcher as its present state says."""
        partition = self._partitions.get_by_id(*key)
        if partition is None:
            self._stop_following(key)
        else:
            self._follow(partition)

    async def _follow_changes(self, nursery: trio.Nursery) -> None:
        """Assigns the partitions of large changes to fetchers, in turns with other tasks."""
        while True:
            await self._has_changes.wait()
            while self._changes:
                async for key in EachInTurns(self._changes[0]):
                    self._follow_or_stop(key)
                del self._changes[0]
            self._has_changes = trio.Event()
            self._run_fetchers(nursery)

    def _follow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition)
        leader_id = partition.leader_id
        # A replica that is given up must not rejoin the in-sync set by a fetch at the leader's log end.
        is_given_up = partition.is_lost or self._partitions.environment.storage_failures.is_disk_full
        if partition.is_leader or leader_id < 0 or is_given_up:
            self._stop_following(key)
            return
        if self._leaders.get(key, leader_id) != leader_id:
            self._stop_following(key)
        self._leaders[key] = leader_id
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._start(leader_id)
        fetcher.session.follow(partition)
        fetcher.wake_up()

    def _stop_following(self, key: Key) -> None:
        leader_id = self._leaders.pop(key, None)
        if leader_id is None:
            return
        fetcher = self._fetchers[leader_id]
        fetcher.session.leave(key)
        if len(fetcher.session):
            fetcher.wake_up()
        else:
            self._end(leader_id)

    def _end(self, leader_id: int) -> None:
        """Ends a fetcher that has no partitions any more."""
        del self._fetchers[leader_id]
        scope = self._scopes.pop(leader_id, None)
        if scope is not None:
            scope.cancel()

    def _start(self, leader_id: int) -> Fetcher:
        settings = self._settings
        backoff_s = settings.backoff_ms / 1000
        fetcher = self._fetchers[leader_id] = Fetcher(
            leader_id,
            FetchSessionHandler(self._node_id, settings.limits, backoff_s, self._throttle),
            partial(self._connect, leader_id),
            self._broker_epoch,
            self._clock,
            node_id=self._node_id,
            backoff_s=backoff_s,
            timeout_ms=settings.socket_timeout_ms,
        )
        if self._nursery is not None and not self._changes:
            self._run_fetcher(self._nursery, leader_id, fetcher)
        # During a large change it waits for its partitions: the leader may hold its first request for a while.
        return fetcher

    def _run_fetchers(self, nursery: trio.Nursery) -> None:
        """Runs the fetchers that do not run yet."""
        for leader_id, fetcher in self._fetchers.items():
            if leader_id not in self._scopes:
                self._run_fetcher(nursery, leader_id, fetcher)

    def _run_fetcher(self, nursery: trio.Nursery, leader_id: int, fetcher: Fetcher) -> None:
        scope = self._scopes[leader_id] = trio.CancelScope()

        async def run() -> None:
            with scope:
                await fetcher.run()

        nursery.start_soon(run, name=f"replica fetcher {leader_id}")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Replicates until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                self._run_fetchers(nursery)
                nursery.start_soon(self._follow_changes, nursery)
                nursery.start_soon(self._alter_partition.run)
                nursery.start_soon(self._shrink_isrs)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self._scopes.clear()

    async def _shrink_isrs(self) -> None:
        """Removes lagging followers from in-sync sets, twice per `replica.lag.time.max.ms` as Kafka does."""
        while True:
            await trio.sleep(self._settings.lag_time_max_ms / 2000)
            async for partition in EachInTurns(list(self._partitions.all())):
                partition.shrink_isr()


def _changed_keys(delta: ImageDelta) -> Iterator[Key]:
    """Keys of the partitions of a change: deleted, new and changed ones.

    States that nobody else needs any more are freed one by one: thousands at once would take longer than a turn.
    """
    topics = [*delta.deleted_topics, *delta.created_topics][::-1]
    changed = [*delta.changed_topics][::-1]
    del delta
    while topics:
        topic = topics.pop()
        topic_id, images = topic.topic_id, [*topic.partitions.values()][::-1]
        del topic
        while images:
            yield topic_id, images.pop().partition
    while changed:
        before, topic = changed.pop()
        topic_id, images = topic.topic_id, changed_partitions(before, topic)[::-1]
        former = [before.partitions.get(image.partition) for image in images]
        del before, topic
        while images:
            yield topic_id, images.pop().partition
            former.pop()
