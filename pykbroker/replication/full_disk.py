"""FullDisk: gives up replicas while the disk of this broker is full, and takes them up again when it has space.

Only in a cluster of several brokers; a single broker refuses records until they fit. Decisions are in
`full_disk_rules`. The order is:

1. Partitions that other brokers could lead refuse records, and nothing is fetched.
2. The other replicas get TAIL_S seconds to fetch the records that were acknowledged with acks=1.
3. The controller gets AssignReplicasToDirs. While it cannot be reached producers are refused, as by a single broker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.image import changed_partitions
from pykbroker.controller.turns import EachInTurns
from pykbroker.logstore.errors import CorruptSegment, StorageFull
from pykbroker.protocol.steps import PIECE
from pykbroker.protocol.uuids import LOST_DIRECTORY
from pykbroker.replication.directory_assignments import REPLICAS_PER_REQUEST, assign_replicas
from pykbroker.replication.full_disk_rules import (
    DiskFullness,
    can_write,
    has_room,
    is_offline_last_replica,
    replica_moves,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pykbroker.controller.metadata.image import ClusterImage, TopicImage
    from pykbroker.logstore.errors import StorageError
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.replication.directory_assignments import Channel
    from pykbroker.replication.partitions import Partitions

log = logging.getLogger(__name__)

RETRY_S = 0.5
TAIL_S = 1.0
"""Time in seconds for other replicas to fetch the end of a log; after it leadership is given up in any case."""
TAIL_PAUSE_S = 0.02
NEVER = float("inf")

Key = tuple[bytes, int]


class ReportedFailures:
    """Failed writes as this broker's replicas report them; `FullDisk` acts on them.

    Attributes:
        room: state of the disk, full or not.
        full_since: time at which it became full, on trio's clock.
        is_suspect: True after a write failed for another reason than space, which may concern one file only.
        has_filled: True if the disk became full since `FullDisk` last checked this.
        wake: set to wake the task of `FullDisk`.
    """

    def __init__(self) -> None:
        self.room = DiskFullness()
        self.full_since = 0.0
        self.is_suspect = False
        self.has_filled = False
        self.wake = trio.Event()

    @property
    def is_disk_full(self) -> bool:
        """True while this broker gives up replicas that other brokers hold too."""
        return self.room.is_full

    def report(self, error: StorageError) -> None:
        """Reports that a file could not be written or read."""
        if self.room.is_full or isinstance(error, CorruptSegment):
            # A damaged batch says nothing about the disk, and each read of it would write there.
            return
        if isinstance(error, StorageFull):
            self.fill(str(error))
        else:
            self.is_suspect = True
            self.wake.set()

    def fill(self, why: str) -> None:
        """Marks the disk as full; `why` is for the log."""
        now = trio.current_time()
        self.room.fill(now)
        self.full_since = now
        self.has_filled = True
        log.error("%s: this broker gives up replicas that other brokers hold too, until there is space", why)
        self.wake.set()


class FullDisk:
    """Task that gives up replicas while the disk is full. Call `apply` with each image, after `Partitions.apply`.

    Args:
        failures: receives the storage errors of the partitions.
        partitions: the replicas of this broker.
        log_directory: data directory of the replicas.
        directory_id: id of this directory.
        image: returns the newest image.
        channel: connection to the active controller.
        follow_all: assigns every following replica to the fetcher of its leader again.
    """

    def __init__(
        self,
        failures: ReportedFailures,
        partitions: Partitions,
        log_directory: LogDirectory,
        directory_id: bytes,
        image: Callable[[], ClusterImage],
        channel: Channel,
        follow_all: Callable[[], None],
    ) -> None:
        self._failures = failures
        self._room = failures.room
        self._node_id = partitions.environment.node_id
        self._partitions = partitions
        self._directory = log_directory
        self._directory_id = directory_id
        self._image = image
        self._channel = channel
        self._follow_all = follow_all
        # True if the metadata may have replicas of this broker in the lost directory, at first from an earlier run.
        self._may_have_lost = True
        # Topics of large changes, before and after them, that the task has not looked at yet.
        self._unseen: list[Iterable[tuple[TopicImage, TopicImage]]] = []
        self._has_checked_space = False
        self._taken_up: set[Key] = set()
        # Time of the last request for each replica, by (replica, True to give it up); the metadata changes later.
        self._asked: dict[tuple[Key, bool], float] = {}
        self._is_failing = False

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Wakes the task if the metadata may have replicas of this broker in the lost directory."""
        if not self._may_have_lost:
            # A request made while the disk was full may appear in the metadata only after there is space again.
            changed = new.delta.changed_topics
            if len(changed) > PIECE:
                self._unseen.append(changed)
                self._failures.wake.set()
                return
            self._may_have_lost = any(map(self._has_lost_replica, changed))
        if self._may_have_lost:
            self._failures.wake.set()

    def _has_lost_replica(self, changed: tuple[TopicImage, TopicImage]) -> bool:
        """True if a replica of this broker is in the lost directory, of the changed partitions of a topic."""
        return any(partition.is_lost_on(self._node_id) for partition in changed_partitions(*changed))

    async def _find_lost_in_changes(self) -> None:
        """Looks in turns for lost replicas in large changes of the metadata."""
        unseen, self._unseen = self._unseen, []
        for topics in unseen:
            async for changed in EachInTurns(topics):
                if self._has_lost_replica(changed):
                    self._may_have_lost = True
                    return

    async def run(self) -> None:
        """Gives up replicas and takes them up again, until it is cancelled."""
        failures = self._failures
        while True:
            failures.wake = trio.Event()
            if self._unseen:
                await self._find_lost_in_changes()
            if failures.is_suspect:
                failures.is_suspect = False
                if not can_write(self._directory.filesystem, self._directory.path):
                    failures.fill(f"{self._directory.path}: nothing can be written")
            if failures.has_filled:
                failures.has_filled = False
                self._may_have_lost = True
                self._follow_all()
            if self._room.is_full and trio.current_time() >= self._room.check_at:
                self._check_space()
            again_at = await self._request_moves() if self._may_have_lost else NEVER
            if self._room.is_full:
                again_at = min(again_at, self._room.check_at)
            with trio.move_on_at(again_at):
                await failures.wake.wait()

    def _check_space(self) -> None:
        """Checks whether the disk has space again."""
        self._has_checked_space = True
        self._room.checked(trio.current_time(), has_room=has_room(self._directory.filesystem, self._directory.path))
        if not self._room.is_full:
            log.info("%s: there is space again", self._directory.path)
            self._follow_all()

    async def _request_moves(self) -> float:
        """Sends the controller the due moves of replicas. Returns the time of the next call, on trio's clock."""
        image = self._image()
        moves = replica_moves(image, self._node_id, self._taken_up, is_full=self._room.is_full)
        if moves.take_up and not self._has_checked_space and not self._room.is_full:
            # Given up by an earlier run of this broker: taken up again only if there is space now.
            self._has_checked_space = True
            if not has_room(self._directory.filesystem, self._directory.path):
                self._failures.fill(f"{self._directory.path}: the disk is still full")
                return 0.0
        self._taken_up = {key for key in self._taken_up if self._is_without_leader(image, key)}
        broker = image.brokers.get(self._node_id)
        if broker is None:
            return NEVER
        now = trio.current_time()
        ready = [key for key in moves.give_up if self._may_give_up(key, now)]
        asked = {key: at for key, at in self._asked.items() if now < at + RETRY_S}
        give_up = [key for key in ready if (key, True) not in asked]
        take_up = [key for key in moves.take_up if (key, False) not in asked]
        self._asked = asked | {(key, True): now for key in give_up} | {(key, False): now for key in take_up}
        self._taken_up.update(take_up)
        for keys, directory in ((give_up, LOST_DIRECTORY), (take_up, self._directory_id)):
            for start in range(0, len(keys), REPLICAS_PER_REQUEST):
                await self._request(broker.epoch, directory, keys[start : start + REPLICAS_PER_REQUEST])
        if len(ready) < len(moves.give_up):
            return trio.current_time() + TAIL_PAUSE_S
        if moves.give_up or moves.take_up or self._taken_up:
            return trio.current_time() + RETRY_S
        self._may_have_lost = self._room.is_full
        return NEVER

    def _may_give_up(self, key: Key, now: float) -> bool:
        """True if the in-sync followers have the whole log or had TAIL_S to fetch it, or this broker is not leader."""
        partition = self._partitions.get_by_id(*key)
        return (
            partition is None
            or not partition.is_leader
            or now >= self._failures.full_since + TAIL_S
            or partition.is_in_every_isr_log(partition.log.log_end_offset)
        )

    def _is_without_leader(self, image: ClusterImage, key: Key) -> bool:
        topic = image.topics_by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return partition is not None and is_offline_last_replica(partition, self._node_id)

    async def _request(self, broker_epoch: int, directory: bytes, keys: Sequence[Key]) -> None:
        replicas = [(directory, *key) for key in keys]
        failure = await assign_replicas(self._channel, self._node_id, broker_epoch, replicas)
        if failure is not None and not self._is_failing:
            log.warning("replicas that this broker gives up or takes up could not be reported: %s", failure)
        self._is_failing = failure is not None
        if failure is None:
            # A single replica that was refused stays in `replica_moves`, and is requested again.
            what = "gives up" if directory == LOST_DIRECTORY else "takes up again"
            log.info("this broker %s %d replica(s)", what, len(keys))
