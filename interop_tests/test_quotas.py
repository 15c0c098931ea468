"""Client quotas: throttle times by hand-made frames, stock clients that are throttled, mutations by the Java admin.

A time is only ever compared with the throttle time below it, which holds on a machine of any speed. That a response or
an unthrottled client is quick is tested with a virtual clock (`tests/pykbroker/quotas`).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.brokers import Broker, BrokerProcess
from interop_tests.clients import create_topic, wait_until
from interop_tests.java_tools import CONFIGS, TOPICS, JavaTools
from interop_tests.quota_clients import QuotaClient, alter_quota, has_quota
from interop_tests.wire import string

pytestmark = [pytest.mark.area("quotas")]

StartBroker = Callable[..., BrokerProcess]

WINDOW_S = 10.0
"""The ten whole windows over which Kafka computes a rate; the one in progress comes on top."""

LIMIT = 400_000.0
"""Bytes per second of the stock clients."""

RECORD = b"x" * 5_000
REQUEST_SIZE = 20_000
THROTTLED_S = 8.0
"""Seconds that the records of a test take at the limit."""

TWO_WINDOWS = {"quota.window.num": "2"}
BURST_S = 2.5
"""Seconds that a client may be ahead of its limit, with `TWO_WINDOWS` and a request above it. With eleven windows it
would get ten seconds' bytes at once."""


@contextmanager
def quota(bootstrap: str, entity: dict[str, str | None], key: str, value: float) -> Iterator[None]:
    """A quota that is removed at the end."""
    alter_quota(bootstrap, entity, key, value)
    # Apache Kafka answers before its broker has the quota.
    wait_until(lambda: has_quota(bootstrap, entity, key), "the quota")
    try:
        yield
    finally:
        alter_quota(bootstrap, entity, key, None)
        wait_until(lambda: not has_quota(bootstrap, entity, key), "the end of the quota")


def expected_ms(size: int, limit: float) -> float:
    """Throttle time of the first request of a client."""
    return (size / WINDOW_S - limit) / limit * WINDOW_S * 1000


@pytest.fixture(scope="module")
def quota_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that measures rates over one to two seconds."""
    return start_broker("quotas", TWO_WINDOWS)


@pytest.mark.client("raw frames")
def test_throttle_times_of_a_producer(bootstrap: str, name: str) -> None:
    """The size of the request decides; the next response comes after that time (P-268, P-269)."""
    create_topic(bootstrap, name)
    with quota(bootstrap, {"client-id": name}, "producer_byte_rate", 5000.0), QuotaClient(bootstrap, name) as client:
        frame = client.produce_frame(name, 60_000)
        began = time.monotonic()
        throttle_ms = client.produce_throttle_ms(frame)
        assert throttle_ms == pytest.approx(expected_ms(len(frame), 5000.0), abs=20)
        client.wait_reply()
        assert time.monotonic() - began >= throttle_ms / 1000


@pytest.mark.client("raw frames")
def test_acks_0_is_throttled_without_a_response(bootstrap: str, name: str) -> None:
    """The connection is not read for the throttle time all the same (P-269)."""
    create_topic(bootstrap, name)
    with quota(bootstrap, {"client-id": name}, "producer_byte_rate", 5000.0), QuotaClient(bootstrap, name) as client:
        frame = client.produce_frame(name, 60_000, acks=0)
        began = time.monotonic()
        client.send(frame)
        client.wait_reply()
        assert time.monotonic() - began >= expected_ms(len(frame), 5000.0) / 1000 - 0.02


@pytest.mark.client("raw frames")
def test_the_most_specific_quota_counts(bootstrap: str, name: str) -> None:
    """User and client id before the client id alone (P-266)."""
    create_topic(bootstrap, name)
    of_pair: dict[str, str | None] = {"user": "ANONYMOUS", "client-id": name}
    with quota(bootstrap, {"client-id": name}, "producer_byte_rate", 5000.0), QuotaClient(bootstrap, name) as client:
        frame = client.produce_frame(name, 60_000)
        with quota(bootstrap, of_pair, "producer_byte_rate", 5500.0):
            throttle_ms = client.produce_throttle_ms(frame)
            assert throttle_ms == pytest.approx(expected_ms(len(frame), 5500.0), abs=20)


@pytest.mark.client("raw frames")
def test_a_throttled_consumer_gets_an_empty_response(bootstrap: str, name: str) -> None:
    """And the records when the throttle time is over (P-271)."""
    create_topic(bootstrap, name)
    with QuotaClient(bootstrap, name) as client:
        assert client.produce_throttle_ms(client.produce_frame(name, 8000)) == 0
    with quota(bootstrap, {"client-id": name}, "consumer_byte_rate", 1000.0), QuotaClient(bootstrap, name) as client:
        first_asked = time.monotonic()
        assert client.fetch_throttle_ms(name) == (0, 1)
        began = time.monotonic()
        throttle_ms, topics = client.fetch_throttle_ms(name)
        assert topics == 0
        # Two responses of a little more than 8,000 bytes; what has passed since the first counts as time without bytes.
        between_ms = (time.monotonic() - first_asked) * 1000
        longest_ms = expected_ms(2 * 8130, 1000.0)
        assert longest_ms - between_ms - 300 <= throttle_ms <= longest_ms + 300
        throttle_ms_2, topics = client.fetch_throttle_ms(name)
        assert time.monotonic() - began >= throttle_ms / 1000
        # A rate is one over ten to eleven seconds until the first window is over: then all its bytes are gone at once.
        assert throttle_ms_2 > 0
        assert topics == 0
        assert client.fetch_throttle_ms(name) == (0, 1)


@pytest.mark.client("raw frames")
def test_time_on_the_brokers_threads(bootstrap: str, name: str) -> None:
    """request_percentage: throttle times of one window (P-270)."""
    with quota(bootstrap, {"client-id": name}, "request_percentage", 0.0001), QuotaClient(bootstrap, name) as client:
        began = time.monotonic()
        # The first is above a ten thousandth of a percent, that is 10 microseconds in ten seconds: the others wait.
        for _ in range(3):
            client.wait_reply()
        assert time.monotonic() - began >= 1


@pytest.mark.client("raw frames")
def test_connections_of_an_address(broker: Broker, bootstrap: str) -> None:
    """connection_creation_rate: ten seconds' worth are served, further ones closed after at most a window (P-274)."""
    address = "127.0.0.77"

    def is_served() -> bool:
        with socket.create_connection(broker.address, timeout=5, source_address=(address, 0)) as opened:
            opened.sendall(struct.pack(">ihhi", 10, 18, 0, 7) + string(None))
            try:
                return opened.recv(4) != b""
            except ConnectionResetError:
                return False

    with quota(bootstrap, {"ip": address}, "connection_creation_rate", 2.0):
        served = [is_served() for _ in range(22)]
        assert served[:20] == [True] * 20
        assert False in served[20:]
        wait_until(is_served, "a connection that is served again")
        with QuotaClient(bootstrap, "another address") as client:
            client.wait_reply()


