"""Single records of format v2: for replay of internal topics, control batches and tools.

Fetch does not use this module. Produce does so only for batches with a record that may be refused, or that are encoded
again, and compaction only for batches that it encodes again; all other batches are only scanned, by `record_scan.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.errors import InvalidRecord

Headers = Sequence[tuple[str, bytes | None]]
"""(name, value) pairs in order; names may repeat, a value may be None."""


class Record(NamedTuple):
    """One record.

    Attributes:
        offset: its offset in the log; `batch.build_batch` uses it only with `keep_offsets`.
        timestamp: milliseconds since 1970, -1 for none. In a LogAppendTime batch the time of the append.
        key: None for no key.
        value: None is a tombstone on compacted topics.
        headers: (name, value) pairs in order; names may repeat, a value may be None.
    """

    offset: int = 0
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def encode_varint(value: int) -> bytes:
    """A signed integer of up to 64 bits as a zig-zag varint of 1 to 10 bytes."""
    if 0 <= value < 8192:
        return _SMALL_VARINTS[value] if value < 64 else bytes((value << 1 & 0x7F | 0x80, value >> 6))
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL_NUMBERS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
_SMALL_VARINTS = [bytes((value << 1,)) for value in range(64)]
_INT64_END = 2**63
_new_tuple = tuple.__new__  # a NamedTuple's own constructor takes three times as long
_NULL = b"\x01"


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> bytes:
    """The bytes of one record, its length in front."""
    if not headers:
        body = b"".join(
            (
                b"\x00",
                encode_varint(timestamp_delta),
                encode_varint(offset_delta),
                _NULL if key is None else encode_varint(len(key)) + key,
                _NULL if value is None else encode_varint(len(value)) + value,
                b"\x00",
            )
        )
        return encode_varint(len(body)) + body
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(_NULL)
        else:
            parts.append(encode_varint(len(field)))
            parts.append(field)
    parts.append(encode_varint(len(headers)))
    for name, header_value in headers:
        name_bytes = name.encode()
        parts.append(encode_varint(len(name_bytes)))
        parts.append(name_bytes)
        if header_value is None:
            parts.append(_NULL)
        else:
            parts.append(encode_varint(len(header_value)))
            parts.append(header_value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def decode_records(
    data: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None = None,
) -> Iterator[Record]:
    """The records in `data`, the decompressed part of a batch behind its header.

    `log_append_time`, where given, is every record's timestamp. Header names that are not UTF-8 are read with
    replacement characters, as Java does. Raises InvalidRecord where the bytes are not `record_count` whole records.
    """
    # Varints of one byte are read in line: a call for each would double the time of a replay or a compaction.
    small = _SMALL_NUMBERS
    end_of_data = len(data)
    position = 0
    for index in range(record_count):
        try:
            size, position = _read_varint(data, position)
            end = position + size
            if size < 0 or end > end_of_data:
                raise InvalidRecord(f"Record {index} of the batch: its size {size} does not fit the batch")
            byte = data[position + 1]
            if byte < 0x80:
                timestamp, position = base_timestamp + small[byte], position + 2
            else:
                delta, position = _read_varint(data, position + 1, 64)
                timestamp = base_timestamp + delta
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = small[byte], position + 1
            else:
                offset_delta, position = _read_varint(data, position)
            key = value = None
            byte = data[position]
            if byte < 0x80:
                size, position = small[byte], position + 1
            else:
                size, position = _read_varint(data, position)
            if size >= 0:
                key = data[position : position + size]
                position += size
            size, position = _read_varint(data, position)
            if size >= 0:
                value = data[position : position + size]
                position += size
            headers: Headers = ()
            if data[position]:
                headers, position = _read_headers(data, position, end)
            else:
                position += 1
        except IndexError:
            raise InvalidRecord(f"Record {index} of the batch ends early") from None
        if position != end:
            raise InvalidRecord(f"Record {index} of the batch: its fields end {position - end:+d} bytes from its end")
        if log_append_time is not None:
            timestamp = log_append_time
        elif not -_INT64_END <= timestamp < _INT64_END:
            timestamp = (timestamp + _INT64_END) % (2 * _INT64_END) - _INT64_END  # Java's long overflows silently
        yield _new_tuple(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    if position != end_of_data:
        raise InvalidRecord(f"{end_of_data - position} bytes follow the last record of the batch")


def _read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """(value, position behind it). Bits beyond `bits` are cut off, as Java's shifts do. IndexError at the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise InvalidRecord("A varint in a record is too long")
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), position + 1


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise IndexError
    return data[position:end], end


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """(headers, position behind them); `position` is that of their count, `end` that of the record's end."""
    header_count, position = _read_varint(data, position)
    # Each header takes at least two bytes: a false count must not become a long loop.
    if header_count < 0 or header_count > end - position:
        raise InvalidRecord(f"A record has an invalid number of headers: {header_count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise InvalidRecord("A record has a header without a name")
        value, position = _read_bytes(data, position)
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
