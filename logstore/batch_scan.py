"""Search over record batches by their headers: the loops that run once per batch.

CRCs are checked, records are not decoded. Old message formats, which a log written by Kafka may contain, are supported.
"""

from __future__ import annotations

import zlib

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.layout import (
    LEGACY_CRC_POSITION,
    LEGACY_LENGTH_MIN,
    LEGACY_MAGIC_POSITION,
    LENGTH_OVERHEAD,
    SCAN_STEP,
    SCAN_STEP_SIZE,
)

Buffer = bytes | bytearray | memoryview


class Located(NamedTuple):
    """Position, size and offsets of a batch in a file."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def first_batch_reaching(chunk: bytes, chunk_position: int, offset: int) -> tuple[Located | None, int]:
    """The first batch in `chunk` whose last offset is `offset` or more.

    `chunk` contains the file's bytes from `chunk_position`, where a batch begins. Returns (batch or None, file position
    at which to continue the search: that of the first batch whose header is not complete in the chunk). An impossible
    batch length ends the search at its position too; the caller then sees no progress.
    """
    position = 0
    limit = len(chunk) - SCAN_STEP_SIZE
    unpack = SCAN_STEP.unpack_from
    while position <= limit:
        base_offset, length, _, magic, _, _, last_offset_delta = unpack(chunk, position)
        if length < LEGACY_LENGTH_MIN:
            break
        last_offset = base_offset + last_offset_delta if magic >= 2 else base_offset
        if last_offset >= offset:
            return Located(chunk_position + position, length + LENGTH_OVERHEAD, base_offset, last_offset), -1
        position += length + LENGTH_OVERHEAD
    return None, chunk_position + position


def batch_at(chunk: bytes, chunk_position: int, place: int) -> Located | None:
    """The batch that has the byte at the file position `place`; None if its header is not in the chunk.

    `chunk` contains the file's bytes from `chunk_position`, where a batch begins, at or before `place`.
    """
    position = 0
    limit = len(chunk) - SCAN_STEP_SIZE
    wanted = place - chunk_position
    unpack = SCAN_STEP.unpack_from
    while position <= limit:
        base_offset, length, _, magic, _, _, last_offset_delta = unpack(chunk, position)
        if length < LEGACY_LENGTH_MIN:
            break
        size = length + LENGTH_OVERHEAD
        if position + size > wanted:
            last_offset = base_offset + last_offset_delta if magic >= 2 else base_offset
            return Located(chunk_position + position, size, base_offset, last_offset)
        position += size
    return None


def last_offset_of_first(chunk: bytes) -> int:
    """Last offset of the first batch, of which `chunk` has at least the header."""
    base_offset, _, _, magic, _, _, last_offset_delta = SCAN_STEP.unpack_from(chunk)
    return int(base_offset + last_offset_delta if magic >= 2 else base_offset)


def is_valid(view: memoryview, position: int, length: int) -> bool:
    """True if the message of an old format at `position`, with this length field, matches the CRC in its header."""
    end = position + LENGTH_OVERHEAD + length
    crc = int.from_bytes(view[position + LEGACY_CRC_POSITION : position + LEGACY_MAGIC_POSITION], "big")
    return zlib.crc32(view[position + LEGACY_MAGIC_POSITION : end]) == crc
