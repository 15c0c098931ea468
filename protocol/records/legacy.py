"""Messages of the formats 0 and 1, which Kafka wrote before 0.11, as they lie in an old log.

They are not written any more: a log that an old broker has left is fetched as it is, searched by time and compacted. A
message begins with its offset and length, as a batch does; `layout` has the bytes. A compressed message has a message
set as its value, and the offset of the last message in it; in format 1 the offsets in the set count from 0.

    CRC-32, u32 · magic, i8 · attributes, i8 · timestamp, i64, of format 1 · key · value, each with its length, i32
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Final

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
)
from pykbroker.protocol.records.compression import LIMIT_BYTES, NONE, ZSTD, decompress
from pykbroker.protocol.records.errors import CorruptRecord, InvalidRecord
from pykbroker.protocol.records.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    LEGACY_ATTRIBUTES_POSITION,
    LEGACY_LENGTH_MIN,
    LEGACY_SIZE_MIN,
    LEGACY_TIMESTAMP_POSITION,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LENGTH_TO_MAGIC,
    LOG_APPEND_TIME_FLAG,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    legacy_timestamp,
    read_header,
)
from pykbroker.protocol.records.record import Record

_START: Final = Struct(">qi")
_INT32: Final = Struct(">i")
_NO_LEADER_EPOCH: Final = -1


class _Message(NamedTuple):
    """One message; a compressed one has others in its value."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def as_batch_header(buffer: Buffer, position: int, header: BatchHeader) -> BatchHeader:
    """The header of an old message, of what `read_header` has read there, with its values in place of a batch's."""
    timestamp = legacy_timestamp(buffer, position, header.magic)
    return BatchHeader(
        base_offset=header.base_offset,
        length=header.length,
        leader_epoch=_NO_LEADER_EPOCH,
        magic=header.magic,
        crc=header.leader_epoch,
        attributes=buffer[position + LEGACY_ATTRIBUTES_POSITION] & (CODEC_MASK | LOG_APPEND_TIME_FLAG),
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=-1,
    )


def stored_headers(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches and old messages in `buffer`, as `iter_headers` has those of batches.

    Raises:
        CorruptRecord: bytes that are neither.
    """
    found = []
    position, end = 0, len(buffer)
    while end - position >= LEGACY_SIZE_MIN:
        length, _, magic = LENGTH_TO_MAGIC.unpack_from(buffer, position + LENGTH_POSITION)
        size = LENGTH_OVERHEAD + length
        if size < (HEADER_SIZE if magic == 2 else LEGACY_SIZE_MIN) or not 0 <= magic <= 2:
            raise CorruptRecord(f"{size} bytes of format {magic} at byte {position} are no record batch")
        if position + size > end:
            break
        header = read_header(bytes(buffer[position : position + HEADER_SIZE]).ljust(HEADER_SIZE, b"\0"))
        found.append((position, header if magic == 2 else as_batch_header(buffer, position, header)))
        position += size
    return found


class LegacyBatch(RecordBatch):
    """An old message in the place of a batch; all of its records have the offset in its header or smaller ones."""

    __slots__ = ()

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Raises CorruptRecord when not even the shortest message fits behind `position`."""
        if len(buffer) - position < LEGACY_SIZE_MIN:
            raise CorruptRecord(f"{len(buffer) - position} bytes are less than a message of an old format")
        self.buffer = buffer
        self.position = position

    is_transactional = is_control = has_delete_horizon = False
    partition_leader_epoch = _NO_LEADER_EPOCH
    last_offset_delta = 0
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE

    @property
    def attributes(self) -> int:
        return self.buffer[self.position + LEGACY_ATTRIBUTES_POSITION] & (CODEC_MASK | LOG_APPEND_TIME_FLAG)

    @property
    def compression_codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset

    @property
    def next_offset(self) -> int:
        return self.base_offset + 1

    @property
    def max_timestamp(self) -> int:
        return legacy_timestamp(self.buffer, self.position, self.magic)

    @property
    def base_timestamp(self) -> int:
        return self.max_timestamp

    @property
    def record_count(self) -> int:
        """Number of its records; those of a compressed message are counted by decompressing it."""
        return 1 if self.compression_codec == NONE else len(list(self.records()))

    def records(self, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
        message = _message(self.buffer, self.position)
        if message.attributes & CODEC_MASK == NONE:
            return iter((Record(message.offset, message.timestamp, message.key, message.value),))
        return iter(_inner_records(message, limit_bytes))


def _message(buffer: Buffer, position: int) -> _Message:
    """The whole message at `position`. Raises CorruptRecord where its lengths do not fit."""
    try:
        offset, length = _START.unpack_from(buffer, position)
        end = position + LENGTH_OVERHEAD + length
        magic = buffer[position + MAGIC_POSITION]
        if length < LEGACY_LENGTH_MIN or end > len(buffer) or magic > 1:
            raise CorruptRecord(f"a message of length {length} and format {magic}")
        attributes = buffer[position + LEGACY_ATTRIBUTES_POSITION]
        timestamp = legacy_timestamp(buffer, position, magic)
        key, position = _field(buffer, position + LEGACY_TIMESTAMP_POSITION + (8 if magic == 1 else 0), end)
        value, _ = _field(buffer, position, end)
    except error as cause:
        raise CorruptRecord(f"a message of an old format is cut off: {cause}") from None
    return _Message(offset, magic, attributes, timestamp, key, value)


def _field(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    """A key or value with its length, and the position behind it."""
    (length,) = _INT32.unpack_from(buffer, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptRecord(f"a field of {length} bytes in a message that has {end - position}")
    return bytes(buffer[position : position + length]), position + length


def _inner_records(wrapper: _Message, limit_bytes: int) -> list[Record]:
    """The records in a compressed message. Raises a RecordError where they cannot be read."""
    codec = wrapper.attributes & CODEC_MASK
    if wrapper.value is None or codec >= ZSTD:
        raise InvalidRecord(f"a compressed message of format {wrapper.magic} with codec {codec}, or without a value")
    data = decompress(codec, wrapper.value, limit_bytes)
    messages = []
    position = 0
    while position + LENGTH_OVERHEAD <= len(data):
        size = LENGTH_OVERHEAD + _START.unpack_from(data, position)[1]
        if size >= LEGACY_SIZE_MIN and position + size > len(data):
            break
        messages.append(_message(data, position))
        position += size
    if not messages or any(message.attributes & CODEC_MASK for message in messages):
        raise InvalidRecord("a compressed message without messages, or with compressed ones")
    first = 0
    if wrapper.magic == 1 and wrapper.offset:
        # The offset 0 came from producers that did not set it.
        first = wrapper.offset - messages[-1].offset
        if first < 0:
            raise InvalidRecord(f"the offset {wrapper.offset} of a compressed message is below those of its messages")
    appended_at = wrapper.timestamp if wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME_FLAG else None
    return [
        Record(
            first + message.offset,
            message.timestamp if appended_at is None or message.magic == 0 else appended_at,
            message.key,
            message.value,
        )
        for message in messages
    ]
