"""Keys of a batch, and the part of a batch that a compaction keeps. The loops over records are in `record_scan.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.errors import InvalidRecord
from pykbroker.protocol.records.record_scan import kept_records, note_keys

if TYPE_CHECKING:
    from pykbroker.protocol.records.batch import RecordBatch

RECORDS_PER_CALL: Final = 1000
"""Records of one call of the compiled module, which does not let other threads run. About 0.2 ms."""


class KeptRecords(NamedTuple):
    """The records of a batch that stay.

    Attributes:
        record_count: number of records.
        data: their bytes, as they are in the batch, decompressed.
        first_delta: timestamp delta of the first one, in milliseconds.
        largest_delta: largest timestamp delta.
        tombstones: number of those without a value.
        are_plain: none of them has headers or attributes.
    """

    record_count: int
    data: bytes
    first_delta: int
    largest_delta: int
    tombstones: int
    are_plain: bool


def add_latest_offsets(batch: RecordBatch, first_offset: int, latest: dict[bytes, int]) -> int:
    """Sets `latest` to the last offset of each key of a batch of format v2; returns the bytes of keys that are new.

    Records below `first_offset` and those without a key are passed over. Raises a RecordError for unreadable records.
    """
    data = batch.record_bytes()
    left, base_offset = batch.record_count, batch.base_offset
    position = new_bytes = 0
    while left > 0:
        count = min(left, RECORDS_PER_CALL)
        fault, position, size = note_keys(data, position, count, base_offset, first_offset, latest)
        if fault:
            raise _invalid(batch)
        new_bytes += size
        left -= count
    if position != len(data):
        raise _invalid(batch)
    return new_bytes


def records_to_keep(
    batch: RecordBatch, end_offset: int, keeps_tombstones: bool, latest: dict[bytes, int]
) -> KeptRecords:
    """The records of a batch of format v2 that stay (P-161, P-162), by the rule of `record_scan.kept_records`.

    Raises a RecordError for unreadable records.
    """
    data = batch.record_bytes()
    left, base_offset = batch.record_count, batch.base_offset
    kept: list[bytes] = []
    position = kept_count = first_delta = largest_delta = tombstones = 0
    are_plain = True
    while left > 0:
        count = min(left, RECORDS_PER_CALL)
        fault, position, found, first, largest, nulls, is_plain = kept_records(
            data, position, count, base_offset, end_offset, keeps_tombstones, latest, kept
        )
        if fault:
            raise _invalid(batch)
        if found:
            first_delta, largest_delta = (first_delta, max(largest_delta, largest)) if kept_count else (first, largest)
            kept_count += found
            tombstones += nulls
            are_plain = are_plain and is_plain
        left -= count
    if position != len(data):
        raise _invalid(batch)
    return KeptRecords(kept_count, b"".join(kept), first_delta, largest_delta, tombstones, are_plain)


def _invalid(batch: RecordBatch) -> InvalidRecord:
    """The error of a batch with unreadable records; its text names the record and the fault."""
    try:
        for _ in batch.records():
            pass
    except InvalidRecord as error:
        return error
    return InvalidRecord(f"The records of the batch at offset {batch.base_offset} cannot be read")
