"""Clients that mean no good, or know no better: they get what Kafka gives them, and everybody else goes on.

Not here but in tests/hostile are attacks that Apache Kafka does not stand: fifty connections that announce requests of
a hundred megabytes fill its heap before a byte of them was sent.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable

import pytest

from interop_tests.brokers import Broker
from interop_tests.clients import create_topic, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.test_broker_settings import alter
from interop_tests.wire import (
    METADATA,
    Connection,
    ConnectionClosed,
    record_batch,
    request_header,
    string,
)

pytestmark = [pytest.mark.area("hostile clients"), pytest.mark.client("raw frames")]

CREATE_TOPICS, FETCH = 19, 1
INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, POLICY_VIOLATION = 17, 37, 44

METADATA_OF_NOTHING = request_header(METADATA, 4) + struct.pack(">i", 0) + b"\0"
GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x0a" + b"\xff" * 10,
)
RESET = struct.pack("ii", 1, 0)
NOBODY_IS_SERVED_S = 0.3


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def assert_serves(bootstrap: str) -> None:
    """A new client gets its first answer while the others do what they do."""
    with Connection(bootstrap) as connection:
        assert connection.exchange(METADATA_OF_NOTHING)[:4] == struct.pack(">i", 7)


def metadata_of(connection: Connection, name: bytes) -> tuple[int, bytes]:
    """Error code and name in the answer to Metadata version 4 for one topic, which is not to be created."""
    body = struct.pack(">ih", 1, len(name)) + name + b"\0"
    reply = connection.exchange(request_header(METADATA, 4) + body)
    # correlation id, throttle time, brokers; then cluster id, controller, topics
    position = 8
    (brokers,) = struct.unpack_from(">i", reply, position)
    position += 4
    for _ in range(brokers):
        position += 4
        position += 2 + struct.unpack_from(">h", reply, position)[0] + 4
        position += 2 + max(0, struct.unpack_from(">h", reply, position)[0])
    position += 2 + max(0, struct.unpack_from(">h", reply, position)[0]) + 4
    count, error, size = struct.unpack_from(">ihh", reply, position)
    assert count == 1
    return error, reply[position + 8 : position + 8 + size]


@pytest.mark.own_broker
def test_a_port_scan(start_broker: StartBroker, target: str) -> None:
    """Hundreds of connections that close, reset or send garbage; the next client is served, and the log is not flooded.

    On a broker of its own: pykbroker leaves out lines after that, for which other tests wait. (Apache Kafka does not.)
    """
    broker = start_broker("scanned")
    address = broker.address
    for number in range(600):
        with socket.create_connection(address, timeout=20) as scan:
            if number % 3:
                scan.sendall(GARBAGE[number % len(GARBAGE)])
            if number % 3 == 2:
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert_serves(broker.bootstrap)
    if target == "pykbroker":
        assert broker.log_text().count("closing the connection") < 300
    broker.stop()


def test_a_request_byte_by_byte(broker: Broker) -> None:
    """A request that comes in single bytes is answered once it is whole."""
    with Connection(broker.bootstrap) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in framed(METADATA_OF_NOTHING):
            connection.send_raw(bytes([byte]))
            time.sleep(0.002)
        assert connection.receive()[:4] == struct.pack(">i", 7)


def test_a_thousand_requests_before_the_first_reply_is_read(broker: Broker) -> None:
    """Pipelined requests are all answered, in their order."""
    with Connection(broker.bootstrap) as connection:
        requests = [request_header(METADATA, 4, number) + struct.pack(">i", 0) + b"\0" for number in range(1000)]
        connection.send_raw(b"".join(map(framed, requests)))
        for number in range(1000):
            assert connection.receive()[:4] == struct.pack(">i", number)


def test_readers_that_never_read(broker: Broker, name: str) -> None:
    """Fetches of much data whose replies nobody reads hold nobody else up."""
    create_topic(broker.bootstrap, name, 1)
    batch = record_batch([bytes(20_000)])
    with Connection(broker.bootstrap) as producer:
        for _ in range(50):
            assert producer.produce(name, 0, batch)[0] == 0
        body = struct.pack(">iiiib", -1, 0, 1, 50 << 20, 0) + struct.pack(">i", 1) + string(name)
        body += struct.pack(">iiqi", 1, 0, 0, 50 << 20)
        readers = [Connection(broker.bootstrap) for _ in range(20)]
        for reader in readers:
            reader.send_raw(framed(request_header(FETCH, 4) + body) * 20)
        assert_serves(broker.bootstrap)
        assert producer.produce(name, 0, batch)[0] == 0
        assert producer.fetch(name, 0, 50)
        for reader in readers:
            reader.socket.close()


@pytest.mark.parametrize(
    ("topic", "answered"),
    [
        (b"a" * 32_767, b"a" * 32_767),
        (b"caf\xe9", "caf\ufffd".encode()),
        (b"\xc3\x28\0", "\ufffd(\0".encode()),
        (b"../../etc/passwd", b"../../etc/passwd"),
    ],
    ids=["32 KB", "Latin-1", "no UTF-8 and a zero byte", "a path"],
)
def test_names_that_cannot_be(broker: Broker, topic: bytes, answered: bytes) -> None:
    """An illegal topic name is answered with INVALID_TOPIC_EXCEPTION; bytes that are no UTF-8 read as U+FFFD."""
    with Connection(broker.bootstrap) as connection:
        assert metadata_of(connection, topic) == (INVALID_TOPIC_EXCEPTION, answered)


def test_a_client_id_that_is_no_text(broker: Broker) -> None:
    """A client id of any bytes is taken."""
    with Connection(broker.bootstrap) as connection:
        header = struct.pack(">hhih", METADATA, 4, 7, 4) + b"\xff\xfe\x80\0"
        assert connection.exchange(header + struct.pack(">i", 0) + b"\0")[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize(
    ("count", "error"), [(10_000_000, POLICY_VIOLATION), (10_001, POLICY_VIOLATION), (-2, INVALID_PARTITIONS)]
)
def test_topics_with_very_many_partitions(broker: Broker, name: str, count: int, error: int) -> None:
    """CreateTopics of more than ten thousand partitions at once is a POLICY_VIOLATION."""
    with Connection(broker.bootstrap) as connection:
        body = struct.pack(">i", 1) + string(name) + struct.pack(">ihii", count, 1, 0, 0) + struct.pack(">ib", 5000, 0)
        reply = connection.exchange(request_header(CREATE_TOPICS, 2) + body)
        (answered,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + len(string(name)))
        assert answered == error


@pytest.mark.own_broker
def test_limits_of_connections(start_broker: StartBroker) -> None:
    """max.connections.per.ip closes what is too much; connections.max.idle.ms closes what is quiet."""
    settings = {"max.connections.per.ip": "5", "connections.max.idle.ms": "6000", "socket.request.max.bytes": "100000"}
    broker = start_broker("limits", settings)
    wait_until(lambda: is_served(broker), "a free connection")

    def opened() -> list[Connection]:
        return [Connection(broker.bootstrap) for _ in range(12)]

    asked_at = time.monotonic()
    connections = opened()
    open_ones = [connection for connection in connections if is_answered(connection)]
    assert 1 <= len(open_ones) <= 5
    for connection in connections:
        if connection not in open_ones:
            assert connection.is_closed_by_broker()
    open_ones.pop().socket.close()
    wait_until(lambda: is_served(broker), "the place of the connection that went")
    assert open_ones[0].is_closed_by_broker()
    assert time.monotonic() - asked_at > 3, "not before it was quiet for the time of the setting"
    for connection in connections:
        connection.socket.close()
    wait_until(lambda: is_served(broker), "a free connection")
    with Connection(broker.bootstrap) as connection:
        connection.send_raw(struct.pack(">i", 100_001))
        assert connection.is_closed_by_broker()
    broker.stop()


@pytest.mark.own_broker
def test_clients_wait_at_max_connections(start_broker: StartBroker, unique: Callable[[str], str]) -> None:
    """At max.connections a further client is neither refused nor served: it waits until one goes."""
    broker = start_broker("max-connections", {"max.connections": "10"})
    waiting = [Connection(broker.bootstrap) for _ in range(12)]
    for connection in waiting:
        connection.send(METADATA_OF_NOTHING)
    served: list[Connection] = []

    def is_count(count: int) -> bool:
        readable, _, _ = select.select([connection.socket for connection in waiting], [], [], 0)
        for connection in [one for one in waiting if one.socket in readable]:
            assert connection.receive()[:4] == struct.pack(">i", 7)
            waiting.remove(connection)
            served.append(connection)
        return len(served) >= count

    # The connection by which the broker was found ready may have counted until it ended.
    wait_until(lambda: is_count(10), "as many clients as may be served")
    time.sleep(NOBODY_IS_SERVED_S)
    for count in (10, 11):
        assert not is_count(count + 1)
        served[count - 10].socket.close()
        wait_until(lambda: is_count(count + 1), "a client to have the place of the one that went")  # noqa: B023
    for connection in served:
        connection.socket.close()
    broker.stop()


@pytest.mark.own_broker
def test_a_lower_max_connections_closes_connections(start_broker: StartBroker) -> None:
    """P-390: those that have been quiet for longest end until the others keep to the new limit."""
    broker = start_broker("lower-max-connections")
    connections = [Connection(broker.bootstrap) for _ in range(8)]
    for connection in connections:
        assert is_answered(connection)
    assert alter(broker, "max.connections=4", validate_only=False) == (0, "")

    def open_ones() -> list[Connection]:
        return [connection for connection in connections if not is_at_its_end(connection)]

    def are_few_and_served() -> bool:
        left = open_ones()
        return len(left) <= 4 and all(is_answered(connection) for connection in left)

    wait_until(are_few_and_served, "the ends of connections above the limit")
    # The connection by which the setting was changed may have counted until it ended.
    assert len(open_ones()) >= 3
    for connection in connections:
        connection.socket.close()
    broker.stop()


def is_at_its_end(connection: Connection) -> bool:
    """True if the broker has closed a connection on which nothing is expected."""
    readable, _, _ = select.select([connection.socket], [], [], 0)
    try:
        return bool(readable) and connection.socket.recv(1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


def is_answered(connection: Connection) -> bool:
    """True if a Metadata request is answered on this connection in time; a late answer counts as none."""
    try:
        return connection.exchange(METADATA_OF_NOTHING)[:4] == struct.pack(">i", 7)
    except (ConnectionClosed, TimeoutError):
        return False


def is_served(broker: Broker) -> bool:
    """True if a new connection is served."""
    with Connection(broker.bootstrap) as connection:
        return is_answered(connection)
