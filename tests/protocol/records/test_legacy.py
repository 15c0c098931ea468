"""Messages of formats 0 and 1, as kafka-python's encoder made them for old brokers."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from pykbroker.protocol.records.errors import CorruptRecord, InvalidRecord, RecordError
from pykbroker.protocol.records.layout import legacy_timestamp
from pykbroker.protocol.records.legacy import LegacyBatch
from pykbroker.protocol.records.record import Record

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4"}
RECORDS = [(500, b"k", b"first" * 9), (700, None, b""), (600, b"k", None)]
LOG_APPEND_TIME = 8


def message_set(magic: int, codec: int, records: Any = RECORDS) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(records):
        builder.append(offset, timestamp, key, value)
    return bytes(builder.build())


def at_offset(data: bytes, offset: int, *, attributes: int = 0, timestamp: int | None = None) -> bytes:
    """A message as a broker of its time stored it: the offset, and for LogAppendTime the flag and the time."""
    changed = bytearray(data)
    struct.pack_into(">q", changed, 0, offset)
    changed[17] |= attributes
    if timestamp is not None:
        struct.pack_into(">q", changed, 18, timestamp)
    struct.pack_into(">I", changed, 12, zlib.crc32(changed[16:]))
    return bytes(changed)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_without_compression(magic: int) -> None:
    """P-168."""
    batch = LegacyBatch(b"xx" + at_offset(message_set(magic, 0, RECORDS[:1]), 41) + b"x", 2)
    timestamp = 500 if magic else -1
    assert list(batch.records()) == [Record(41, timestamp, b"k", b"first" * 9)]
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.record_count) == (41, 41, 42, 1)
    assert (batch.base_timestamp, batch.max_timestamp, batch.is_log_append_time) == (timestamp, timestamp, False)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.partition_leader_epoch) == (-1,) * 4
    assert [batch.is_control, batch.is_transactional, batch.has_delete_horizon] == [False] * 3


@pytest.mark.parametrize("codec", [1, 2, 3], ids=CODECS.get)
def test_offsets_in_a_compressed_message_count_from_0(codec: int) -> None:
    """P-168: format 1; the message has the offset of the last record, and the largest timestamp."""
    batch = LegacyBatch(at_offset(message_set(1, codec), 102, timestamp=700))
    assert list(batch.records()) == [
        Record(100 + number, timestamp, key, value) for number, (timestamp, key, value) in enumerate(RECORDS)
    ]
    assert (batch.last_offset, batch.max_timestamp, batch.record_count, batch.compression_codec) == (102, 700, 3, codec)


def test_offsets_in_a_compressed_message_of_format_0_are_those_of_the_log() -> None:
    """P-168."""
    batch = LegacyBatch(at_offset(message_set(0, 1), 2))
    assert [record.offset for record in batch.records()] == [0, 1, 2]
    assert {record.timestamp for record in batch.records()} == {-1}


def test_all_records_of_an_appended_message_have_the_time_of_the_append() -> None:
    """P-168: LogAppendTime."""
    data = at_offset(message_set(1, 1), 2, attributes=LOG_APPEND_TIME, timestamp=9000)
    batch = LegacyBatch(data)
    assert batch.is_log_append_time
    assert [record.timestamp for record in batch.records()] == [9000] * 3


def test_the_offset_0_of_producers_that_set_none() -> None:
    batch = LegacyBatch(at_offset(message_set(1, 1), 0))
    assert [record.offset for record in batch.records()] == [0, 1, 2]


def compressed(value: bytes | None, *, codec: int = 1, offset: int = 5) -> bytes:
    data = value if value is None else zlib.compress(value, wbits=31)
    field = struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    body = struct.pack(">bbqi", 1, codec, 700, -1) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def with_key_length(data: bytes, length: int) -> bytes:
    """A message of format 1 with another length of its key."""
    return data[:26] + struct.pack(">i", length) + data[30:]


@pytest.mark.parametrize(
    "data",
    [
        compressed(None),
        compressed(b""),
        compressed(message_set(1, 0), codec=4),
        compressed(message_set(1, 0), offset=1),
        compressed(message_set(1, 1)),
        compressed(b"\0" * 40),
        message_set(1, 0, RECORDS[:1])[:-1],
        message_set(1, 0, RECORDS[:1])[:-50],
        with_key_length(message_set(1, 0, RECORDS[:1]), 1000),
        with_key_length(message_set(1, 0, RECORDS[:1]), 48),
        message_set(1, 0, RECORDS[:1])[:20],
    ],
    ids=[
        "no value",
        "no messages",
        "zstd",
        "an offset below those within",
        "compressed twice",
        "no lengths",
        "cut off in the value",
        "cut off in the header",
        "a key longer than the message",
        "no length of a value behind the key",
        "shorter than the shortest message",
    ],
)
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(RecordError) as raised:
        list(LegacyBatch(data).records())
    assert isinstance(raised.value, (InvalidRecord, CorruptRecord))


def test_a_message_that_is_cut_off_within_a_compressed_one_is_left_out() -> None:
    """P-168: as a follower of its time cut its fetches."""
    whole = message_set(1, 0)
    batch = LegacyBatch(compressed(whole[:-1], offset=51))
    assert [record.offset for record in batch.records()] == [50, 51]


def test_the_timestamp_of_format_0() -> None:
    assert legacy_timestamp(message_set(0, 0), 0, 0) == -1
