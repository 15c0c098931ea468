"""A log that an old broker has left, with messages of the formats before 0.11: offsets by time, and its records."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, TopicPartition

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import Message, confluent_produce, create_topic
from interop_tests.wire import RECENT_MS, Connection, request_header

pytestmark = [pytest.mark.own_broker, pytest.mark.area("storage"), pytest.mark.client("kafka-python")]

LIST_OFFSETS = 2
LOG_APPEND_TIME = 8
GZIP = 1
MAX_TIMESTAMP = -3
FIRST_SEGMENT = f"{0:020d}.log"


def message(magic: int, offset: int, time_ms: int, value: bytes, attributes: int = 0) -> bytes:
    """A message with the key "k" as it lies in a segment."""
    timestamp = struct.pack(">q", time_ms) if magic else b""
    body = struct.pack(">bb", magic, attributes) + timestamp + struct.pack(">i", 1) + b"k"
    body += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def compressed(last_offset: int, time_ms: int, times_ms: list[int], attributes: int = 0) -> bytes:
    """A compressed message of format 1 whose records have these times; `time_ms` is its own."""
    within = b"".join(message(1, number, time, f"c{number}".encode()) for number, time in enumerate(times_ms))
    return message(1, last_offset, time_ms, zlib.compress(within, wbits=31), GZIP | attributes)


def offset_by_time(bootstrap: str, topic: str, time_ms: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of partition 0 in the answer to ListOffsets 7."""
    body = struct.pack(">ib", -1, 0) + b"\2" + bytes([len(topic) + 1]) + topic.encode()
    body += b"\2" + struct.pack(">iiq", 0, -1, time_ms) + b"\0\0\0"
    with Connection(bootstrap) as connection:
        reply = connection.exchange(request_header(LIST_OFFSETS, 7, flexible=True) + body)
    # correlation id, tags, throttle time, one topic with its name, one partition
    start = 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4
    error, timestamp, offset, epoch = struct.unpack_from(">hqqi", reply, start)
    assert error == 0
    return timestamp, offset, epoch


def test_a_log_of_old_formats(start_broker: Callable[..., BrokerProcess]) -> None:
    """P-83, P-168: each record is found by its own time; messages of format 0 have none."""
    broker = start_broker("old-formats", {})
    topic, untimed = "old", "untimed"
    for name in (topic, untimed):
        create_topic(broker.bootstrap, name)
    broker.kill()
    assert broker.data_dir is not None
    folders = [next(broker.data_dir.glob(f"**/{name}-0")) for name in (topic, untimed)]
    for folder in folders:
        for index in folder.glob("*index"):
            index.unlink()
    segment, first, second = folders[0] / FIRST_SEGMENT, folders[1] / FIRST_SEGMENT, folders[1] / f"{1:020d}.log"
    now = RECENT_MS
    later = now + 10 * 3_600_000
    first.write_bytes(message(0, 0, 0, b"without a time"))
    second.write_bytes(message(1, 1, later, b"with one"))
    segment.write_bytes(
        message(0, 0, 0, b"without a time")
        + message(1, 1, now, b"with one")
        + compressed(4, now + 50, [now + 20, now + 50, now + 30])
        + compressed(6, now + 90, [now + 1, now + 2], LOG_APPEND_TIME)
    )
    broker.start()
    assert [offset_by_time(broker.bootstrap, topic, now + time) for time in (-1, 0, 1, 21, 50, 51, 90, 91)] == [
        (now, 1, -1),
        (now, 1, -1),
        (now + 20, 2, -1),
        (now + 50, 3, -1),
        (now + 50, 3, -1),
        (now + 90, 5, -1),
        (now + 90, 5, -1),
        (-1, -1, -1),
    ]
    # The first segment reaches times up to the last write to it, and has no record with one.
    assert [offset_by_time(broker.bootstrap, untimed, time) for time in (now, later, later + 1)] == [
        (-1, -1, -1),
        (later, 1, -1),
        (-1, -1, -1),
    ]
    assert offset_by_time(broker.bootstrap, topic, MAX_TIMESTAMP) == (now + 90, 5, -1)
    confluent_produce(broker.bootstrap, topic, [Message(b"k", b"new")])
    assert offset_by_time(broker.bootstrap, topic, now + 91)[1] == 7
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=60_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = [next(consumer).value for _ in range(8)]
    consumer.close()
    assert values == [b"without a time", b"with one", b"c0", b"c1", b"c2", b"c0", b"c1", b"new"]
