"""Hops over record batches by their headers: the loops that run once per batch.

Kept small and fully typed so that mypyc can compile it. Knows the layout of batch headers (protocol.md 1.3), checks
CRCs, and decodes no records.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

from pykbroker.protocol.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

# base offset, length after this field, leader epoch, magic, CRC, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count
HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
# What comes before the length counts: base offset and the length itself.
PREFIX_SIZE: Final = 12
CRC_START: Final = 21
# The first fields of every magic: base offset, length, (epoch or CRC), magic, then for magic 2 CRC, attributes and
# last offset delta, for older ones attributes, timestamp and sizes that are not looked at.
_HOP: Final = Struct(">qiibihi")
HOP_SIZE: Final = 27
# Magic 0 without key and value: the shortest thing a log can hold.
MINIMUM_SIZE: Final = 26
_TIMESTAMP_1: Final = Struct(">q")
_TIMESTAMPS_2: Final = Struct(">qq")

TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


class BatchHeader(NamedTuple):
    """The fixed fields of a batch of magic 2, as they are in the buffer."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Located(NamedTuple):
    """A batch in a file: where it is and what offsets it covers."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def read_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header of the batch of magic 2 at `position`, which must have 61 bytes."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def find_last_at_least(chunk: bytes, chunk_position: int, offset: int) -> tuple[Located | None, int]:
    """The first batch in `chunk` whose last offset is `offset` or more.

    `chunk` holds file bytes from `chunk_position`, where a batch begins. Returns (batch or None, file position from
    which to go on when there is none: the first batch whose header the chunk does not hold whole). A length that no
    batch can have ends the search at its position as well; the caller sees no progress.
    """
    position = 0
    limit = len(chunk) - HOP_SIZE
    while position <= limit:
        base_offset, length, _, magic, _, _, last_offset_delta = _HOP.unpack_from(chunk, position)
        if length < MINIMUM_SIZE - PREFIX_SIZE:
            break
        last_offset = base_offset + last_offset_delta if magic >= 2 else base_offset
        if last_offset >= offset:
            return Located(chunk_position + position, length + PREFIX_SIZE, base_offset, last_offset), -1
        position += length + PREFIX_SIZE
    return None, chunk_position + position


def last_offset_at(chunk: bytes, position: int) -> int:
    """Last offset of the batch whose header is at `position`, -1 when there is no whole header."""
    if len(chunk) - position < HOP_SIZE:
        return -1
    base_offset, _, _, magic, _, _, last_offset_delta = _HOP.unpack_from(chunk, position)
    return int(base_offset + last_offset_delta if magic >= 2 else base_offset)


def is_valid(view: memoryview, position: int, length: int, magic: int) -> bool:
    """Whether the batch at `position` with this length field has the CRC that its header says."""
    end = position + PREFIX_SIZE + length
    if magic >= 2:
        if length < HEADER_SIZE - PREFIX_SIZE:
            return False
        crc = int.from_bytes(view[position + 17 : position + CRC_START], "big")
        return int(crc32c(view[position + CRC_START : end])) == crc
    crc = int.from_bytes(view[position + PREFIX_SIZE : position + 16], "big")
    return zlib.crc32(view[position + 16 : end]) == crc


def max_timestamp_of(view: Buffer, position: int, magic: int) -> int:
    """Largest timestamp of the batch at `position`: -1 for magic 0, which has none."""
    if magic >= 2:
        return int(_TIMESTAMPS_2.unpack_from(view, position + 27)[1])
    if magic == 1:
        return int(_TIMESTAMP_1.unpack_from(view, position + 18)[0])
    return -1
