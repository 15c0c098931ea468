"""Requests that no stock client sends: each gets Apache Kafka's reply, or a closed connection and one log line."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from interop_tests.brokers import Broker
from interop_tests.clients import create_topic, wait_until
from interop_tests.wire import (
    API_VERSIONS,
    METADATA,
    Connection,
    ConnectionClosed,
    compact_string,
    record_batch,
    request_header,
    string,
)

pytestmark = [pytest.mark.area("errors"), pytest.mark.client("raw frames")]

CREATE_TOPICS, DELETE_TOPICS = 19, 20
CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION = 2, 3, 10, 17
INVALID_REQUIRED_ACKS, UNSUPPORTED_VERSION, INVALID_RECORD = 21, 35, 87

METADATA_OF_NOTHING = request_header(METADATA, 4) + struct.pack(">i", 0) + b"\0"

CLOSING = {
    "an API that does not exist": request_header(9999, 0) + b"\0" * 8,
    "a version of Metadata that does not exist": request_header(METADATA, 99) + b"\0" * 8,
    "a negative version": request_header(METADATA, -1) + b"\0" * 8,
    "a Produce older than the oldest": request_header(0, 1) + struct.pack(">hii", -1, 1000, 0),
    "an API that only controllers serve": request_header(52, 0, flexible=True) + b"\0" * 8,
    "a header that ends early": struct.pack(">hh", METADATA, 4),
    "a body that ends early": METADATA_OF_NOTHING[:-3],
    "an array that claims two thousand million topics": request_header(METADATA, 4) + struct.pack(">i", 2_000_000_000),
    "a string with a negative length": request_header(METADATA, 4) + struct.pack(">ih", 1, -5) + b"\0",
}
CLOSING_BYTES = {
    "a frame larger than socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "a negative frame size": struct.pack(">i", -1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001") + b"\0" * 100,
}


@contextmanager
def one_line_about(broker: Broker, connection: Connection, target: str) -> Iterator[None]:
    """Whatever happens to the connection, pykbroker's log has one line about it. (Apache Kafka prints stack traces.)"""
    host, port = connection.socket.getsockname()
    before = len(broker.log_text())
    yield
    if target == "pykbroker":
        wait_until(lambda: f"{host}:{port}" in broker.log_text()[before:], "a line in the broker's log")
        lines = [line for line in broker.log_text()[before:].splitlines() if line.strip()]
        about = [line for line in lines if f"{host}:{port}" in line]
        assert len(about) == 1, about
        assert "Traceback" not in "".join(lines), lines
        assert "closing the connection" in about[0]


