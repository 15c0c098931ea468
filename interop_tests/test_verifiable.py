"""Kafka's Java clients through VerifiableProducer and VerifiableConsumer, as Kafka's own system tests use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from interop_tests.clients import create_topic, kafka_python_consume, wait_until
from interop_tests.verifiable import TIMEOUT_S, Consumer, Tool
from interop_tests.wire import RECENT_MS, Connection, batch_codecs

pytestmark = [pytest.mark.java, pytest.mark.area("records"), pytest.mark.client("Java client")]

ASSIGNORS = "org.apache.kafka.clients.consumer"
Unique = Callable[[str], str]


@pytest.fixture
def produce(java_libs: Path, bootstrap: str) -> Callable[..., Tool]:
    """Runs a VerifiableProducer to its end."""

    def run(topic: str, *arguments: str) -> Tool:
        tool = Tool(java_libs, "VerifiableProducer", bootstrap, "--topic", topic, *arguments)
        tool.finish()
        return tool

    return run


@pytest.fixture
def consume(java_libs: Path, bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Consumer]]:
    """Starts VerifiableConsumers that are ended with the test; they hear of a rebalance by their next heartbeat."""
    started: list[Consumer] = []
    config = settings(tmp_path, heartbeat_interval_ms="300")

    def start(topic: str, group: str, *arguments: str) -> Consumer:
        options = (
            "--topic",
            topic,
            "--group-id",
            group,
            "--reset-policy",
            "earliest",
            "--verbose",
            "--command-config",
            config,
        )
        started.append(Consumer(java_libs, "VerifiableConsumer", bootstrap, *options, *arguments))
        return started[-1]

    yield start
    for tool in started:
        tool.kill()


def settings(tmp_path: Path, **config: str) -> str:
    """A file of client settings (`linger_ms="50"` sets linger.ms)."""
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in config.items()))
    return str(path)


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The offsets that a group has committed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
        return {found.partition: found.offset for found in consumer.committed(asked, 30)}
    finally:
        consumer.close()


def test_every_record_is_acknowledged(produce: Callable[..., Tool], bootstrap: str, name: str) -> None:
    """The idempotent Java producer gets an offset for each record; keys keep their partition, values their order."""
    topic = create_topic(bootstrap, name, 3)
    tool = produce(topic, "--max-messages", "3000", "--repeating-keys", "7", "--value-prefix", "4")
    acknowledged = tool.named("producer_send_success")
    assert len(acknowledged) == 3000
    assert not tool.named("producer_send_error")
    assert (tool.named("tool_data")[0]["sent"], tool.named("tool_data")[0]["acked"]) == (3000, 3000)
    places = {(event["partition"], event["offset"]): (event["key"], event["value"]) for event in acknowledged}
    stored = kafka_python_consume(bootstrap, [topic], 3000)
    found = {(m.partition, m.offset): ((m.key or b"").decode(), (m.value or b"").decode()) for m in stored}
    assert found == places
    assert len({(key, partition) for (partition, _), (key, _) in found.items()}) == 7, "a key has one partition"


@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks_without_idempotence(
    acks: str, produce: Callable[..., Tool], bootstrap: str, name: str, tmp_path: Path
) -> None:
    """With acks 0 and 1 every record is stored once."""
    topic = create_topic(bootstrap, name)
    config = settings(tmp_path, enable_idempotence="false")
    produce(topic, "--max-messages", "500", "--acks", acks, "--command-config", config)
    values = [int(message.value or b"") for message in kafka_python_consume(bootstrap, [topic], 500)]
    assert values == list(range(500))


def test_create_time_and_codec(produce: Callable[..., Tool], bootstrap: str, name: str, tmp_path: Path) -> None:
    """The producer's own timestamps are kept, in batches that it compressed with zstd."""
    topic = create_topic(bootstrap, name)
    config = settings(tmp_path, compression_type="zstd", linger_ms="50")
    produce(topic, "--max-messages", "50", "--message-create-time", str(RECENT_MS), "--command-config", config)
    with Connection(bootstrap) as connection:
        assert batch_codecs(connection.fetch(topic, 0, 0)) == {4}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    try:
        by_time = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, RECENT_MS)], 30)
        assert by_time[0].offset == 0
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        kind, stamp = message.timestamp()
        assert kind == confluent_kafka.TIMESTAMP_CREATE_TIME
        assert RECENT_MS <= stamp < RECENT_MS + 60_000
    finally:
        consumer.close()


