"""The leaders of share partitions on this broker, the share sessions of members, and the task that ends locks.

A leader is made by the first request for its share partition (`find_or_load`). It ends when this broker no longer leads
the topic partition, when the connection of the group's last session closes, or when share groups are disabled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.controller.turns import in_turns
from pykbroker.coordination.deadlines import Deadlines
from pykbroker.coordination.timer import CoordinatorTimer
from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.share_partitions.leader import LeaderState, ShareEnvironment, ShareLeader
from pykbroker.share_partitions.sessions import SessionKey, ShareSessions, TopicIdPartition
from pykbroker.share_partitions.settings import SharePartitionSettings
from pykbroker.share_state.state import SharePartitionKey

if TYPE_CHECKING:
    from pykbroker.config.values import ShareGroupValues
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.replication.partitions import Partitions
    from pykbroker.share_state.persister import SharePersister
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)


class SharePartitions:
    """The leaders of share partitions on this broker.

    Args:
        share_groups: the broker's settings of share groups.
        configs_of: dynamic configs of a group's GROUP resource.
        partitions: the topic partitions of this broker.
        persister: calls to the share coordinators.
        clock: time of day.
        nursery: for loads and writes in the background. Locks expire while `run` runs.

    Attributes:
        sessions: the share sessions of members on this broker.
    """

    def __init__(
        self,
        share_groups: ShareGroupValues,
        configs_of: Callable[[str], Mapping[str, str]],
        partitions: Partitions,
        persister: SharePersister,
        clock: WallClock,
        nursery: trio.Nursery,
    ) -> None:
        self.sessions = ShareSessions(share_groups.max_share_sessions)
        self._share_groups = share_groups
        self._configs_of = configs_of
        self._settings: dict[str, tuple[Mapping[str, str], SharePartitionSettings]] = {}
        self._partitions = partitions
        self._nursery = nursery
        self._is_stopped = False
        self._leaders: dict[SharePartitionKey, ShareLeader] = {}
        # Leaders that have ended and whose last writes have not.
        self._ending: dict[SharePartitionKey, ShareLeader] = {}
        # Members of ended sessions with very many partitions, whose records are being released.
        self._releasing: dict[SessionKey, trio.Event] = {}
        self._timer = CoordinatorTimer(clock)
        self._deadlines = Deadlines()
        # By their number, which orders leaders whose locks expire at the same time.
        self._numbers: dict[int, ShareLeader] = {}
        self._last_number = 0
        self._environment = ShareEnvironment(
            persister, self._start_soon, self._timer.now_ms, clock.now_ms, self._plan_expiry, self._remove_leader
        )

    def _start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        if not self._is_stopped:
            self._nursery.start_soon(task)

    async def run(self) -> None:
        """Ends acquisitions whose locks expire, until it is cancelled; then nothing is loaded or stored any more."""
        try:
            while True:
                await self._timer.wait_until((self._deadlines.first_ms,))
                await in_turns(self.expire_locks())
        finally:
            self._is_stopped = True

    def expire_locks(self) -> Steps[None]:
        """Ends acquisitions whose locks have expired."""
        now_ms = self._timer.now_ms()
        while (due := self._deadlines.pop_due(now_ms)) is not None:
            leader = self._numbers.get(due[0])
            if leader is not None:
                leader.expire_locks()
                yield

    def _plan_expiry(self, leader: ShareLeader) -> None:
        if self._deadlines.plan((leader.number, ""), leader.shares.next_expiry_ms):
            self._timer.wake()

    def settings_of(self, group_id: str) -> SharePartitionSettings:
        """The settings of a group; computed again when its dynamic configs have changed."""
        configs = self._configs_of(group_id)
        known = self._settings.get(group_id)
        if known is None or known[0] is not configs:
            known = self._settings[group_id] = configs, SharePartitionSettings.of_group(self._share_groups, configs)
        return known[1]

    # Leaders

    def find(self, group_id: str, topic_partition: TopicIdPartition) -> ShareLeader | None:
        """The leader of a share partition, if it was loaded and this broker still leads the topic partition."""
        key = SharePartitionKey(group_id, topic_partition.topic_id, topic_partition.partition)
        leader = self._leaders.get(key)
        if leader is not None and not leader.is_current:
            self._end_leader(leader)
            return None
        return leader

    def find_or_load(self, group_id: str, topic_partition: TopicIdPartition) -> ShareLeader:
        """The leader of a share partition, which may be still loading.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: this broker does not lead the topic partition.
        """
        leader = self.find(group_id, topic_partition)
        if leader is not None:
            return leader
        partition = self._partitions.get_by_id(topic_partition.topic_id, topic_partition.partition)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is on another broker")
        partition.check_leader()
        key = SharePartitionKey(group_id, topic_partition.topic_id, topic_partition.partition)
        self._last_number += 1
        leader = ShareLeader(
            self._last_number,
            key,
            partition,
            lambda: self.settings_of(group_id),
            self._environment,
            self._ending.get(key),
        )
        self._leaders[key] = self._numbers[leader.number] = leader
        self._start_soon(leader.load)
        return leader

    def _end_leader(self, leader: ShareLeader) -> None:
        if leader.state is not LeaderState.ENDED:
            leader.end()
        self._remove_leader(leader)

    def _remove_leader(self, leader: ShareLeader) -> None:
        if self._leaders.get(leader.key) is leader:
            del self._leaders[leader.key]
        self._numbers.pop(leader.number, None)
        self._deadlines.discard((leader.number, ""))
        if leader.is_writing:
            self._ending[leader.key] = leader
            self._start_soon(lambda: self._await_end(leader))

    async def _await_end(self, leader: ShareLeader) -> None:
        await leader.drained()
        if self._ending.get(leader.key) is leader:
            del self._ending[leader.key]

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Ends leaders whose topic partition this broker no longer leads, and all of them without share groups."""
        is_enabled = share_groups_enabled(new)
        if not is_enabled:
            self.sessions.clear()
        for leader in list(self._leaders.values()):
            if not is_enabled or not leader.is_current:
                self._end_leader(leader)

    # Sessions

    def release_session(self, key: SessionKey) -> None:
        """Ends the session of a member, if it has one, and begins to release its records."""
        session = self.sessions.remove(key)
        if session is not None:
            self._begin_end(key, list(session.partitions), ())

    def connection_closed(self, connection: object) -> None:
        """Ends the session that began on a connection; the last session of a group ends its leaders too."""
        session, empty_group = self.sessions.connection_closed(connection)
        leaders: Sequence[ShareLeader] = ()
        if empty_group is not None:
            leaders = [leader for key, leader in self._leaders.items() if key.group_id == empty_group]
        if session is not None:
            self._begin_end(session.key, list(session.partitions), leaders)
        elif empty_group is not None:
            self._begin_end(SessionKey(empty_group, ""), (), leaders)

    def _begin_end(
        self, key: SessionKey, topic_partitions: Sequence[TopicIdPartition], leaders: Sequence[ShareLeader]
    ) -> None:
        """Releases the records of a member, then ends leaders: in a task, in turns with others, if there are many."""
        steps = self._end_session(key, topic_partitions, leaders)
        if len(topic_partitions) + len(leaders) <= PIECE:
            finished(steps)
            return
        previous, ended = self._releasing.get(key), trio.Event()
        self._releasing[key] = ended
        self._start_soon(partial(self._end_in_turns, key, steps, previous, ended))

    async def _end_in_turns(
        self, key: SessionKey, steps: Steps[None], previous: trio.Event | None, ended: trio.Event
    ) -> None:
        if previous is not None:
            await previous.wait()
        await in_turns(steps)
        ended.set()
        if self._releasing.get(key) is ended:
            del self._releasing[key]

    def _end_session(
        self, key: SessionKey, topic_partitions: Sequence[TopicIdPartition], leaders: Sequence[ShareLeader]
    ) -> Steps[None]:
        for topic_partition in topic_partitions:
            leader = self.find(key.group_id, topic_partition)
            if leader is not None and leader.state is LeaderState.ACTIVE:
                leader.release(key.member_id)
                yield
        for leader in leaders:
            if self.sessions.has_group(key.group_id):
                return  # another member has begun a session and uses these leaders
            if self._leaders.get(leader.key) is leader:
                self._end_leader(leader)
            yield
        # Dropped after the release of the records, which reads these settings.
        if not self.sessions.has_group(key.group_id):
            self._settings.pop(key.group_id, None)

    async def released(self, key: SessionKey) -> None:
        """Waits until the records of a member's earlier sessions are released, before it acquires others."""
        while (releasing := self._releasing.get(key)) is not None:
            await releasing.wait()