class Throttles:
    """The throttle times in the responses to a librdkafka client."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, event: confluent_kafka.ThrottleEvent) -> None:
        """A response has a throttle time, or is the first one without."""
        self.count += event.throttle_time > 0


@pytest.mark.own_broker
@pytest.mark.client("confluent-kafka")
def test_a_producer_is_held_to_its_rate(quota_broker: BrokerProcess, name: str) -> None:
    """By producer_byte_rate; without the quota it is not held back any more (P-265, P-267, P-268)."""
    bootstrap = quota_broker.bootstrap
    create_topic(bootstrap, name)
    throttles = Throttles()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "batch.size": REQUEST_SIZE,
            "linger.ms": 20,
            "throttle_cb": throttles.note,
        }
    )

    def send(seconds: float) -> float:
        """Sends what the limit allows in so many seconds; the seconds that it took."""
        began = time.monotonic()
        for _ in range(int(LIMIT * seconds / len(RECORD))):
            producer.produce(name, RECORD)
        assert producer.flush(60) == 0
        return time.monotonic() - began

    with quota(bootstrap, {"client-id": name}, "producer_byte_rate", LIMIT):
        took_s = send(THROTTLED_S)
        assert throttles.count > 0
        assert took_s >= THROTTLED_S - BURST_S
    throttles.count = 0
    send(THROTTLED_S)
    assert throttles.count == 0


@pytest.mark.own_broker
@pytest.mark.client("confluent-kafka")
def test_a_consumer_is_held_to_its_rate(quota_broker: BrokerProcess, name: str) -> None:
    """By consumer_byte_rate (P-267, P-271)."""
    bootstrap = quota_broker.bootstrap
    create_topic(bootstrap, name)
    # A response has at least one batch, however large: these fit into the windows.
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.size": REQUEST_SIZE})
    record_count = int(LIMIT * THROTTLED_S / len(RECORD))
    for _ in range(record_count):
        producer.produce(name, RECORD)
    assert producer.flush(60) == 0
    throttles = Throttles()
    with quota(bootstrap, {"client-id": name}, "consumer_byte_rate", LIMIT):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": name,
                "auto.offset.reset": "earliest",
                # One whole batch: a part of a second one would be thrown away, and count all the same.
                "fetch.message.max.bytes": 1000,
                "throttle_cb": throttles.note,
            }
        )
        began = time.monotonic()
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        for _ in range(record_count):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
        assert throttles.count > 0
        assert time.monotonic() - began >= THROTTLED_S - BURST_S
        consumer.close()


@pytest.mark.client("confluent-kafka")
def test_mutations_of_a_client_that_does_not_know_the_error(bootstrap: str, name: str) -> None:
    """librdkafka's CreateTopics is carried out, and the client held back afterwards (P-273)."""
    with quota(bootstrap, {"client-id": name}, "controller_mutation_rate", 2.0):
        admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": name})
        began = time.monotonic()
        first = admin.create_topics([NewTopic(f"{name}-{number}", 13, 1) for number in range(2)])
        for future in first.values():
            future.result(20)
        (third,) = admin.create_topics([NewTopic(f"{name}-2", 1, 1)]).values()
        third.result(20)
        # 26 partitions of 22: the next request is read two seconds after the first response.
        assert time.monotonic() - began >= 1.9


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_mutations_and_tools(tools: JavaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    """kafka-topics is refused beyond controller_mutation_rate, which kafka-configs sets and removes (P-265, P-272)."""
    settings = tmp_path / "client.properties"
    settings.write_text(f"client.id={name}\n")
    entity = ("--entity-type", "clients", "--entity-name", name)
    tools.check(CONFIGS, *entity, "--alter", "--add-config", "controller_mutation_rate=0.1")

    def create(number: int) -> str:
        output = tools.run(
            TOPICS, "--command-config", str(settings), "--create", "--topic", f"{name}-{number}", "--partitions", "30"
        )
        return output.stdout + output.stderr

    assert f"Created topic {name}-1." in create(1)
    assert "ThrottlingQuotaExceededException" in create(2)
    # A client of its own that deletes has its own tokens.
    assert tools.run(TOPICS, "--delete", "--topic", f"{name}-1").returncode == 0
    tools.check(CONFIGS, *entity, "--alter", "--delete-config", "controller_mutation_rate")
    assert f"Created topic {name}-2." in create(2)