@pytest.mark.area("errors")
def test_records_without_keys_for_a_compacted_topic(produce: Callable[..., Tool], bootstrap: str, name: str) -> None:
    """A compacted topic refuses records without keys as InvalidRecordException, one by one; nothing is stored."""
    topic = create_topic(bootstrap, name, cleanup_policy="compact")
    tool = produce(topic, "--max-messages", "3", "--throughput", "5")
    errors = [event["exception"] for event in tool.named("producer_send_error")]
    assert errors == ["class org.apache.kafka.common.InvalidRecordException"] * 3
    assert tool.named("tool_data")[0]["acked"] == 0
    produce(topic, "--max-messages", "3", "--repeating-keys", "3")


@pytest.mark.area("groups")
def test_consumer_killed(
    produce: Callable[..., Tool], consume: Callable[..., Consumer], bootstrap: str, name: str, unique: Unique
) -> None:
    """A member killed with -9 is out when its session ends; the other gets its partitions and goes on where it was."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    first = consume(topic, group, "--session-timeout", "6000")
    second = consume(topic, group, "--session-timeout", "6000")
    both = (first, second)
    wait_until(lambda: [len(tool.assigned) for tool in both] == [2, 2], "both to have two", timeout_s=TIMEOUT_S)
    assert first.assigned | second.assigned == {0, 1, 2, 3}
    produce(topic, "--max-messages", "1000", "--repeating-keys", "50")
    wait_until(lambda: len(first.values) + len(second.values) >= 1000, "all records", timeout_s=TIMEOUT_S)
    wait_until(
        lambda: sum(committed(bootstrap, group, topic, 4).values()) == 1000, "all to be committed", timeout_s=TIMEOUT_S
    )
    assert Counter(first.values + second.values) == Counter(str(number) for number in range(1000))
    second.kill()
    produce(topic, "--max-messages", "1000", "--repeating-keys", "50", "--value-prefix", "9")
    wait_until(lambda: len(first.assigned) == 4, "the first to have all", timeout_s=TIMEOUT_S)
    # What the second had taken and not committed when it was killed comes again.
    prefixed = {f"9.{number}" for number in range(1000)}
    wait_until(lambda: prefixed <= set(first.values + second.values), "the rest", timeout_s=TIMEOUT_S)
    first.stop()
    assert first.named("shutdown_complete")
    assert sum(committed(bootstrap, group, topic, 4).values()) == 2000


@pytest.mark.area("groups")
@pytest.mark.parametrize("assignor", ["CooperativeStickyAssignor", "RoundRobinAssignor"])
def test_members_come_and_go(
    assignor: str,
    produce: Callable[..., Tool],
    consume: Callable[..., Consumer],
    bootstrap: str,
    name: str,
    unique: Unique,
) -> None:
    """By either kind of rebalance a second member gets its share and gives it back, and each record is read once."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    strategy = ("--assignment-strategy", f"{ASSIGNORS}.{assignor}", "--enable-autocommit")
    first = consume(topic, group, *strategy)
    wait_until(lambda: len(first.assigned) == 4, "the first to have all", timeout_s=TIMEOUT_S)
    second = consume(topic, group, *strategy)
    wait_until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2, "both to have two", timeout_s=TIMEOUT_S)
    revoked = [len(event["partitions"]) for event in first.named("partitions_revoked")]
    assert sum(revoked) == (2 if assignor.startswith("Cooperative") else 4), "only cooperation keeps what stays"
    produce(topic, "--max-messages", "400", "--repeating-keys", "50")
    wait_until(lambda: len(first.values) + len(second.values) >= 400, "all records", timeout_s=TIMEOUT_S)
    second.stop()
    wait_until(lambda: len(first.assigned) == 4, "the first to have all again", timeout_s=TIMEOUT_S)
    first.stop()
    assert Counter(first.values + second.values) == Counter(str(number) for number in range(400))
    assert sum(committed(bootstrap, group, topic, 4).values()) == 400


@pytest.mark.area("groups")
def test_static_member(consume: Callable[..., Consumer], bootstrap: str, name: str, unique: Unique) -> None:
    """KIP-345: who comes back under its group.instance.id has the same partitions, and the other notices nothing."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    tools = {one: consume(topic, group, "--group-instance-id", one, "--session-timeout", "30000") for one in ("a", "b")}
    wait_until(lambda: [len(t.assigned) for t in tools.values()] == [2, 2], "both to have two", timeout_s=TIMEOUT_S)
    had, seen = tools["b"].assigned, len(tools["a"].named("partitions_assigned"))
    tools["b"].kill()
    again = consume(topic, group, "--group-instance-id", "b", "--session-timeout", "30000")
    wait_until(lambda: again.assigned == had, "the second to be back", timeout_s=TIMEOUT_S)
    assert len(tools["a"].named("partitions_assigned")) == seen
    assert not tools["a"].named("partitions_revoked") or seen > 1
