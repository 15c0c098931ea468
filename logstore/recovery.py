"""Recovery after an unclean stop: finds the end of the valid batches and rebuilds the other files from them (P-171).

Batches below the recovery point are durable, so only their headers are read. The CRC of the others is checked in a
mapping, without a copy. The indexes of a scanned segment are always rebuilt.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.batch_scan import is_valid
from pykbroker.logstore.errors import CorruptSegment
from pykbroker.logstore.offset_index import MAX_RELATIVE_OFFSET
from pykbroker.logstore.producer_state import BATCHES_KEPT, CompletedTransaction, ProducerState
from pykbroker.logstore.segment import IndexBuilder, Segment
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.control import (
    ControlRecordType,
    control_record_type,
    end_transaction_coordinator_epoch,
)
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LEGACY_LENGTH_MIN,
    LEGACY_SIZE_MIN,
    LENGTH_OVERHEAD,
    RECOVERED,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    legacy_timestamp,
    read_header,
)

_ZEROS_STEP: Final = 1 << 16
LastBatches = dict[int, list[BatchHeader]]


class Recovered(NamedTuple):
    """Result of the scan of one segment: the end of its valid batches, as position and as offset, and its epochs.

    `ends_in_zeros`: only zeros follow, such as space that was allocated and not written. `last_batches` are the headers
    of each producer's last batches, which determine its state; None if the segment has a transaction, because then
    every batch matters.
    """

    size: int
    next_offset: int
    epochs: list[tuple[int, int]]
    ends_in_zeros: bool
    last_batches: LastBatches | None


def recover_segment(segment: Segment, size: int, recovery_point: int, index_interval_bytes: int) -> Recovered:
    """Scans a segment of `size` bytes, finds its first invalid batch, and rebuilds its indexes.

    The file is not truncated here. `epochs` are (leader epoch, first offset) in order of appearance.
    """
    builder = IndexBuilder(segment, index_interval_bytes)
    due_above, newest = builder.due_above, builder.max_timestamp
    next_offset = segment.base_offset
    last_possible = segment.base_offset + MAX_RELATIVE_OFFSET
    epoch = -1
    epochs: list[tuple[int, int]] = []
    last_positions: dict[int, deque[int]] = {}
    has_transactions = False
    position = 0
    unpack = RECOVERED.unpack_from
    with segment.filesystem.view(segment.file.descriptor(), size) as view:
        while position + LEGACY_SIZE_MIN <= size:
            # This loop may run a million times, so it makes no objects and few calls.
            base_offset, length, leader_epoch, magic, crc, attributes, delta, max_timestamp, producer_id = (
                unpack(view, position) if position + HEADER_SIZE <= size else _short_header(view, position, size)
            )
            end = position + LENGTH_OVERHEAD + length
            if magic != 2:
                if not 0 <= magic < 2 or length < LEGACY_LENGTH_MIN or end > size:
                    break
                if not is_valid(view, position, length):
                    break
                delta = 0
                max_timestamp = legacy_timestamp(view, position, magic)
                leader_epoch = producer_id = -1
            elif length < HEADER_SIZE - LENGTH_OVERHEAD or end > size or delta < 0:
                break
            last_offset = base_offset + delta
            if base_offset < next_offset or last_offset > last_possible:
                break
            if (
                magic == 2
                and last_offset >= recovery_point
                and crc32c(view[position + ATTRIBUTES_POSITION : end]) != crc
            ):
                break
            if position > due_above or max_timestamp > newest:
                builder.add(position, last_offset, max_timestamp)
                due_above, newest = builder.due_above, builder.max_timestamp
            if leader_epoch > epoch:
                epoch = leader_epoch
                epochs.append((epoch, base_offset))
            if producer_id >= 0:
                if attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
                    has_transactions = True
                positions = last_positions.get(producer_id)
                if positions is None:
                    positions = last_positions[producer_id] = deque(maxlen=BATCHES_KEPT)
                positions.append(position)
            next_offset = last_offset + 1
            position = end
        ends_in_zeros = _is_zero(view, position, size)
        last_batches = None
        if not has_transactions:
            last_batches = {
                producer_id: [read_header(view, start) for start in positions]
                for producer_id, positions in last_positions.items()
            }
    builder.finish()
    return Recovered(position, next_offset, epochs, ends_in_zeros, last_batches)


def _short_header(view: memoryview, position: int, size: int) -> tuple[int, ...]:
    """Header fields at the end of a file with fewer bytes than a header of magic 2: it may be an old message."""
    return RECOVERED.unpack(bytes(view[position:size]).ljust(HEADER_SIZE, b"\0"))


def _is_zero(view: memoryview, start: int, end: int) -> bool:
    """True if the range has only zeros. Examined in pieces: other bytes are usually found near the beginning."""
    for position in range(start, end, _ZEROS_STEP):
        piece = bytes(view[position : min(position + _ZEROS_STEP, end)])
        if piece.count(0) != len(piece):
            return False
    return True


def replay_producers(
    state: ProducerState,
    segment: Segment,
    end_offset: int,
    *,
    is_recovered: bool,
    last_batches: LastBatches | None,
) -> None:
    """Updates producer state by the batches of one segment from its end offset to `end_offset` (P-57, P-58).

    The index of aborted transactions of a recovered segment is rebuilt. `last_batches`, if recovery has found them,
    save a second scan of the segment.
    """
    segment.load_indexes()
    if is_recovered and len(segment.aborted):
        segment.aborted.reset()
        segment.aborted.write()
    if last_batches is not None:
        _replay_last_batches(state, last_batches)
        return
    if segment.base_offset >= end_offset or segment.size == 0:
        return
    found = segment.locate(state.end_offset)
    if found is None:
        return
    unpack = HEADER.unpack_from
    position, size = found.position, segment.size
    with segment.filesystem.view(segment.file.descriptor(), size) as view:
        while position + HEADER_SIZE <= size:
            fields = unpack(view, position)
            base_offset, length, _, magic, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = (
                fields
            )
            if base_offset >= end_offset:
                break
            has_producer = magic == 2 and producer_id >= 0 and base_offset >= state.end_offset
            if has_producer and attributes & CONTROL_FLAG:
                batch = segment.read_batch(position, length + LENGTH_OVERHEAD)
                try:
                    completed = record_marker(state, batch, base_offset)
                except RecordError as error:
                    raise CorruptSegment(segment.file.path, position, str(error)) from error
                if completed is not None and completed.is_aborted and is_recovered:
                    add_aborted(segment, state, completed)
            elif has_producer:
                is_transactional = attributes & TRANSACTIONAL_FLAG != 0
                state.record_batch(producer_id, epoch, sequence, base_offset, delta, max_timestamp, is_transactional)
            if magic == 2:
                state.end_offset = base_offset + delta + 1
            if length < LEGACY_LENGTH_MIN:
                raise CorruptSegment(segment.file.path, position, f"a record batch has the impossible length {length}")
            position += LENGTH_OVERHEAD + length


def _replay_last_batches(state: ProducerState, last_batches: LastBatches) -> None:
    """Updates producer state by the last batches of each producer, none of them in a transaction."""
    for producer_id, headers in last_batches.items():
        for header in headers:
            if header.base_offset >= state.end_offset:
                state.record_batch(
                    producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.base_offset,
                    header.last_offset_delta,
                    header.max_timestamp,
                    False,
                )


Marker = tuple[ControlRecordType, int]
"""ABORT or COMMIT, and the coordinator epoch."""


def marker_of(batch: RecordBatch) -> Marker | None:
    """The transaction marker in a control batch; None for other or emptied ones."""
    for record in batch.records():
        kind = control_record_type(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return kind, end_transaction_coordinator_epoch(record.value)
    return None


def record_marker(
    state: ProducerState, batch: RecordBatch, offset: int, marker: Marker | None = None
) -> CompletedTransaction | None:
    """Updates producer state by a control batch at this offset in the log; `marker` is that of the batch, if known."""
    if marker is None:
        marker = marker_of(batch)
    if marker is None:
        return None
    kind, coordinator_epoch = marker
    return state.record_marker(
        batch.producer_id,
        batch.producer_epoch,
        coordinator_epoch,
        offset,
        batch.max_timestamp,
        kind == ControlRecordType.ABORT,
    )


def add_aborted(segment: Segment, state: ProducerState, completed: CompletedTransaction) -> None:
    """Adds an aborted transaction to the segment's index."""
    stable = state.last_stable_offset_after(completed)
    segment.aborted.add(
        AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
    )
