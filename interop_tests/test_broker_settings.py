"""Changes of a running broker's settings: taken or refused as by Apache Kafka, also where other settings decide."""

from __future__ import annotations

import struct

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import wait_until
from interop_tests.conftest import StartBroker
from interop_tests.wire import Connection, compact_string, request_header

pytestmark = [pytest.mark.own_broker, pytest.mark.area("settings"), pytest.mark.client("raw frames")]

INCREMENTAL_ALTER_CONFIGS = 44
BROKER = 4
SET, DELETE = 0, 1
TAKEN, INVALID_REQUEST = 0, 42

SETTINGS = {
    "log.retention.minutes": "60",
    "log.retention.bytes": "1000000",
    "log.cleaner.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.io.threads": "4",
    "listener.name.internal.max.connections": "50",
}


def alter(
    broker: BrokerProcess, changes: str, *, resource: str = "1", operation: int = SET, validate_only: bool = True
) -> tuple[int, str]:
    """IncrementalAlterConfigs version 1 with settings ``a=1 | b=2`` of the broker: error code and message."""
    configs = [change.partition("=") for change in changes.split(" | ")]
    entries = b"".join(
        compact_string(key)
        + struct.pack(">b", operation)
        + (b"\0" if operation == DELETE else compact_string(value))
        + b"\0"
        for key, _, value in configs
    )
    body = b"\2" + struct.pack(">b", BROKER) + compact_string(resource) + bytes([len(configs) + 1]) + entries + b"\0"
    body += struct.pack(">?", validate_only) + b"\0"
    with Connection(broker.bootstrap) as connection:
        reply = connection.exchange(request_header(INCREMENTAL_ALTER_CONFIGS, 1, flexible=True) + body)
    # correlation id, tags, throttle time, one resource
    (error,) = struct.unpack_from(">h", reply, 4 + 1 + 4 + 1)
    size, position = reply[12] & 127, 13
    if reply[12] > 127:
        size, position = size | reply[13] << 7, 14
    return error, reply[position : position + max(size - 1, 0)].decode()


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("broker-settings", SETTINGS)


TAKEN_AT_BOTH_LEVELS = [
    "num.io.threads=2",
    "num.io.threads=4",
    "num.io.threads=7",
    "num.io.threads=8",
    "num.network.threads=1",
    "num.network.threads=3",
    "num.network.threads=6",
    "num.replica.fetchers=1",
    "num.replica.fetchers=2",
    "num.recovery.threads.per.data.dir=1",
    "num.recovery.threads.per.data.dir=2",
    "num.recovery.threads.per.data.dir=4",
    "background.threads=5",
    "background.threads=7",
    "background.threads=10",
    "background.threads=20",
    "log.cleaner.threads=1",
    "log.cleaner.threads=2",
    "log.cleaner.threads=4",
    "remote.log.reader.threads=5",
    "remote.log.reader.threads=7",
    "remote.log.reader.threads=10",
    "remote.log.reader.threads=20",
    "remote.log.manager.copier.thread.pool.size=5",
    "remote.log.manager.copier.thread.pool.size=7",
    "remote.log.manager.copier.thread.pool.size=10",
    "remote.log.manager.copier.thread.pool.size=20",
    "remote.log.manager.expiration.thread.pool.size=5",
    "remote.log.manager.expiration.thread.pool.size=7",
    "remote.log.manager.expiration.thread.pool.size=10",
    "remote.log.manager.expiration.thread.pool.size=20",
    "remote.log.manager.follower.thread.pool.size=1",
    "remote.log.manager.follower.thread.pool.size=2",
    "remote.log.manager.follower.thread.pool.size=4",
    "log.cleaner.dedupe.buffer.size=2097154",
    "log.cleaner.threads=4 | log.cleaner.dedupe.buffer.size=4194308",
    "log.local.retention.ms=3600000",
    "log.local.retention.ms=-2",
    "log.local.retention.ms=3600001 | log.retention.ms=3600001",
    "log.retention.ms=-1",
    "log.retention.ms=-2",
    "log.local.retention.bytes=1000000",
    "log.retention.bytes=-5",
    "log.cleaner.min.compaction.lag.ms=5 | log.cleaner.max.compaction.lag.ms=4",
    "log.cleanup.policy=",
    "max.connections=1",
    "max.connections.per.ip=0 | max.connections.per.ip.overrides=localhost:5",
    "listener.name.plaintext.max.connections=5",
    "listener.name.plaintext.num.network.threads=3",
    "listener.name.other.max.connections=5",
    "producer.id.expiration.ms=5",
    "remote.log.index.file.cache.total.size.bytes=5",
    "group.consumer.assignment.interval.ms=15000",
    "leader.replication.throttled.rate=0",
    "follower.replication.throttled.rate=1",
    "replica.alter.log.dirs.io.max.bytes.per.second=0",
    "metric.reporters=",
    "unknown.key=5",
    "config.providers=a",
    "config.providers=",
    "log.flush.interval.ms=-1",
    "log.flush.interval.ms=0",
]

