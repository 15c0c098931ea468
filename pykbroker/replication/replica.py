"""A replica's log with its high watermark: reads up to a bound, appends of a follower, waiters on both offsets.

Leadership and its consequences are in `partition`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.completion import Completion
from pykbroker.logstore.errors import StorageError
from pykbroker.named_tuple import NamedTuple
from pykbroker.replication.offset_waiters import ALL, OffsetWaiters

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.logstore.partition_log import PartitionLog

log = logging.getLogger(__name__)


class FetchBound:
    """Upper bound of a read: high watermark or last stable offset for consumers, the log end for replicas."""

    HIGH_WATERMARK = 0
    LAST_STABLE_OFFSET = 1
    LOG_END = 2


class PartitionRead(NamedTuple):
    """Result of a fetch of one partition.

    `diverging` is (epoch, end offset) if the reader's log diverges from this one (KIP-595); then there are no records.
    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRange | None
    diverging: tuple[int, int] | None


class AckWaiter(Completion):
    """The wait of a request until the high watermark reaches an offset."""

    __slots__ = ("end_offset",)

    def __init__(self, end_offset: int) -> None:
        super().__init__()
        self.end_offset = end_offset


class Replica:
    """One replica's log, its high watermark, and the waiters on both: the part of a `Partition` without leadership.

    Attributes:
        name: topic and partition, for messages.
        log: its log.
        high_watermark: end of what consumers may read.
        unsynced_from: first offset of the records that a follower has appended and could not sync, with
            `flush.messages`; -1 for none. The follower must not fetch beyond it, which would acknowledge them.
        waiters: readers that wait for the high watermark to move.
        stable_waiters: readers of committed records, which wait for the last stable offset to move.
        end_waiters: followers, which wait for the log to grow.
        low_waiters: DeleteRecords requests, which wait for the followers' log starts.
    """

    __slots__ = (
        "_ack_waiters",
        "end_waiters",
        "high_watermark",
        "log",
        "low_waiters",
        "name",
        "stable_waiters",
        "unsynced_from",
        "waiters",
    )

    def __init__(self, name: str, log: PartitionLog, high_watermark: int) -> None:
        self.name = name
        self.log = log
        self.high_watermark = high_watermark
        self.unsynced_from = -1
        self.waiters = OffsetWaiters()
        self.stable_waiters = OffsetWaiters()
        self.end_waiters = OffsetWaiters()
        self.low_waiters = OffsetWaiters()
        # In order of arrival.
        self._ack_waiters: dict[AckWaiter, None] = {}
        log.on_shortened = self._on_log_shortened

    def replace_log(self, log: PartitionLog) -> None:
        """Uses another log from now on, which has the same records."""
        self.log = log
        log.on_shortened = self._on_log_shortened

    def _on_log_shortened(self) -> None:
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        """End of what read_committed consumers may read (P-68)."""
        return self.log.last_stable_offset(self.high_watermark)

    # Waiters

    def wake_all(self) -> None:
        """Wakes every waiter, to check the new state of the partition."""
        for waiters in (self.waiters, self.stable_waiters, self.end_waiters, self.low_waiters):
            if waiters:  # a partition of thousands that are deleted together has none
                waiters.notify(ALL)
        for waiter in self._ack_waiters:
            waiter.complete()

    def wake_acks(self) -> None:
        """Wakes the waiters whose offset the high watermark has reached."""
        for waiter in self._ack_waiters:
            if waiter.end_offset <= self.high_watermark:
                waiter.complete()

    async def wait_for_high_watermark(self, end_offset: int, deadline: float) -> None:
        """Waits until the high watermark reaches an offset, `wake_all`, or a deadline on trio's clock."""
        waiter = AckWaiter(end_offset)
        self._ack_waiters[waiter] = None
        try:
            await waiter.wait(deadline)
        finally:
            del self._ack_waiters[waiter]

    def move_high_watermark(self, offset: int) -> None:
        """Raises the high watermark, and wakes its waiters."""
        before = self.high_watermark
        stable_before = self.stable_before()
        self.high_watermark = offset
        if self.waiters:
            size = self.log.loaded.segments.size_between(before, offset)
            self.waiters.notify(ALL if size is None else size)
        self.notify_stable(stable_before)
        self.wake_acks()

    def all_is_readable(self, size: int, stable_before: int) -> None:
        """Raises the high watermark to the log end, after an append of `size` bytes to a log without followers.

        No request waits for acks then.
        """
        self.high_watermark = self.log.log_end_offset
        if self.waiters:
            self.waiters.notify(size)
        if stable_before >= 0:
            self.notify_stable(stable_before)

    def stable_before(self) -> int:
        """The last stable offset, to be passed to `notify_stable` after a change; -1 if nothing waits for it."""
        return self.last_stable_offset if self.stable_waiters else -1

    def notify_stable(self, stable_before: int) -> None:
        """Wakes readers of committed records by the bytes that became readable; several segments wake all of them."""
        if stable_before < 0:
            return
        stable = self.last_stable_offset
        if stable > stable_before:
            size = self.log.loaded.segments.size_between(stable_before, stable)
            self.stable_waiters.notify(ALL if size is None else size)

    def forget_ended_transactions(self) -> None:
        """Forgets ended transactions whose markers are replicated, if very many are kept; called after new markers."""
        producers = self.log.producers
        if producers.has_many_ended:
            producers.forget_replicated(self.high_watermark)

    # A follower's own log

    def append_as_follower(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
    ) -> None:
        """Appends records that the leader of an epoch has sent, and adopts its high watermark and log start.

        Raises:
            LogError, RecordError: nothing was appended.
            StorageError: likewise, or the records could not be synced: see `drop_unsynced`.
        """
        partition_log = self.log
        if len(data):
            begin = partition_log.log_end_offset
            try:
                partition_log.append_as_follower(data, now_ms, leader_epoch)
            except StorageError:
                if self.unsynced_from < 0 and partition_log.log_end_offset > begin:
                    self.unsynced_from = begin
                raise
        end = min(high_watermark, partition_log.log_end_offset)
        # A new leader may have a lower high watermark than the previous leader has sent: the higher one stays valid.
        if end > self.high_watermark:
            self.move_high_watermark(end)
        if len(data):
            self.forget_ended_transactions()
        if log_start_offset > partition_log.log_start_offset:
            partition_log.advance_log_start(min(log_start_offset, self.high_watermark))

    def drop_unsynced(self, now_ms: int) -> None:
        """Truncates the records that could not be synced, to fetch and write them again.

        A sync that succeeds after a failed one does not prove that the earlier bytes were written. No leader has
        counted these records, so they are not committed.

        Raises:
            StorageError: the records are still in the log.
        """
        if self.unsynced_from >= 0:
            if self.unsynced_from < self.log.log_end_offset:
                self.truncate_to(self.unsynced_from, now_ms)
            self.unsynced_from = -1

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drops a follower's records from an offset on: the leader does not have them.

        Raises:
            StorageError: the log must not be used before another truncation.
        """
        if offset < self.high_watermark:
            log.warning("%s: truncation to %d, below the high watermark %d", self, offset, self.high_watermark)
        self.high_watermark = min(self.high_watermark, offset)
        self.log.truncate_to(offset, now_ms)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drops all of a follower's records: the leader's log begins at `offset`, beyond them.

        Raises:
            StorageError: as `truncate_to`.
        """
        self.log.truncate_fully_and_start_at(offset, now_ms)
        self.high_watermark = offset

    # Reading

    def read(self, offset: int, size_max: int, bound: int, *, at_least_one: bool) -> PartitionRead:
        """Finds the records at an offset; reads no bytes.

        Raises:
            OffsetOutOfRange: the offset is below the log start or above the log end (P-65).
        """
        log = self.log
        start, high_watermark = log.log_start_offset, self.high_watermark
        stable = self.last_stable_offset
        end = (high_watermark, stable, log.log_end_offset)[bound]
        records = log.read(offset, size_max, end, at_least_one=at_least_one).range
        return PartitionRead(high_watermark, stable, start, records, None)

    def __repr__(self) -> str:
        return self.name
