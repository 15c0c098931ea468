"""The move of one replica to another log directory of its broker (KIP-113), as a state machine.

A copy of the log, its future, grows in the target directory (Kafka's ReplicaAlterLogDirsThread). When it has all
records and they are durable, the new directory is reported to the controller (KIP-858). The copy replaces the log when
the metadata has that directory; until then the partition is served from its log.

Pure but for the two logs: time comes as an argument, and `DirectoryMoves` does what `next_step` says.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from pykbroker.logstore.errors import UnexpectedAppendOffset
from pykbroker.protocol.records.batch import iter_headers

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.replication.partition import Partition

log = logging.getLogger(__name__)

UNDEFINED = -1

SLICE_BYTES_MIN = 16 << 10
SLICE_BYTES_MAX = 1 << 19
SLICE_S = 0.001
"""Time that the append of one slice should take: other requests wait for it. Batches of a few records take longer than
large ones of the same size, so the size of slices follows the time of the last one."""


class MoveState(Enum):
    """Progress of a move, as `ReassignmentState` of Kafka: None, Queued, Accepted."""

    COPYING = 0
    ASSIGNING = 1
    ACCEPTED = 2


class Step(Enum):
    """Next work of a move: copy a slice, make the copy durable, replace the log by it, or none for now."""

    COPY = 0
    SYNC = 1
    REPLACE = 2
    WAIT = 3


class DirectoryMove:
    """One move. It ends when the copy has replaced the log, or is given up.

    Args:
        partition: the replica; its `future` is the copy.
        future: the copy, in the target directory.
        target: id of the target directory.
        assigned: id of the directory that the metadata has for the replica; after a restart it may be the target.

    Attributes:
        state: progress of the move.
        not_before: earliest time of the next step, in seconds of the caller's clock.
        slice_bytes: size of the next slice.
    """

    __slots__ = ("_is_durable", "future", "not_before", "partition", "slice_bytes", "state", "target")

    def __init__(self, partition: Partition, future: PartitionLog, target: bytes, assigned: bytes | None) -> None:
        self.partition = partition
        self.future = future
        self.target = target
        self.state = MoveState.ACCEPTED if assigned == target else MoveState.COPYING
        self.not_before = 0.0
        self.slice_bytes = SLICE_BYTES_MIN
        self._is_durable = False

    @property
    def key(self) -> tuple[str, int]:
        """(topic, partition)."""
        return self.partition.topic, self.partition.partition

    @property
    def is_assigned(self) -> bool:
        """True if the target is to be reported to the controller as the replica's directory."""
        return self.state is not MoveState.COPYING

    def align(self, now_ms: int) -> None:
        """Truncates the copy to where it agrees with the log, and gives it the log's start.

        The log may have been truncated since the last slice, or recovered after a crash, and retention deletes its
        beginning. The comparison by leader epochs is that of KIP-101.

        Raises:
            StorageError: the copy must not be used before another call has succeeded.
        """
        source, future = self.partition.log, self.future
        # After a loss of power the log may end below its start.
        start = min(source.log_start_offset, source.log_end_offset)
        if start > future.log_end_offset:
            future.truncate_fully_and_start_at(start, now_ms)
        if future.log_end_offset > source.log_end_offset:
            self._truncate(source.log_end_offset, now_ms)
        while future.log_end_offset > start and (epoch := future.leader_epochs.latest_epoch) != UNDEFINED:
            end_offset = future.log_end_offset
            source_epoch, source_end = source.end_offset_for_epoch(epoch)
            if source_epoch == epoch and source_end >= end_offset:
                break
            if source_epoch == UNDEFINED:
                # All records of the log are of later epochs.
                future.truncate_fully_and_start_at(start, now_ms)
                break
            _, future_end = future.end_offset_for_epoch(source_epoch)
            self._truncate(min(end for end in (future_end, source_end, end_offset) if end >= 0), now_ms)
        if start > future.log_start_offset:
            future.advance_log_start(start)

    def _truncate(self, offset: int, now_ms: int) -> None:
        before = self.future.log_end_offset
        self.future.truncate_to(offset, now_ms)
        if offset < before:
            log.info("%s: its copy in %s is truncated from %d to %d", self.partition, self.future.path, before, offset)

    def next_step(self, assigned: bytes | None, *, is_throttled: bool, is_cleaning: bool) -> Step:
        """The next step; `align` comes first.

        Args:
            assigned: id of the directory that the metadata has for the replica, None if it has no directories.
            is_throttled: the limit of bytes per second is exceeded.
            is_cleaning: a compaction of the log is going on, which needs its directory.
        """
        source, future = self.partition.log, self.future
        if future.log_end_offset < source.log_end_offset:
            return Step.WAIT if is_throttled else Step.COPY
        if self.state is MoveState.COPYING:
            if not self._is_durable:
                # The copy replaces a log that is durable: a loss of power just after that must lose nothing.
                return Step.SYNC
            self.state = MoveState.ASSIGNING
        if self.state is MoveState.ASSIGNING and assigned in (None, self.target):
            self.state = MoveState.ACCEPTED
        if self.state is MoveState.ASSIGNING or is_cleaning:
            return Step.WAIT
        is_behind = not self._is_durable or future.recovery_point < source.recovery_point
        return Step.SYNC if is_behind else Step.REPLACE

    def on_synced(self) -> None:
        """Notes that the records of the copy are durable."""
        self._is_durable = True

    def read(self) -> FileRange | None:
        """The next slice of the log; None if there are no records up to its end, as they were compacted away."""
        offset, end_offset = self.future.log_end_offset, self.partition.log.log_end_offset
        return self.partition.log.read(offset, self.slice_bytes, end_offset, at_least_one=True).range

    def take(self, data: bytes, now_ms: int) -> None:
        """Appends a slice that was read at the copy's end.

        Raises:
            StorageError: nothing was appended, or whole batches.
            CorruptRecord: the slice is damaged; nothing was appended.
        """
        future = self.future
        try:
            future.append_as_follower(data, now_ms)
        except UnexpectedAppendOffset:
            base_offset = next((header.base_offset for _, header in iter_headers(memoryview(data))), UNDEFINED)
            if base_offset < 0 or future.log_end_offset != future.log_start_offset:
                raise
            # The log begins within a batch (DeleteRecords), and the copy is empty.
            future.truncate_fully_and_start_at(base_offset, now_ms)
            future.append_as_follower(data, now_ms)
            future.advance_log_start(min(self.partition.log.log_start_offset, future.log_end_offset))

    def skip(self, now_ms: int) -> None:
        """Moves the copy's end to the log's end: there are no records between them. Raises StorageError."""
        self.future.loaded.skip_to(self.partition.log.log_end_offset, now_ms)

    def on_slice(self, elapsed_s: float) -> None:
        """Adapts the size of slices to the time that the last one took."""
        if elapsed_s > SLICE_S:
            self.slice_bytes = max(int(self.slice_bytes * SLICE_S / elapsed_s), SLICE_BYTES_MIN)
        else:
            self.slice_bytes = min(2 * self.slice_bytes, SLICE_BYTES_MAX)