REFUSED_AT_BOTH_LEVELS = [
    "num.io.threads=-1",
    "num.io.threads=0",
    "num.io.threads=1",
    "num.io.threads=9",
    "num.network.threads=-1",
    "num.network.threads=0",
    "num.network.threads=7",
    "num.replica.fetchers=-1",
    "num.replica.fetchers=0",
    "num.replica.fetchers=3",
    "num.replica.fetchers=7",
    "num.recovery.threads.per.data.dir=-1",
    "num.recovery.threads.per.data.dir=0",
    "num.recovery.threads.per.data.dir=5",
    "num.recovery.threads.per.data.dir=7",
    "background.threads=-1",
    "background.threads=0",
    "background.threads=1",
    "background.threads=4",
    "background.threads=21",
    "log.cleaner.threads=-1",
    "log.cleaner.threads=0",
    "log.cleaner.threads=5",
    "log.cleaner.threads=7",
    "remote.log.reader.threads=-1",
    "remote.log.reader.threads=0",
    "remote.log.reader.threads=1",
    "remote.log.reader.threads=4",
    "remote.log.reader.threads=21",
    "remote.log.manager.copier.thread.pool.size=-1",
    "remote.log.manager.copier.thread.pool.size=0",
    "remote.log.manager.copier.thread.pool.size=1",
    "remote.log.manager.copier.thread.pool.size=4",
    "remote.log.manager.copier.thread.pool.size=21",
    "remote.log.manager.expiration.thread.pool.size=-1",
    "remote.log.manager.expiration.thread.pool.size=0",
    "remote.log.manager.expiration.thread.pool.size=1",
    "remote.log.manager.expiration.thread.pool.size=4",
    "remote.log.manager.expiration.thread.pool.size=21",
    "remote.log.manager.follower.thread.pool.size=-1",
    "remote.log.manager.follower.thread.pool.size=0",
    "remote.log.manager.follower.thread.pool.size=5",
    "remote.log.manager.follower.thread.pool.size=7",
    "log.cleaner.dedupe.buffer.size=2097152",
    "log.cleaner.dedupe.buffer.size=2097153",
    "log.cleaner.dedupe.buffer.size=1",
    "log.cleaner.threads=4 | log.cleaner.dedupe.buffer.size=4194304",
    "log.local.retention.ms=-1",
    "log.local.retention.ms=3600001",
    "log.retention.ms=0",
    "log.local.retention.bytes=-1",
    "log.local.retention.bytes=1000001",
    "log.roll.ms=0",
    "log.roll.jitter.ms=-1",
    "log.cleanup.policy=other",
    "log.segment.bytes=5",
    "cordoned.log.dirs=/other",
    "max.connections=0",
    "max.connection.creation.rate=0",
    "max.connections.per.ip=0",
    "max.connections.per.ip.overrides=localhost",
    "max.connections.per.ip.overrides=a b:1",
    "listener.name.plaintext.max.connections=0",
    "listener.name.plaintext.max.connection.creation.rate=0",
    "listener.name.plaintext.num.network.threads=7",
    "listener.name.plaintext.num.network.threads=0",
    "listener.name.plaintext.ssl.client.auth=nonsense",
    "producer.id.expiration.ms=0",
    "producer.id.expiration.ms=-1",
    "transaction.partition.verification.enable=maybe",
    "remote.log.index.file.cache.total.size.bytes=0",
    "remote.log.manager.copy.max.bytes.per.second=0",
    "remote.log.manager.fetch.max.bytes.per.second=0",
    "remote.fetch.max.wait.ms=0",
    "group.coordinator.cached.buffer.max.bytes=5",
    "group.consumer.assignment.interval.ms=15001",
    "group.consumer.assignment.interval.ms=-1",
    "group.share.assignment.interval.ms=15001",
    "share.coordinator.cached.buffer.max.bytes=5",
    "follower.fetch.last.tiered.offset.enable=x",
    "leader.replication.throttled.rate=-1",
    "leader.replication.throttled.rate=x",
    "compression.type=nothing",
    "compression.gzip.level=0",
    "message.max.bytes=-1",
    "min.insync.replicas=0",
    "unclean.leader.election.enable=x",
    "log.message.timestamp.type=x",
    "num.partitions=5",
    "node.id=5",
    "broker.id=1",
    "advertised.listeners=PLAINTEXT://localhost:1",
    "background.threads=x",
    "log.index.size.max.bytes=3",
    "log.flush.interval.messages=0",
    "log.preallocate=x",
    "ssl.protocol=TLS | listener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
    "max.connections=5 | listener.name.plaintext.connections.max.reauth.ms=5",
]