def assert_still_serves(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        assert connection.exchange(METADATA_OF_NOTHING)[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize("payload", [pytest.param(payload, id=what) for what, payload in CLOSING.items()])
def test_closes_that_connection(payload: bytes, broker: Broker, target: str) -> None:
    """A request that cannot be read or is not served closes its connection, with one line in the log; others go on."""
    with Connection(broker.bootstrap) as connection, one_line_about(broker, connection, target):
        connection.send(payload)
        assert connection.is_closed_by_broker()
    assert_still_serves(broker.bootstrap)


@pytest.mark.parametrize("data", [pytest.param(data, id=what) for what, data in CLOSING_BYTES.items()])
def test_bytes_that_are_no_frame(data: bytes, broker: Broker, target: str) -> None:
    """Bytes of another protocol, and impossible frame sizes, close the connection; the broker goes on."""
    with Connection(broker.bootstrap) as connection, one_line_about(broker, connection, target):
        connection.send_raw(data)
        assert connection.is_closed_by_broker()
    assert_still_serves(broker.bootstrap)


def test_what_came_before_is_answered(broker: Broker) -> None:
    """A good request and a bad one in one segment: the good one gets its reply, then the connection closes."""
    with Connection(broker.bootstrap) as connection:
        good = struct.pack(">i", len(METADATA_OF_NOTHING)) + METADATA_OF_NOTHING
        bad = request_header(9999, 0)
        connection.send_raw(good)
        assert connection.receive()[:4] == struct.pack(">i", 7)
        connection.send_raw(struct.pack(">i", len(bad)) + bad)
        with pytest.raises(ConnectionClosed):
            connection.receive()


def test_api_versions_of_the_future(broker: Broker) -> None:
    """ApiVersions never closes: error 35 in version 0, with the versions of ApiVersions that the client may try."""
    with Connection(broker.bootstrap) as connection:
        body = compact_string("interop") + compact_string("1") + b"\0"
        reply = connection.exchange(request_header(API_VERSIONS, 99, flexible=True) + body)
        correlation_id, error, count = struct.unpack_from(">ihi", reply)
        assert (correlation_id, error, count) == (7, UNSUPPORTED_VERSION, 1)
        api_key, minimum, maximum = struct.unpack_from(">hhh", reply, 10)
        assert (api_key, minimum) == (API_VERSIONS, 0)
        assert maximum >= 3
        assert len(reply) == 16
        reply = connection.exchange(request_header(API_VERSIONS, 0))
        error, count = struct.unpack_from(">hi", reply, 4)
        assert error == 0
        offered = {struct.unpack_from(">h", reply, 10 + 6 * number)[0] for number in range(count)}
        assert offered >= {*range(4), *range(8, 17), *range(18, 24), 32, 33, 37, 42, 44, 47, 55, 60, 75}


def test_api_versions_with_an_illegal_client_name(broker: Broker) -> None:
    """KIP-511: a software name with odd characters is INVALID_REQUEST, and the connection stays."""
    with Connection(broker.bootstrap) as connection:
        body = compact_string("-no-") + compact_string("1") + b"\0"
        reply = connection.exchange(request_header(API_VERSIONS, 3, flexible=True) + body)
        assert struct.unpack_from(">ih", reply) == (7, 42)


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    return create_topic(broker.bootstrap, name, max_message_bytes="20000")


def damaged(batch: bytes, position: int, value: bytes) -> bytes:
    return batch[:position] + value + batch[position + len(value) :]


def test_good_batch(broker: Broker, topic: str) -> None:
    """The batch that the next tests damage is one that the broker takes."""
    with Connection(broker.bootstrap) as connection:
        assert connection.produce(topic, 0, record_batch([b"one", b"two"])) == (0, 0)
        assert connection.produce(topic, 0, record_batch([b"one", b"two"], compressed=True)) == (0, 2)


GOOD = record_batch([b"one", b"two"])
BAD_BATCHES: dict[str, tuple[Callable[[], bytes], int]] = {
    "a wrong CRC": (lambda: damaged(GOOD, 17, b"\1\2\3\4"), CORRUPT_MESSAGE),
    "a flipped bit in a value": (lambda: GOOD[:-2] + bytes([GOOD[-2] ^ 1]) + GOOD[-1:], CORRUPT_MESSAGE),
    "larger than max.message.bytes": (lambda: record_batch([b"x" * 21_000]), MESSAGE_TOO_LARGE),
    "two batches in one request": (lambda: GOOD + GOOD, INVALID_RECORD),
}


@pytest.mark.parametrize(("batch", "error"), [pytest.param(*case, id=what) for what, case in BAD_BATCHES.items()])
def test_bad_batch(batch: Callable[[], bytes], error: int, broker: Broker, topic: str) -> None:
    """An error code for that partition; the connection lives, and nothing was stored."""
    with Connection(broker.bootstrap) as connection:
        assert connection.produce(topic, 0, batch())[0] == error
        assert connection.produce(topic, 0, GOOD) == (0, 0)


def test_produce_with_odd_acks(broker: Broker, topic: str) -> None:
    """acks other than -1, 0 and 1 are INVALID_REQUIRED_ACKS, and the connection lives."""
    with Connection(broker.bootstrap) as connection:
        assert connection.produce(topic, 0, GOOD, acks=5)[0] == INVALID_REQUIRED_ACKS
        assert connection.produce(topic, 0, GOOD) == (0, 0)


@pytest.mark.parametrize("illegal", ["has space", "sla/sh", "..", "x" * 250, ""])
def test_illegal_topic_name(illegal: str, broker: Broker) -> None:
    """INVALID_TOPIC_EXCEPTION where a topic would be made, unknown where it would be written to."""
    with Connection(broker.bootstrap) as connection:
        reply = connection.exchange(request_header(METADATA, 4) + struct.pack(">i", 1) + string(illegal) + b"\1")
        assert metadata_error(reply) == INVALID_TOPIC_EXCEPTION
        body = struct.pack(">i", 1) + string(illegal) + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">ib", 10_000, 0)
        reply = connection.exchange(request_header(CREATE_TOPICS, 2) + body)
        (error,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + len(string(illegal)))
        assert error == INVALID_TOPIC_EXCEPTION
        assert connection.produce(illegal, 0, GOOD)[0] in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION)


def metadata_error(reply: bytes) -> int:
    """Error code of the only topic in a Metadata reply of version 4 from one broker."""
    position = 4 + 4
    (brokers,) = struct.unpack_from(">i", reply, position)
    position += 4
    for _ in range(brokers):
        position += 4
        position = after_string(reply, position) + 4
        position = after_string(reply, position)
    position = after_string(reply, position) + 4
    topics, error = struct.unpack_from(">ih", reply, position)
    assert topics == 1
    return int(error)


def after_string(data: bytes, position: int) -> int:
    """The position behind a nullable string."""
    (size,) = struct.unpack_from(">h", data, position)
    return position + 2 + max(int(size), 0)
