"""The loops that run once per record: the check of a produced batch, and the two passes of a compaction.

They are kept apart, fully typed and free of classes: `setup.py` compiles this module with mypyc where a C compiler is
at hand, and the same source runs interpreted otherwise.

* `scan_records`: is the inner structure of the records right, and what lies in them.
* `note_keys`: the last offset of each key.
* `kept_records`: the bytes of the records that a compaction keeps.

Beware when editing: a compiled module that lies beside this file wins over it. Raise `SCAN_REVISION` with every
change; `tests/protocol/records/test_record_scan.py` then fails until the module is compiled anew (`pip install -e .`)
or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # For mypyc a machine integer (three times as fast as its int); never imported at run time.
    from mypy_extensions import i64

SCAN_REVISION: Final = 2
"""Raised with every change of this file: a compiled module carries the number of the source it was made from."""

WHOLE: Final = 0
SIZE_DOES_NOT_FIT: Final = 1
ENDS_EARLY: Final = 2
VARINT_TOO_LONG: Final = 3
INVALID_HEADER_COUNT: Final = 4
HEADER_WITHOUT_NAME: Final = 5
FIELDS_DO_NOT_FILL: Final = 6
BYTES_LEFT: Final = 7


def scan_records(data: bytes, position: i64, record_count: i64) -> tuple[i64, i64, i64, i64, i64, bool]:
    """Walks `record_count` records of format v2 in `data` from `position` to its end.

    Returns (fault, index, timestamp_delta_min, timestamp_delta_max, null_key_count, offsets_are_consecutive). `fault`
    is `WHOLE` or what is wrong with record `index`; the rest means something only for `WHOLE`. Offsets are consecutive
    when the deltas are 0, 1, 2 and so on. Without records the timestamp deltas are 0. Never raises for any bytes.

    The checks are those of Kafka's DefaultRecord: each size in the bounds of the batch, varints of at most 5 bytes (10
    for the timestamp), header names not null, the fields of a record filling exactly its size, nothing behind the last.
    Any negative length of a key or value is null. The attributes byte of a record has no meaning and is not looked at.
    """
    # Long and repetitive on purpose: a call or a tuple per varint would double its time. Numbers are zig-zag: odd ones
    # are negative, and a length is half the number. One and two bytes, which is nearly all varints, are read in line.
    index: i64 = 0
    number: i64 = 0
    byte: i64 = 0
    end: i64 = 0
    fault: i64 = 0
    delta: i64 = 0
    delta_min: i64 = 0
    delta_max: i64 = 0
    null_key_count: i64 = 0
    offset_expected: i64 = 0
    consecutive = True
    end_of_data: i64 = len(data)
    try:
        while index < record_count:
            # the size of what follows
            number = data[position]
            if number < 128:
                position += 1
            else:
                byte = data[position + 1]
                if byte < 128:
                    number += (byte << 7) - 128
                    position += 2
                else:
                    number, position = _read_varint(data, position)
            end = position + (number >> 1)
            if number & 1 or end > end_of_data:
                return (VARINT_TOO_LONG if position < 0 else SIZE_DOES_NOT_FIT), index, 0, 0, 0, False

            # the attributes, and the timestamp delta
            number = data[position + 1]
            if number < 128:
                position += 2
                delta = (number >> 1) ^ -(number & 1)
            else:
                byte = data[position + 2]
                if byte < 128:
                    number += (byte << 7) - 128
                    position += 3
                    delta = (number >> 1) ^ -(number & 1)
                else:
                    delta, position = _read_varlong(data, position + 1)
                    if position < 0:
                        return VARINT_TOO_LONG, index, 0, 0, 0, False
            if delta != delta_max:
                if index == 0:
                    delta_min = delta
                    delta_max = delta
                elif delta > delta_max:
                    delta_max = delta
                elif delta < delta_min:
                    delta_min = delta

            # the offset delta
            number = data[position]
            if number < 128:
                position += 1
            else:
                byte = data[position + 1]
                if byte < 128:
                    number += (byte << 7) - 128
                    position += 2
                else:
                    number, position = _read_varint(data, position)
                    if position < 0:
                        return VARINT_TOO_LONG, index, 0, 0, 0, False
            if number != offset_expected:
                consecutive = False
            offset_expected += 2

            # the key
            number = data[position]
            if number < 128:
                position += 1
            else:
                byte = data[position + 1]
                if byte < 128:
                    number += (byte << 7) - 128
                    position += 2
                else:
                    number, position = _read_varint(data, position)
                    if position < 0:
                        return VARINT_TOO_LONG, index, 0, 0, 0, False
            if number & 1:
                null_key_count += 1
            else:
                position += number >> 1

            # the value
            number = data[position]
            if number < 128:
                position += 1
            else:
                byte = data[position + 1]
                if byte < 128:
                    number += (byte << 7) - 128
                    position += 2
                else:
                    number, position = _read_varint(data, position)
                    if position < 0:
                        return VARINT_TOO_LONG, index, 0, 0, 0, False
            if not number & 1:
                position += number >> 1

            # the headers
            if data[position]:
                fault, position = _skip_headers(data, position, end)
                if fault:
                    return fault, index, 0, 0, 0, False
            else:
                position += 1
            if position != end:
                return FIELDS_DO_NOT_FILL, index, 0, 0, 0, False
            index += 1
    except IndexError:
        return ENDS_EARLY, index, 0, 0, 0, False
    if position != end_of_data:
        return BYTES_LEFT, index, 0, 0, 0, False
    return WHOLE, index, delta_min, delta_max, null_key_count, consecutive


def note_keys(
    data: bytes, position: i64, record_count: i64, base_offset: i64, first_offset: i64, latest: dict[bytes, int]
) -> tuple[i64, i64, i64]:
    """Sets `latest` to the offset of each key of `record_count` records of format v2 in `data` from `position` on.

    Records below `first_offset` and those without a key are passed over. Returns (fault, position behind the records,
    bytes of the keys that were new). After a `fault` other than `WHOLE` only some keys have been noted.
    """
    index: i64 = 0
    new_bytes: i64 = 0
    known: i64 = len(latest)
    fault: i64 = 0
    try:
        while index < record_count:
            fault, end, _delta, offset_delta, key_start, key_end, _is_null, _is_plain = _read_record(data, position)
            if fault:
                return fault, position, 0
            offset: i64 = base_offset + offset_delta
            if key_start >= 0 and offset >= first_offset:
                latest[data[key_start:key_end]] = offset
                if len(latest) != known:
                    known = len(latest)
                    new_bytes += key_end - key_start
            position = end
            index += 1
    except IndexError:
        return ENDS_EARLY, position, 0
    return WHOLE, position, new_bytes


def kept_records(
    data: bytes,
    position: i64,
    record_count: i64,
    base_offset: i64,
    end_offset: i64,
    keeps_tombstones: bool,
    latest: dict[bytes, int],
    kept: list[bytes],
) -> tuple[i64, i64, i64, i64, i64, i64, bool]:
    """Appends to `kept` the bytes of those of `record_count` records in `data` from `position` on that stay (P-161).

    A record stays from `end_offset` on; below it, if it has a key of which `latest` has no later offset, and a value
    or `keeps_tombstones`. Neighbours are appended as one piece. Returns (fault, position behind the records, number of
    kept records, timestamp delta of the first of them, their largest one, number of tombstones among them, True if none
    of them has headers or attributes). The rest means something only where `fault` is `WHOLE`.
    """
    index: i64 = 0
    fault: i64 = 0
    count: i64 = 0
    first_delta: i64 = 0
    largest_delta: i64 = 0
    tombstones: i64 = 0
    are_plain = True
    run_start: i64 = -1
    later: i64 = 0
    try:
        while index < record_count:
            fault, end, delta, offset_delta, key_start, key_end, is_tombstone, is_plain = _read_record(data, position)
            if fault:
                return fault, position, 0, 0, 0, 0, False
            offset: i64 = base_offset + offset_delta
            stays = offset >= end_offset
            if not stays and key_start >= 0 and (keeps_tombstones or not is_tombstone):
                later = latest.get(data[key_start:key_end], -1)
                stays = later <= offset
            if stays:
                if run_start < 0:
                    run_start = position
                if count == 0:
                    first_delta = delta
                    largest_delta = delta
                elif delta > largest_delta:
                    largest_delta = delta
                count += 1
                if is_tombstone:
                    tombstones += 1
                if not is_plain:
                    are_plain = False
            elif run_start >= 0:
                kept.append(data[run_start:position])
                run_start = -1
            position = end
            index += 1
    except IndexError:
        return ENDS_EARLY, position, 0, 0, 0, 0, False
    if run_start >= 0:
        kept.append(data[run_start:position])
    return WHOLE, position, count, first_delta, largest_delta, tombstones, are_plain


def _read_record(data: bytes, position: i64) -> tuple[i64, i64, i64, i64, i64, i64, bool, bool]:
    """One record of format v2 at `position`.

    Returns (fault, position behind it, timestamp delta, offset delta, position of the key or -1, its end, True if the
    value is null, True if it has neither headers nor attributes). Raises IndexError where the bytes end early. The
    checks are those of `scan_records`.
    """
    number: i64 = 0
    number, position = _read_varint(data, position)
    end: i64 = position + (number >> 1)
    if position < 0:
        return VARINT_TOO_LONG, 0, 0, 0, 0, 0, False, False
    if number & 1 or end > len(data):
        return SIZE_DOES_NOT_FIT, 0, 0, 0, 0, 0, False, False
    is_plain = data[position] == 0
    timestamp_delta, position = _read_varlong(data, position + 1)
    if position < 0:
        return VARINT_TOO_LONG, 0, 0, 0, 0, 0, False, False
    number, position = _read_varint(data, position)
    if position < 0:
        return VARINT_TOO_LONG, 0, 0, 0, 0, 0, False, False
    offset_delta: i64 = (number >> 1) ^ -(number & 1)
    number, position = _read_varint(data, position)
    if position < 0:
        return VARINT_TOO_LONG, 0, 0, 0, 0, 0, False, False
    key_start: i64 = -1
    key_end: i64 = -1
    if not number & 1:
        key_start = position
        position += number >> 1
        key_end = position
    number, position = _read_varint(data, position)
    if position < 0:
        return VARINT_TOO_LONG, 0, 0, 0, 0, 0, False, False
    is_tombstone = number & 1 == 1
    if not is_tombstone:
        position += number >> 1
    if data[position]:
        is_plain = False
        fault, position = _skip_headers(data, position, end)
        if fault:
            return fault, 0, 0, 0, 0, 0, False, False
    else:
        position += 1
    if position != end:
        return FIELDS_DO_NOT_FILL, 0, 0, 0, 0, 0, False, False
    return WHOLE, end, timestamp_delta, offset_delta, key_start, key_end, is_tombstone, is_plain


def _read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """(zig-zag number of 32 bits, position behind it); (1, -1) when it has more than five bytes.

    Bits beyond 32 are cut off, as Java's shifts do.
    """
    number: i64 = 0
    shift: i64 = 0
    while shift < 35:
        byte: i64 = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 128:
            return number & 0xFFFFFFFF, position
        shift += 7
    return 1, -1


def _read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """(signed number of 64 bits, position behind it); position -1 when it has more than ten bytes.

    Bits beyond 64 are cut off, as Java's shifts do. The number is gathered without its lowest, the sign bit, so that
    it never leaves 63 bits.
    """
    byte: i64 = data[position]
    position += 1
    sign: i64 = -(byte & 1)
    half: i64 = (byte & 0x7F) >> 1
    shift: i64 = 6
    while byte >= 128:
        if shift > 62:
            return 0, -1
        byte = data[position]
        position += 1
        if shift == 62:
            half |= (byte & 1) << 62
        else:
            half |= (byte & 0x7F) << shift
        shift += 7
    return half ^ sign, position


def _skip_headers(data: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """(fault, position behind the headers); `position` is that of the header count, `end` that of the record's end."""
    number: i64 = 0
    number, position = _read_varint(data, position)
    if position < 0:
        return VARINT_TOO_LONG, position
    header_count: i64 = number >> 1
    # A header has at least two bytes: a lying count must not become a long loop.
    if number & 1 or header_count > end - position:
        return INVALID_HEADER_COUNT, position
    while header_count > 0:
        number, position = _read_varint(data, position)
        if position < 0:
            return VARINT_TOO_LONG, position
        if number & 1:
            return HEADER_WITHOUT_NAME, position
        number, position = _read_varint(data, position + (number >> 1))
        if position < 0:
            return VARINT_TOO_LONG, position
        if not number & 1:
            position += number >> 1
        header_count -= 1
    return WHOLE, position
