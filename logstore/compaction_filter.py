"""Filter of a compaction, batch by batch. Pure: batches in, bytes or nothing out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.records.batch import RecordBatch, build_batch
from pykbroker.protocol.records.compression import NONE
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.record import Record


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
        latest: Mapping[bytes, int],
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

        A message of an old format, which can hold several records, stays as it is or goes.
        """
        if batch.magic < 2:
            stays = batch.next_offset == self._upper_offset or any(self._stays(r, False) for r in batch.records())
            return batch.to_bytes() if stays else None
        horizon_ms = batch.base_timestamp if batch.has_delete_horizon else None
        is_past = horizon_ms is not None and horizon_ms <= self._now_ms
        if batch.is_control:
            is_spent = self._tracker.on_marker(batch)
            kept = [] if is_spent and is_past else list(batch.records())
            needs_horizon = is_spent and bool(kept)
        else:
            is_aborted = self._tracker.on_data(batch)
            kept = [] if is_aborted else [r for r in batch.records() if self._stays(r, is_past)]
            needs_horizon = any(record.value is None for record in kept)
        if not kept:
            if not self._must_keep_header(batch):
                return None
            if batch.record_count == 0:
                return batch.to_bytes()
            return _rebuilt(batch, (), codec=NONE, max_timestamp=batch.max_timestamp)
        if needs_horizon and horizon_ms is None:
            horizon_ms = self._now_ms + self._delete_retention_ms
        elif len(kept) == batch.record_count:
            return batch.to_bytes()
        return _rebuilt(
            batch,
            kept,
            keep_offsets=True,
            codec=batch.compression_codec,
            log_append_time=batch.max_timestamp,
            delete_horizon_ms=horizon_ms,
        )

    def _stays(self, record: Record, is_past: bool) -> bool:
        if record.offset >= self._end_offset:
            return True
        if record.key is None or self._latest.get(record.key, -1) > record.offset:
            return False
        return record.value is not None or not is_past

    def _must_keep_header(self, batch: RecordBatch) -> bool:
        """True if an empty batch stays: for the producer's last sequence or epoch, or for the range's last offset."""
        if batch.next_offset == self._upper_offset:
            return True
        last = self._last_offsets.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        return batch.last_offset == last if last >= 0 else batch.is_control and batch.producer_epoch == -1 - last


def _rebuilt(batch: RecordBatch, kept: Sequence[Record], **fields: Any) -> bytes:
    """The batch with the kept records alone; `fields` are further ones of `build_batch`."""
    return build_batch(
        kept,
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        timestamp_type=int(batch.is_log_append_time),
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_control=batch.is_control,
        is_transactional=batch.is_transactional,
        **fields,
    )
