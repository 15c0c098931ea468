"""After a stop that was not clean: find where valid batches end, and make anew what can be made from them (P-171).

Batches below the recovery point were made durable and are only hopped over; the others are checked by CRC on a
mapping, without a copy. A segment's indexes are always rebuilt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.batch_scan import (
    CONTROL,
    HEADER_SIZE,
    HOP_SIZE,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    is_valid,
    max_timestamp_of,
    read_header,
)
from pykbroker.logstore.offset_index import MAX_RELATIVE_OFFSET
from pykbroker.logstore.producer_state import CompletedTransaction, ProducerState
from pykbroker.logstore.segment import IndexBuilder, Segment
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.control import (
    ControlRecordType,
    control_record_type,
    end_transaction_coordinator_epoch,
)

_ZEROS_STEP: Final = 1 << 16


class Recovered(NamedTuple):
    """What a scan of one segment found: where the valid batches end, as position and as offset, and its epochs.

    `ends_in_zeros`: nothing but zeros follows, as in space that was allocated and not written.
    """

    size: int
    next_offset: int
    epochs: list[tuple[int, int]]
    ends_in_zeros: bool


def recover_segment(segment: Segment, size: int, recovery_point: int, index_interval_bytes: int) -> Recovered:
    """Scan a segment of `size` bytes, rebuild its indexes, and say where the first invalid batch begins.

    The file itself is not cut here. `epochs` are (leader epoch, first offset) in order of appearance.
    """
    builder = IndexBuilder(segment, index_interval_bytes)
    next_offset = segment.base_offset
    last_possible = segment.base_offset + MAX_RELATIVE_OFFSET
    epoch = -1
    epochs: list[tuple[int, int]] = []
    position = 0
    with segment.filesystem.view(segment.file.descriptor(), size) as view:
        while position + HOP_SIZE <= size:
            header = _header_at(view, position, size)
            if header is None:
                break
            is_old = header.magic < 2
            last_offset = header.base_offset if is_old else header.base_offset + header.last_offset_delta
            if not next_offset <= last_offset <= last_possible or (not is_old and header.base_offset < next_offset):
                break
            if last_offset >= recovery_point and not is_valid(view, position, header.length, header.magic):
                break
            batch_size = header.length + PREFIX_SIZE
            builder.add(position, batch_size, last_offset, max_timestamp_of(view, position, header.magic))
            if not is_old and header.leader_epoch > epoch:
                epoch = header.leader_epoch
                epochs.append((epoch, header.base_offset))
            next_offset = last_offset + 1
            position += batch_size
        ends_in_zeros = _is_zero(view, position, size)
    builder.finish()
    return Recovered(position, next_offset, epochs, ends_in_zeros)


def _is_zero(view: memoryview, start: int, end: int) -> bool:
    """Whether there are only zeros; looked at in pieces, as damage near the beginning of a large segment has none."""
    for position in range(start, end, _ZEROS_STEP):
        piece = bytes(view[position : min(position + _ZEROS_STEP, end)])
        if piece.count(0) != len(piece):
            return False
    return True


def _header_at(view: memoryview, position: int, size: int) -> BatchHeader | None:
    """The header at `position`, None when there cannot be a whole batch."""
    rest = size - position
    if rest < HEADER_SIZE:
        header = read_header(bytes(view[position:size]).ljust(HEADER_SIZE, b"\0"), 0)
        if header.magic >= 2:
            return None
    else:
        header = read_header(view, position)
    if not 0 <= header.magic <= 2 or not HOP_SIZE - PREFIX_SIZE - 1 <= header.length <= rest - PREFIX_SIZE:
        return None
    if header.magic == 2 and (header.length < HEADER_SIZE - PREFIX_SIZE or header.last_offset_delta < 0):
        return None
    return header


def replay_producers(state: ProducerState, segment: Segment, end_offset: int, *, is_recovered: bool) -> None:
    """Bring producer state on from its end offset by the batches of one segment below `end_offset` (P-57, P-58).

    A segment that was recovered gets its index of aborted transactions made anew.
    """
    segment.load_indexes()
    if is_recovered and len(segment.aborted):
        segment.aborted.reset()
        segment.aborted.write()
    if segment.base_offset >= end_offset or segment.size == 0:
        return
    found = segment.locate(state.end_offset)
    if found is None:
        return
    for position, header in segment.headers(found.position):
        if header.base_offset >= end_offset:
            break
        if header.magic < 2:
            continue
        if header.producer_id >= 0 and header.base_offset >= state.end_offset:
            completed = replay_batch(state, segment, position, header)
            if completed is not None and completed.is_aborted and is_recovered:
                add_aborted(segment, state, completed)
        state.end_offset = header.base_offset + header.last_offset_delta + 1


def replay_batch(
    state: ProducerState, segment: Segment, position: int, header: BatchHeader
) -> CompletedTransaction | None:
    """Reflect one batch of a producer that is in the log already; nothing is checked (P-58)."""
    if header.attributes & CONTROL:
        batch = segment.read_batch(position, header.length + PREFIX_SIZE)
        return record_marker(state, batch, header.base_offset)
    state.record_batch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp,
        header.attributes & TRANSACTIONAL != 0,
    )
    return None


def marker_of(batch: RecordBatch) -> tuple[ControlRecordType, int] | None:
    """(ABORT or COMMIT, coordinator epoch) of a transaction marker; None for other or emptied control batches."""
    for record in batch.records():
        kind = control_record_type(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return kind, end_transaction_coordinator_epoch(record.value)
    return None


def record_marker(state: ProducerState, batch: RecordBatch, offset: int) -> CompletedTransaction | None:
    """Reflect a control batch of a producer that has this offset in the log."""
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
    """Note in the segment's index that a transaction was aborted."""
    stable = state.last_stable_offset_after(completed)
    segment.aborted.add(
        AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
    )