TAKEN_FOR_ONE_BROKER_ALONE = [
    "cordoned.log.dirs=*",
    "listener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
    "listener.name.plaintext.connections.max.reauth.ms=5",
    "listener.name.plaintext.socket.request.max.bytes=5",
    "sasl.enabled.mechanisms=PLAIN",
    "ssl.protocol=TLS",
]


@pytest.mark.parametrize("resource", ["1", ""])
@pytest.mark.parametrize("changes", TAKEN_AT_BOTH_LEVELS)
def test_taken(changes: str, resource: str, broker: BrokerProcess) -> None:
    """A change that Kafka takes is taken, for one broker and for all."""
    assert alter(broker, changes, resource=resource) == (TAKEN, "")


@pytest.mark.parametrize("resource", ["1", ""])
@pytest.mark.parametrize("changes", REFUSED_AT_BOTH_LEVELS)
def test_refused(changes: str, resource: str, broker: BrokerProcess) -> None:
    """A change that Kafka refuses is refused with INVALID_REQUEST, for one broker and for all."""
    assert alter(broker, changes, resource=resource)[0] == INVALID_REQUEST


@pytest.mark.parametrize("changes", TAKEN_FOR_ONE_BROKER_ALONE)
def test_taken_for_one_broker_alone(changes: str, broker: BrokerProcess) -> None:
    """A change that can be made for one broker, but not for all of them."""
    assert alter(broker, changes) == (TAKEN, "")
    assert alter(broker, changes, resource="")[0] == INVALID_REQUEST


def test_pools_of_threads_change_by_a_factor_of_two_at_most(broker: BrokerProcess) -> None:
    """Each change is held against the number of threads that there is then, also one that goes back to the default."""

    def change(number: int, operation: int = SET, resource: str = "1") -> str:
        changes = f"num.io.threads={number}"
        code, text = alter(broker, changes, resource=resource, operation=operation, validate_only=False)
        assert code in (TAKEN, INVALID_REQUEST)
        return text

    def failure(number: int, reason: str) -> str:
        return (
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
            f"failed for num.io.threads={number}, value should {reason} for configuration Invalid dynamic configuration"
        )

    def is_now(number: int) -> None:
        """Kafka's broker hears of a change a moment after it was stored."""
        expected = failure(999, f"not be greater than double the current value {number}")
        wait_until(lambda: change(999) == expected, f"{number} threads")

    assert change(16) == failure(16, "not be greater than double the current value 4")
    assert change(8) == ""
    is_now(8)
    assert change(3) == failure(3, "be at least half the current value 8")
    assert change(16) == ""
    is_now(16)
    # Without its own value the broker would go back to the four threads that it was started with.
    assert change(4, DELETE) == failure(4, "be at least half the current value 16")
    # All brokers may be given another number, as this one has its own.
    assert change(4, resource="") == ""
    assert change(8) == ""
    is_now(8)
    assert change(4, DELETE) == ""
    assert change(4, DELETE, resource="") == ""
    is_now(4)


def test_a_stored_setting_of_a_listener_hinders_changes_of_those_of_all(broker: BrokerProcess) -> None:
    """A listener's settings are held against those of the start when a key of all listeners changes."""
    stored = "listener.name.plaintext.connections.max.reauth.ms=5"

    def limit() -> int:
        return alter(broker, "max.connections=77")[0]

    assert limit() == TAKEN
    assert alter(broker, stored, validate_only=False) == (TAKEN, "")
    wait_until(lambda: limit() == INVALID_REQUEST, "the stored setting counts")
    assert "existing listener ListenerName(PLAINTEXT), restart broker" in alter(broker, "max.connections=77")[1]
    assert alter(broker, stored, operation=DELETE, validate_only=False) == (TAKEN, "")
    wait_until(lambda: limit() == TAKEN, "the stored setting is gone")
