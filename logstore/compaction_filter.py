"""Filter of a compaction, batch by batch. Pure: batches in, bytes or nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.records.batch import RecordBatch, batch_with_fewer, build_batch
from pykbroker.protocol.records.compression import NONE
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.key_filter import KeptRecords, records_to_keep
from pykbroker.protocol.records.record import Record

INT64_END: Final = 2**63


class TransactionTracker:
    """State of transactions while a log is read from its beginning.

    `kept` collects the aborted transactions with remaining batches, for the new segment's index.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._aborting: dict[int, AbortedTransaction] = {}
        # Producers with data of an aborted transaction, and of one that is committed, after their last marker.
        self._aborting_with_data: set[int] = set()
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def on_data(self, batch: RecordBatch) -> bool:
        """True if this data batch, with or without records, belongs to an aborted transaction."""
        self._begin_aborted_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        is_aborted = batch.producer_id in self._aborting
        (self._aborting_with_data if is_aborted else self._committing).add(batch.producer_id)
        return is_aborted

    def on_marker(self, batch: RecordBatch) -> bool:
        """True if a control batch ends a transaction that had no data left in the log before this cleaning (P-163)."""
        self._begin_aborted_up_to(batch.last_offset)
        marker = marker_of(batch) if batch.record_count else None
        if marker is None:
            # An earlier compaction removed its record, or it is not a transaction marker.
            return batch.record_count == 0
        is_abort = marker[0] == ControlRecordType.ABORT
        producers = self._aborting_with_data if is_abort else self._committing
        has_data = batch.producer_id in producers
        producers.discard(batch.producer_id)
        if is_abort:
            transaction = self._aborting.pop(batch.producer_id, None)
            if transaction is not None and has_data:
                self.kept.append(transaction)
        return not has_data

    def _begin_aborted_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0].first_offset <= offset:
            transaction = self._upcoming.pop(0)
            self._aborting.setdefault(transaction.producer_id, transaction)


class BatchFilter:
    """Decides by key (P-161), tombstone age (P-162) and transaction (P-163).

    `latest` has the last offset below `end_offset` of each key; later records stay. `last_offsets` has, for each
    producer, the last offset of its data, or -1 - epoch if its last batch is a marker. The batch that ends at
    `upper_offset`, the end of the range that could be cleaned, stays, also without records.
    """

    def __init__(
        self,
        latest: dict[bytes, int],
        end_offset: int,
        last_offsets: Mapping[int, int],
        upper_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        tracker: TransactionTracker,
    ) -> None:
        self._latest = latest
        self._end_offset = end_offset
        self._last_offsets = last_offsets
        self._upper_offset = upper_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._tracker = tracker

    def filtered(self, batch: RecordBatch) -> bytes | None:
        """The remaining bytes of a batch: all, fewer records, a header without records, or None.

        A message of an old format, which can hold several records, is kept unchanged or removed. Raises a RecordError
        for records that cannot be read.
        """
        if batch.magic < 2:
            stays = batch.next_offset == self._upper_offset or any(self._old_stays(r) for r in batch.records())
            return batch.to_bytes() if stays else None
        is_past = batch.has_delete_horizon and batch.base_timestamp <= self._now_ms
        if batch.is_control:
            return self._filtered_marker(batch, is_past)
        if self._tracker.on_data(batch):
            return self._without_records(batch)
        kept = records_to_keep(batch, self._end_offset, not is_past, self._latest)
        if not kept.record_count:
            return self._without_records(batch)
        if kept.tombstones and not batch.has_delete_horizon:
            return _rebuilt(batch, batch.records_in(kept.data, kept.record_count), self._horizon_ms())
        return batch.to_bytes() if kept.record_count == batch.record_count else _shortened(batch, kept)

    def _filtered_marker(self, batch: RecordBatch, is_past: bool) -> bytes | None:
        is_spent = self._tracker.on_marker(batch)
        if (is_spent and is_past) or batch.record_count == 0:
            return self._without_records(batch)
        if is_spent and not batch.has_delete_horizon:
            return _rebuilt(batch, batch.records(), self._horizon_ms())
        return batch.to_bytes()

    def _horizon_ms(self) -> int:
        """The delete horizon of a batch that gets one now."""
        return self._now_ms + self._delete_retention_ms

    def _old_stays(self, record: Record) -> bool:
        return record.key is not None and self._latest.get(record.key, -1) <= record.offset

    def _without_records(self, batch: RecordBatch) -> bytes | None:
        if not self._must_keep_header(batch):
            return None
        if batch.record_count == 0:
            return batch.to_bytes()
        return _rebuilt(batch, (), None, codec=NONE, max_timestamp=batch.max_timestamp)

    def _must_keep_header(self, batch: RecordBatch) -> bool:
        """True if an empty batch stays: for the producer's last sequence or epoch, or for the range's last offset."""
        if batch.next_offset == self._upper_offset:
            return True
        last = self._last_offsets.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        return batch.last_offset == last if last >= 0 else batch.is_control and batch.producer_epoch == -1 - last


def _shortened(batch: RecordBatch, kept: KeptRecords) -> bytes:
    """The batch with fewer records, as Apache Kafka encodes it: the first record's timestamp becomes the base.

    If the base stays the same, so do the bytes of the records. With a delete horizon the base is the horizon.
    """
    has_same_base = (kept.first_delta == 0 or batch.has_delete_horizon) and not batch.is_log_append_time
    max_timestamp = batch.base_timestamp + kept.largest_delta
    # Timestamps outside these bounds may overflow, as in Kafka. In the name of a header, Kafka replaces bytes that are
    # not UTF-8.
    is_usual = 0 <= batch.base_timestamp <= max_timestamp < INT64_END and kept.are_plain
    if has_same_base and is_usual:
        return batch_with_fewer(batch, kept.data, kept.record_count, max_timestamp)
    horizon_ms = batch.base_timestamp if batch.has_delete_horizon else None
    return _rebuilt(batch, batch.records_in(kept.data, kept.record_count), horizon_ms)


def _rebuilt(
    batch: RecordBatch,
    kept: Iterable[Record],
    horizon_ms: int | None,
    *,
    codec: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """The batch with these records; by default with its own codec, and the largest timestamp of the records."""
    return build_batch(
        kept,
        base_offset=batch.base_offset,
        keep_offsets=True,
        last_offset_delta=batch.last_offset_delta,
        codec=batch.compression_codec if codec is None else codec,
        timestamp_type=int(batch.is_log_append_time),
        log_append_time=batch.max_timestamp,
        max_timestamp=max_timestamp,
        delete_horizon_ms=horizon_ms,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_control=batch.is_control,
        is_transactional=batch.is_transactional,
    )
