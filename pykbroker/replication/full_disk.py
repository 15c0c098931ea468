"""FullDisk: gives up replicas while the disk of this broker is full, and takes them up again when there is space.

Only in a cluster of several brokers; a single broker refuses records until they fit. Decisions are in
`full_disk_rules`. The order is:

1. Partitions that other brokers could lead refuse records, and nothing is fetched.
2. The other replicas get TAIL_S seconds to fetch the records that were acknowledged with acks=1.
3. The controller gets AssignReplicasToDirs. While it cannot be reached producers are refused, as by a single broker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import trio

from pykbroker.controller.metadata.image import LOST_DIRECTORY
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import StorageFull
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.replication.full_disk_rules import (
    DiskFullness,
    can_write,
    has_room,
    is_offline_last_replica,
    replica_moves,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.logstore.errors import StorageError
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.protocol.fields import Message
    from pykbroker.replication.partitions import Partitions

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
RETRY_S = 0.5
TAIL_S = 1.0
"""Time in seconds for other replicas to fetch the end of a log; after it leadership is given up in any case."""
TAIL_PAUSE_S = 0.02
REQUEST_SIZE_MAX = 2000
"""Replicas in one request; Kafka's brokers send 2250 at most."""
NEVER = float("inf")

Key = tuple[bytes, int]


class Channel(Protocol):
    """The part of `ControllerChannel` that is used."""

    async def request(self, message: Message, timeout_ms: int) -> Any:
        """The active controller's response. Raises KafkaError."""


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
        """Reports that a record could not be written, or a log not created."""
        if self.room.is_full:
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
        self._has_looked = False
        self._came_back: set[Key] = set()
        # Time of the last request for each replica, by (replica, True to give it up); the metadata changes later.
        self._asked: dict[tuple[Key, bool], float] = {}
        self._is_failing = False

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Wakes the task if the metadata may have replicas of this broker in the lost directory."""
        if not self._may_have_lost:
            # A request made while the disk was full may appear in the metadata only after there is space again.
            self._may_have_lost = any(
                partition.is_lost_on(self._node_id)
                for _, topic in new.delta.changed_topics
                for partition in topic.partitions.values()
            )
        if self._may_have_lost:
            self._failures.wake.set()

    async def run(self) -> None:
        """Gives up replicas and takes them up again, until it is cancelled."""
        failures = self._failures
        while True:
            failures.wake = trio.Event()
            if failures.is_suspect:
                failures.is_suspect = False
                if not can_write(self._directory.filesystem, self._directory.path):
                    failures.fill(f"{self._directory.path}: nothing can be written")
            if failures.has_filled:
                failures.has_filled = False
                self._may_have_lost = True
                self._follow_all()
            if self._room.is_full and trio.current_time() >= self._room.check_at:
                self._look()
            again_at = await self._settle() if self._may_have_lost else NEVER
            if self._room.is_full:
                again_at = min(again_at, self._room.check_at)
            with trio.move_on_at(again_at):
                await failures.wake.wait()

    def _look(self) -> None:
        """Checks whether the disk has space again."""
        self._has_looked = True
        self._room.checked(trio.current_time(), has_room=has_room(self._directory.filesystem, self._directory.path))
        if not self._room.is_full:
            log.info("%s: there is space again", self._directory.path)
            self._follow_all()

    async def _settle(self) -> float:
        """Sends the controller the due moves of replicas. Returns the time of the next call, on trio's clock."""
        image = self._image()
        moves = replica_moves(image, self._node_id, self._came_back, is_full=self._room.is_full)
        if moves.come_back and not self._has_looked and not self._room.is_full:
            # Given up by an earlier run of this broker: taken up again only if there is space now.
            self._has_looked = True
            if not has_room(self._directory.filesystem, self._directory.path):
                self._failures.fill(f"{self._directory.path}: the disk is still full")
                return 0.0
        self._came_back = {key for key in self._came_back if self._waits_for_leader(image, key)}
        broker = image.brokers.get(self._node_id)
        if broker is None:
            return NEVER
        now = trio.current_time()
        ready = [key for key in moves.leave if self._may_leave(key, now)]
        asked = {key: at for key, at in self._asked.items() if now < at + RETRY_S}
        leave = [key for key in ready if (key, True) not in asked]
        come_back = [key for key in moves.come_back if (key, False) not in asked]
        self._asked = asked | {(key, True): now for key in leave} | {(key, False): now for key in come_back}
        self._came_back.update(come_back)
        for keys, directory in ((leave, LOST_DIRECTORY), (come_back, self._directory_id)):
            for start in range(0, len(keys), REQUEST_SIZE_MAX):
                await self._tell(broker.epoch, directory, keys[start : start + REQUEST_SIZE_MAX])
        if len(ready) < len(moves.leave):
            return trio.current_time() + TAIL_PAUSE_S
        if moves.leave or moves.come_back or self._came_back:
            return trio.current_time() + RETRY_S
        self._may_have_lost = self._room.is_full
        return NEVER

    def _may_leave(self, key: Key, now: float) -> bool:
        """True if the in-sync followers have the whole log or had TAIL_S to fetch it, or this broker is not leader."""
        partition = self._partitions.get_by_id(*key)
        return (
            partition is None
            or not partition.is_leader
            or now >= self._failures.full_since + TAIL_S
            or partition.is_in_every_isr_log(partition.log.log_end_offset)
        )

    def _waits_for_leader(self, image: ClusterImage, key: Key) -> bool:
        topic = image.topics_by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return partition is not None and is_offline_last_replica(partition, self._node_id)

    async def _tell(self, broker_epoch: int, directory: bytes, keys: Sequence[Key]) -> None:
        # Imported here: most brokers never send this request.
        from pykbroker.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        topics: dict[bytes, TopicData] = {}
        for topic_id, number in keys:
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions.append(PartitionData(partition_index=number))
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=broker_epoch,
            directories=[DirectoryData(id=directory, topics=list(topics.values()))],
        )
        try:
            response = await self._channel.request(request, REQUEST_TIMEOUT_MS)
            code = answered_error(response.error_code)
            failure = "" if code is ErrorCode.NONE else code.name
        except KafkaError as error:
            failure = str(error)
        if failure and not self._is_failing:
            log.warning("the controller was not told which replicas this broker gives up or takes up: %s", failure)
        self._is_failing = bool(failure)
        if not failure:
            # A single replica that was refused stays in `replica_moves`, and is requested again.
            what = "gives up" if directory == LOST_DIRECTORY else "takes up again"
            log.info("this broker %s %d replica(s)", what, len(keys))
