"""One replica of one partition, as far as leader and follower are the same: fences, reads, the high watermark, waiters.

What only a leader does is in `partition`. Everything here is synchronous.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import OffsetOutOfRange, StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.replication.offset_waiters import ALL, OffsetWaiters

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.replication.leadership import Leadership

log = logging.getLogger(__name__)

NO_EPOCH = -1


class FetchBound:
    """How far a reader may see: consumers to the high watermark or the last stable offset, replicas to the log end."""

    HIGH_WATERMARK = 0
    LAST_STABLE_OFFSET = 1
    LOG_END = 2


class PartitionRead(NamedTuple):
    """What a fetch of one partition found.

    `diverging` is (epoch, end offset) when the reader's last epoch does not end where ours does; then there are no
    records (KIP-595).
    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRange | None
    diverging: tuple[int, int] | None


class AckWaiter:
    """Somebody who waits until the high watermark is at an offset."""

    __slots__ = ("end_offset", "event")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.event = trio.Event()


class Replica:
    """See `Partition`, which is what there is of it.

    Attributes:
        topic, partition, topic_id: its identity.
        log: its log.
        leader_id: the broker that leads it, -1 for none.
        leader_epoch: the epoch under which it leads; stamped on every batch.
        leadership: what a leader knows; None on a follower. Another object means that leadership was lost meanwhile.
        replicas: the brokers that hold it, or should.
        is_adding: whether this broker is being added to its replicas by a reassignment.
        is_lost: whether this broker has given the replica up for now, as its disk is full.
        unsynced_from: where records begin that a follower has taken and could not sync, with `flush.messages`; -1 for
            none. Its leader must not hear that it has them.
        high_watermark: end of what consumers may read.
        waiters: who waits for its high watermark to move.
        stable_waiters: who waits for its last stable offset to move: readers of committed records only.
        end_waiters: who waits for its log to grow: followers.
        low_waiters: who waits for the log starts of its followers (DeleteRecords).
    """

    __slots__ = (
        "_ack_waiters",
        "end_waiters",
        "high_watermark",
        "is_adding",
        "is_lost",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "low_waiters",
        "partition",
        "partition_epoch",
        "replicas",
        "stable_waiters",
        "topic",
        "topic_id",
        "unsynced_from",
        "waiters",
    )

    def __init__(self, topic: str, topic_id: bytes, partition: int, log: PartitionLog, high_watermark: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.high_watermark = high_watermark
        self.leader_id = self.leader_epoch = self.partition_epoch = -1
        self.leadership: Leadership | None = None
        self.replicas: tuple[int, ...] = ()
        self.is_adding = self.is_lost = False
        self.unsynced_from = -1
        self.waiters = OffsetWaiters()
        self.stable_waiters = OffsetWaiters()
        self.end_waiters = OffsetWaiters()
        self.low_waiters = OffsetWaiters()
        # In order of arrival.
        self._ack_waiters: dict[AckWaiter, None] = {}
        log.on_shortened = self._log_was_shortened

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    # What it is worth

    @property
    def last_stable_offset(self) -> int:
        """End of what read_committed consumers may read (P-68)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync set that the controller confirmed; empty on a follower, which need not know it."""
        return () if self.leadership is None else self.leadership.isr

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fences a client whose metadata is older or newer than ours (P-69); -1 skips the check.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self}: the leader epoch is {self.leader_epoch}, the request has the older {current_leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self}: the leader epoch is {self.leader_epoch}, the request has the newer {current_leader_epoch}",
        )

    def check_leader(self) -> None:
        """Refuses what only a leader may do.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if self.leadership is None:
            raise self._not_leader()

    def _not_leader(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: broker {self.leader_id} leads it")

    def _wake_all(self) -> None:
        for waiters in (self.waiters, self.stable_waiters, self.end_waiters, self.low_waiters):
            waiters.notify(ALL)
        for waiter in self._ack_waiters:
            waiter.event.set()

    def _log_was_shortened(self) -> None:
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def _move_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        stable_before = self.last_stable_offset if self.stable_waiters else -1
        self.high_watermark = offset
        if self.waiters:
            size = self.log.size_between(before, offset)
            self.waiters.notify(ALL if size is None else size)
        if stable_before >= 0:
            self._notify_stable(stable_before)
        self._wake_acks()

    def _wake_acks(self) -> None:
        for waiter in self._ack_waiters:
            if waiter.end_offset <= self.high_watermark:
                waiter.event.set()

    def _notify_stable(self, stable_before: int) -> None:
        """Wakes readers of committed records by what became readable for them; many segments are always enough."""
        stable = self.last_stable_offset
        if stable > stable_before:
            size = self.log.size_between(stable_before, stable)
            self.stable_waiters.notify(ALL if size is None else size)

    # A follower's own log

    def append_as_follower(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
    ) -> None:
        """Appends what the leader of an epoch has sent, and takes over its high watermark and log start.

        Raises:
            KafkaError: this broker leads by now.
            LogError, RecordError: nothing was appended.
            StorageError: likewise, or it could not be synced: see `drop_unsynced`.
        """
        if self.leadership is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: the leader does not follow")
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
        # A leader that just began may know a lower one than the leader before it has told us: that one holds.
        if end > self.high_watermark:
            self._move_high_watermark(end)
        if log_start_offset > partition_log.log_start_offset:
            partition_log.advance_log_start(min(log_start_offset, self.high_watermark))

    def drop_unsynced(self, now_ms: int) -> None:
        """Drops what could not be synced, to be fetched and written again: a sync that succeeds after one that failed
        says nothing of what was to be written then. No leader has counted it, so it is not committed.

        Raises:
            StorageError: it is still there.
        """
        if self.unsynced_from >= 0:
            if self.unsynced_from < self.log.log_end_offset:
                self.truncate_to(self.unsynced_from, now_ms)
            self.unsynced_from = -1

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drops a follower's records from an offset on: the leader does not have them.

        Raises:
            StorageError: the log is not to be used before another truncation.
        """
        if offset < self.high_watermark:
            log.warning("%s: truncation to %d, below the high watermark %d", self, offset, self.high_watermark)
        self.high_watermark = min(self.high_watermark, offset)
        self.log.truncate_to(offset, now_ms)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drops all of a follower's records: the leader's begin at `offset`, beyond them.

        Raises:
            StorageError: as `truncate_to`.
        """
        self.log.truncate_fully_and_start_at(offset, now_ms)
        self.high_watermark = offset

    # Reading

    def read(
        self,
        offset: int,
        size_max: int,
        bound: int,
        *,
        at_least_one: bool,
        last_fetched_epoch: int = NO_EPOCH,
    ) -> PartitionRead:
        """Finds the records at an offset; reads no bytes.

        Raises:
            OffsetOutOfRange: the offset is below the log start or above the log end (P-65).
        """
        log = self.log
        start, high_watermark = log.log_start_offset, self.high_watermark
        stable = self.last_stable_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._divergence(offset, last_fetched_epoch)
            if diverging is not None:
                return PartitionRead(high_watermark, stable, start, None, diverging)
        end = (high_watermark, stable, log.log_end_offset)[bound]
        records = log.read(offset, size_max, end, at_least_one=at_least_one).range
        return PartitionRead(high_watermark, stable, start, records, None)

    def _divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the reader's log parts from ours, if it does (P-70)."""
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset == -1:
            raise OffsetOutOfRange(f"{self}: the last fetched epoch {last_fetched_epoch} is unknown here")
        if offset < self.log.log_start_offset:
            raise OffsetOutOfRange(f"{self}: offset {offset} is below the log start {self.log.log_start_offset}")
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and where it ends (P-87); (-1, -1) if undefined."""
        if epoch == self.leader_epoch and self.leadership is not None:
            # The current epoch may have no batch yet; it ends at the log end all the same.
            return epoch, self.log.log_end_offset
        latest = self.log.leader_epochs.latest_epoch
        is_unnoted = latest == NO_EPOCH or latest <= epoch
        if self.leadership is not None and NO_EPOCH != epoch < self.leader_epoch and is_unnoted:
            # Kafka's leader notes its epoch when it takes over; ours, if it has no followers, with the first batch,
            # which would start here.
            return epoch if latest == NO_EPOCH else latest, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"
