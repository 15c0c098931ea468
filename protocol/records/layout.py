"""The bytes of a record batch's header: positions, sizes, flags, and the header as a value.

All numbers are big-endian. A batch of format v2 (magic 2) begins with 61 bytes:

    position  field                         position  field
    0         base offset, i64              27        base timestamp, i64
    8         length of what follows, i32   35        max timestamp, i64
    12        partition leader epoch, i32   43        producer id, i64
    16        magic, i8                     51        producer epoch, i16
    17        CRC-32C, u32                  53        base sequence, i32
    21        attributes, i16               57        record count, i32
    23        last offset delta, i32

Formats 0 and 1, which Kafka wrote before 0.11, have the offset, the length and the magic in the same places. A leader
assigns base offset and leader epoch; the CRC covers everything from the attributes on.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from typing import Final

from pykbroker.named_tuple import NamedTuple

Buffer = bytes | bytearray | memoryview | mmap

HEADER: Final = Struct(">qiibIhiqqqhii")
"""All 13 fields, as in `BatchHeader`."""
HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that its length field does not count: base offset and length."""
ASSIGNED: Final = Struct(">qii")
"""Base offset, length, partition leader epoch: the bytes that a leader overwrites."""
ASSIGNED_SIZE: Final = 16
TO_MAGIC: Final = Struct(">qiib")
"""Base offset, length, partition leader epoch, magic."""
TO_MAGIC_SIZE: Final = 17
LENGTH_TO_MAGIC: Final = Struct(">iib")
"""The same from the length on, at `LENGTH_POSITION`."""
ATTRIBUTES_TO_COUNT: Final = Struct(">hiqqqhii")
"""The fields that the CRC covers, at `ATTRIBUTES_POSITION`."""

RECOVERED: Final = Struct(">qiibIhi8xqq10x")
"""The fields of format v2 that a recovery needs of every batch: base offset, length, leader epoch, magic, CRC,
attributes, last offset delta, max timestamp, producer id. The fewer fields, the faster."""
SCAN_STEP: Final = Struct(">qiibihi")
"""The fields with which a scan finds the next batch: base offset, length, leader epoch, magic, CRC, attributes and last
offset delta of format v2. Of old formats only the first four are fields, and the third is their CRC."""
SCAN_STEP_SIZE: Final = 27

LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""First byte that the CRC covers."""
FLAGS_POSITION: Final = 22
"""The low byte of the attributes, which has the codec and all flags."""
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

LEGACY_LENGTH_MIN: Final = 14
"""Least value of the length field in any format: a message of magic 0 without key and value."""
LEGACY_SIZE_MIN: Final = LENGTH_OVERHEAD + LEGACY_LENGTH_MIN
LEGACY_CRC_POSITION: Final = 12
LEGACY_MAGIC_POSITION: Final = 16
"""First byte that the CRC of an old message covers."""
LEGACY_ATTRIBUTES_POSITION: Final = 17
LEGACY_TIMESTAMP_POSITION: Final = 18
"""Position of the timestamp in a message of magic 1; magic 0 has no timestamp."""
_TIMESTAMP: Final = Struct(">q")


class BatchHeader(NamedTuple):
    """The header of one batch of format v2, as it is in the buffer."""

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

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, where 61 bytes must be. Of old formats only offset, length and magic are valid."""
    # As BatchHeader._make without its check of the number of fields, which is measurable when done once per batch.
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))


def legacy_timestamp(buffer: Buffer, position: int, magic: int) -> int:
    """Timestamp of the message of an old format at `position`: -1 for magic 0, which has none."""
    return int(_TIMESTAMP.unpack_from(buffer, position + LEGACY_TIMESTAMP_POSITION)[0]) if magic == 1 else -1
