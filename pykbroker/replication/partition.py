"""One replica of one partition, on the broker that leads it: fences, append, read, and who waits for it.

Everything here is synchronous: between two awaits of a handler a partition is consistent, and there are no locks.
With one replica the high watermark is the log end. Follower progress and the in-sync set belong here when they come:
they move `high_watermark`, and everything above reads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import OffsetOutOfRange, StorageError
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.replication.offset_waiters import ALL, OffsetWaiters

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import PartitionImage
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.logstore.partition_log import AppendResult, PartitionLog
    from pykbroker.logstore.producer_state import Verification

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


class Partition:
    """A partition that this broker leads.

    Attributes:
        topic, partition, topic_id: its identity.
        log: its log.
        leader_epoch: the epoch under which this broker leads; stamped on every batch.
        high_watermark: end of what consumers may read.
        waiters: who waits for its log to grow.
        stable_waiters: who waits for its last stable offset to move: readers of committed records only.
    """

    __slots__ = (
        "_isr",
        "high_watermark",
        "leader_epoch",
        "leader_id",
        "log",
        "partition",
        "stable_waiters",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(self, topic: str, topic_id: bytes, log: PartitionLog, image: PartitionImage) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = image.partition
        self.log = log
        self.high_watermark = log.log_end_offset
        log.on_shortened = self._log_was_shortened
        self.waiters = OffsetWaiters()
        self.stable_waiters = OffsetWaiters()
        self.update(image)

    def update(self, image: PartitionImage) -> None:
        """Takes over leader, epoch and in-sync set from the metadata."""
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self._isr = tuple(image.isr)

    def _log_was_shortened(self) -> None:
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        """End of what read_committed consumers may read (P-68)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

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

    def append_as_leader(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends batches under the current leader epoch and wakes whoever waits for them.

        `verification` and `transaction_version` belong to batches and markers of transactions, see `PartitionLog`.

        Raises:
            LogError, RecordError: nothing was appended.
            StorageError: likewise, or what was appended could not be synced (`flush.messages`).
        """
        log = self.log
        stable_before = self.last_stable_offset if self.stable_waiters else -1
        try:
            result = log.append_as_leader(
                data,
                self.leader_epoch,
                now_ms,
                origin,
                verification=verification,
                transaction_version=transaction_version,
            )
        except StorageError:
            if log.log_end_offset > self.high_watermark:
                # It is in the log all the same, where a retry of the producer finds it.
                self._advance(len(data), stable_before)
            raise
        if not result.is_duplicate:
            self._advance(len(data), stable_before)
        return result

    def _advance(self, size: int, stable_before: int) -> None:
        """The high watermark follows the log end, and whoever waits for so many bytes more is woken."""
        self.high_watermark = self.log.log_end_offset
        self.waiters.notify(size)
        if stable_before >= 0:
            self._notify_stable(stable_before)

    def _notify_stable(self, stable_before: int) -> None:
        """Wakes readers of committed records by what became readable for them; many segments are always enough."""
        stable = self.last_stable_offset
        if stable > stable_before:
            size = self.log.size_between(stable_before, stable)
            self.stable_waiters.notify(ALL if size is None else size)

    def check_enough_replicas(self) -> None:
        """For acks=all: refuses when the in-sync set is below `min.insync.replicas` (P-46).

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        wanted = self.log.config.min_insync_replicas
        if len(self._isr) < wanted:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self}: {len(self._isr)} in-sync replica(s), min.insync.replicas is {wanted}",
            )

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
        if epoch == self.leader_epoch:
            # The current epoch may have no batch yet; it ends at the log end all the same.
            return epoch, self.log.log_end_offset
        if NO_EPOCH != epoch < self.leader_epoch and self.log.leader_epochs.latest_epoch == NO_EPOCH:
            # Kafka's leader notes its epoch when it takes over; ours with the first batch, which would start here.
            return epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)

    def advance_log_start(self, offset: int) -> None:
        """Deletes what is before an offset (DeleteRecords)."""
        self.log.advance_log_start(offset)

    def close(self) -> None:
        """Wakes all waiters: the partition is going away, they look again and find it gone."""
        self.waiters.notify(ALL)
        self.stable_waiters.notify(ALL)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"
