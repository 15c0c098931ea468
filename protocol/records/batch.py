"""A record batch of format v2 as a view over bytes: nothing is copied or decoded until it is asked for.

The header's bytes are in `layout`. Base offset and partition leader epoch lie outside the CRC, so
a leader sets them in place (P-42); everything from the attributes on is covered by it. Only the records behind the
header are compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.compression import CODEC_NAMES, LIMIT_BYTES, NONE, compress, decompress
from pykbroker.protocol.records.errors import CorruptRecord, InvalidRecord, UnsupportedRecordFormat
from pykbroker.protocol.records.layout import (
    ATTRIBUTES_POSITION,
    ATTRIBUTES_TO_COUNT,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    FLAGS_POSITION,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LENGTH_TO_MAGIC,
    LOG_APPEND_TIME_FLAG,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TO_MAGIC,
    TO_MAGIC_SIZE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    read_header,
)
from pykbroker.protocol.records.record import Record, decode_records, encode_record
from pykbroker.protocol.steps import PIECE, Steps

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 0x7FFFFFFF

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")


class RecordBatch:
    """One batch at `position` of `buffer`.

    The batch must be whole: get it from `iter_batches`, or check `size_bytes` first. Nothing is copied: the properties
    show what is written to the buffer later.
    """

    __slots__ = ("buffer", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Raises CorruptRecord when not even a header fits behind `position`."""
        if len(buffer) - position < HEADER_SIZE:
            raise CorruptRecord(f"{len(buffer) - position} bytes are less than the header of a record batch")
        self.buffer = buffer
        self.position = position

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, count {self.record_count}, "
            f"epoch {self.partition_leader_epoch}, attributes {self.attributes:#x}, {self.size_bytes} bytes)"
        )

    @property
    def base_offset(self) -> int:
        value: int = _INT64.unpack_from(self.buffer, self.position)[0]
        return value

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch: its length field and the 12 bytes up to it."""
        value: int = _INT32.unpack_from(self.buffer, self.position + LENGTH_POSITION)[0]
        return value + LENGTH_OVERHEAD

    @property
    def partition_leader_epoch(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.position + LEADER_EPOCH_POSITION)[0]
        return value

    @property
    def magic(self) -> int:
        return self.buffer[self.position + MAGIC_POSITION]

    @property
    def crc(self) -> int:
        """The stored CRC-32C, unsigned."""
        value: int = _UINT32.unpack_from(self.buffer, self.position + CRC_POSITION)[0]
        return value

    @property
    def attributes(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self.position + ATTRIBUTES_POSITION)[0]
        return value

    @property
    def last_offset_delta(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.position + LAST_OFFSET_DELTA_POSITION)[0]
        return value

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def base_timestamp(self) -> int:
        """Base of the timestamp deltas; the delete horizon where `has_delete_horizon`."""
        value: int = _INT64.unpack_from(self.buffer, self.position + BASE_TIMESTAMP_POSITION)[0]
        return value

    @property
    def max_timestamp(self) -> int:
        value: int = _INT64.unpack_from(self.buffer, self.position + MAX_TIMESTAMP_POSITION)[0]
        return value

    @property
    def producer_id(self) -> int:
        value: int = _INT64.unpack_from(self.buffer, self.position + PRODUCER_ID_POSITION)[0]
        return value

    @property
    def producer_epoch(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self.position + PRODUCER_EPOCH_POSITION)[0]
        return value

    @property
    def base_sequence(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.position + BASE_SEQUENCE_POSITION)[0]
        return value

    @property
    def record_count(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.position + RECORD_COUNT_POSITION)[0]
        return value

    @property
    def compression_codec(self) -> int:
        """The codec's id, an index into `compression.CODEC_NAMES` unless the batch is malformed."""
        return self.buffer[self.position + FLAGS_POSITION] & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.buffer[self.position + FLAGS_POSITION] & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.buffer[self.position + FLAGS_POSITION] & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.buffer[self.position + FLAGS_POSITION] & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.buffer[self.position + FLAGS_POSITION] & DELETE_HORIZON_FLAG != 0

    def to_bytes(self) -> bytes:
        """A copy of the whole batch."""
        return bytes(self.buffer[self.position : self.position + self.size_bytes])

    def set_max_timestamp(self, timestamp_type: int, max_timestamp: int) -> None:
        """Writes timestamp type (`CREATE_TIME` or `LOG_APPEND_TIME`) and max timestamp in place (P-40).

        If something changes, the CRC is computed again and attribute bits without a meaning are cleared, as in Kafka.
        The buffer must be writable (else TypeError).
        """
        attributes = self.attributes
        type_flag = LOG_APPEND_TIME_FLAG if timestamp_type == LOG_APPEND_TIME else 0
        if attributes & LOG_APPEND_TIME_FLAG == type_flag and self.max_timestamp == max_timestamp:
            return
        kept = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
        _INT16.pack_into(self.buffer, self.position + ATTRIBUTES_POSITION, attributes & kept | type_flag)
        _INT64.pack_into(self.buffer, self.position + MAX_TIMESTAMP_POSITION, max_timestamp)
        _UINT32.pack_into(self.buffer, self.position + CRC_POSITION, self.compute_crc())

    def compute_crc(self) -> int:
        """CRC-32C over everything from the attributes to the end of the batch."""
        with memoryview(self.buffer) as whole:
            end = self.position + self.size_bytes
            with whole[self.position + ATTRIBUTES_POSITION : end] as covered:
                return crc32c(covered)

    def verify_crc(self) -> bool:
        """True if the stored CRC fits the bytes; False also for a batch that is not whole."""
        size_bytes = self.size_bytes
        if size_bytes < HEADER_SIZE or len(self.buffer) - self.position < size_bytes:
            return False
        return self.crc == self.compute_crc()

    def payload(self) -> bytes:
        """A copy of the bytes behind the header, still compressed."""
        return bytes(self.buffer[self.position + HEADER_SIZE : self.position + self.size_bytes])

    def record_bytes(self, limit_bytes: int = LIMIT_BYTES) -> bytes:
        """The bytes of the records, decompressed if the batch is compressed.

        Raises a RecordError when they cannot be decompressed, InvalidRecord for a negative number of records,
        RecordTooLarge when they decompress to more than `limit_bytes`.
        """
        record_count = self.record_count
        if record_count < 0:
            raise InvalidRecord(f"The record batch has an invalid record count: {record_count}")
        payload = self.payload()
        codec = self.compression_codec
        # Kafka writes the emptied batches of compaction with their codec's bit but without any bytes.
        if codec != NONE and (record_count or payload):
            payload = decompress(codec, payload, limit_bytes)
        return payload

    def records(self, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
        """The records, with absolute offsets and timestamps. Raises as `record_bytes`, or InvalidRecord on the way."""
        return self.records_in(self.record_bytes(limit_bytes), self.record_count)

    def records_in(self, data: bytes, record_count: int) -> Iterator[Record]:
        """The records in `data`, which has the decompressed bytes of `record_count` records of this batch."""
        log_append_time = self.max_timestamp if self.is_log_append_time else None
        return decode_records(data, record_count, self.base_offset, self.base_timestamp, log_append_time)


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """Views of the whole batches in `buffer` from `position` on; a partial batch at the end is left out.

    CRCs are not checked. Raises CorruptRecord where the bytes cannot be a batch, UnsupportedRecordFormat at the old
    message formats 0 and 1, which Kafka wrote before version 0.11 and Kafka 4 no longer takes.
    """
    for start in _starts(buffer, position):
        yield RecordBatch(buffer, start)


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches in `buffer`; as `iter_batches` otherwise."""
    for start in _starts(buffer, 0):
        yield start, read_header(buffer, start)


def _starts(buffer: Buffer, position: int) -> Iterator[int]:
    """Positions of the whole batches. Raises as `iter_batches`."""
    end = len(buffer)
    while end - position >= TO_MAGIC_SIZE:
        length, _, magic = LENGTH_TO_MAGIC.unpack_from(buffer, position + LENGTH_POSITION)
        check_magic(magic, position)
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise CorruptRecord(f"The record batch at byte {position} has an impossible length: {length}")
        next_position = position + LENGTH_OVERHEAD + length
        if next_position > end:
            return
        yield position
        position = next_position


def check_magic(magic: int, position: int) -> None:
    """Raises UnsupportedRecordFormat for the formats 0 and 1, CorruptRecord for anything else but 2."""
    if magic == 2:
        return
    if magic in (0, 1):
        raise UnsupportedRecordFormat(
            f"The record batch at byte {position} has message format {magic}; only format 2 is supported: "
            "upgrade the producer to one that speaks Kafka 0.11 or later"
        )
    raise CorruptRecord(f"The record batch at byte {position} has an invalid magic: {magic}")


class RecordFrames(NamedTuple):
    """Records without headers, encoded for a batch that is built later and has their timestamp."""

    record_count: int
    data: bytes | bytearray


Pair = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


def frames_of(pairs: Iterable[Pair]) -> RecordFrames:
    """The records with these keys and values, at consecutive offsets."""
    records = [encode_record(delta, 0, key, value) for delta, (key, value) in enumerate(pairs)]
    return RecordFrames(len(records), b"".join(records))


def frames_in_steps(pairs: Iterable[Pair]) -> Steps[RecordFrames]:
    """As `frames_of`, in steps."""
    data = bytearray()
    delta = -1
    for delta, (key, value) in enumerate(pairs):
        data += encode_record(delta, 0, key, value)
        if not (delta + 1) % PIECE:
            yield
    return RecordFrames(delta + 1, data)


def frames_with(frames: RecordFrames, pairs: Iterable[Pair]) -> RecordFrames:
    """The encoded records, followed by those with these keys and values."""
    first, data = frames
    more = [encode_record(delta, 0, key, value) for delta, (key, value) in enumerate(pairs, first)]
    return RecordFrames(first + len(more), b"".join((data, *more)))


def batch_of_frames(
    frames: RecordFrames,
    timestamp: int,
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytes:
    """The batch with these records, as `build_batch` makes it of records with this timestamp."""
    record_count, data = frames
    covered = ATTRIBUTES_TO_COUNT.pack(
        codec | TRANSACTIONAL_FLAG if is_transactional else codec,
        record_count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return _joined(covered, compress(codec, bytes(data)) if codec != NONE else data, 0, -1)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    codec: int = NONE,
    compression_level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_control: bool = False,
    is_transactional: bool = False,
) -> bytes:
    """Encodes records as one batch.

    Args:
        base_offset: offset of the batch. Records are numbered from it, whatever their own offsets say, unless
            `keep_offsets`: then each keeps its offset (compaction), which must not be below `base_offset`.
        last_offset_delta: where records were removed at the end (compaction), the delta to keep; by default the last
            record's.
        timestamp_type: with `LOG_APPEND_TIME`, `log_append_time` becomes the batch's max timestamp; the records'
            own timestamps are still written as deltas (P-40).
        max_timestamp: overrides the greatest timestamp of the records (an emptied batch keeps its own).
        delete_horizon_ms: compaction's horizon; sets its attribute bit and takes the place of the base timestamp.
    """
    encoded: list[bytes] = []
    base_timestamp = delete_horizon_ms
    greatest = NO_TIMESTAMP
    delta = -1
    for record in records:
        timestamp = record.timestamp
        if base_timestamp is None:
            base_timestamp = timestamp
        greatest = max(greatest, timestamp)
        delta = record.offset - base_offset if keep_offsets else delta + 1
        encoded.append(encode_record(delta, timestamp - base_timestamp, record.key, record.value, record.headers))
    if max_timestamp is not None:
        greatest = max_timestamp
    elif timestamp_type == LOG_APPEND_TIME:
        greatest = log_append_time
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    covered = ATTRIBUTES_TO_COUNT.pack(
        attributes,
        delta if last_offset_delta is None else last_offset_delta,
        NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        greatest,
        producer_id,
        producer_epoch,
        base_sequence,
        len(encoded),
    )
    payload = b"".join(encoded)
    if payload:
        payload = compress(codec, payload, compression_level)
    return _joined(covered, payload, base_offset, leader_epoch)


def _joined(covered: bytes, payload: bytes | bytearray, base_offset: int, leader_epoch: int) -> bytes:
    """The batch of its header from the attributes on and its records."""
    crc = crc32c(payload, crc32c(covered))
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    return b"".join((TO_MAGIC.pack(base_offset, length, leader_epoch, 2), _UINT32.pack(crc), covered, payload))


def batch_with_fewer(batch: RecordBatch, payload: bytes, record_count: int, max_timestamp: int) -> bytes:
    """The batch with some of its records alone (compaction): `payload` has their decompressed bytes, unchanged.

    Base timestamp and last offset delta stay, so the deltas in the records still hold.
    """
    base_offset, _, leader_epoch, _, _, attributes, *rest = HEADER.unpack_from(batch.buffer, batch.position)
    attributes &= CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
    rest[2], rest[-1] = max_timestamp, record_count
    payload = compress(batch.compression_codec, payload)
    return _joined(ATTRIBUTES_TO_COUNT.pack(attributes, *rest), payload, base_offset, leader_epoch)


def repack_batch(
    batch: RecordBatch,
    payload: bytes,
    codec: int,
    compression_level: int | None,
    timestamp_type: int,
    max_timestamp: int,
) -> bytes:
    """The batch with another codec; `payload` has its decompressed records, whose bytes do not change."""
    base_offset, _, leader_epoch, magic, _, attributes, *rest = HEADER.unpack_from(batch.buffer, batch.position)
    attributes &= TRANSACTIONAL_FLAG | CONTROL_FLAG
    attributes |= codec | (LOG_APPEND_TIME_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
    rest[2] = max_timestamp
    covered = ATTRIBUTES_TO_COUNT.pack(attributes, *rest)
    payload = compress(codec, payload, compression_level)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    crc = crc32c(payload, crc32c(covered))
    return TO_MAGIC.pack(base_offset, length, leader_epoch, magic) + _UINT32.pack(crc) + covered + payload


def codec_name(codec: int) -> str:
    """Kafka's name of a codec id, or ``unknown(7)``."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"
