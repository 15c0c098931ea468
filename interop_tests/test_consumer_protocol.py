"""Stock clients in consumer groups of KIP-848 (`group.protocol=consumer`): the Java client, librdkafka, the tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import KafkaPythonMember, Message, confluent_produce, create_topic, wait_until
from interop_tests.java_tools import CONFIGS, CONSUMER_GROUPS, DUMP_LOG, GROUPS, JavaTools
from interop_tests.verifiable import Consumer

pytestmark = [pytest.mark.area("groups"), pytest.mark.client("confluent-kafka", "Java tools")]

QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "0",
}
PARTITIONS = 4
WAIT_S = 90.0

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def quick(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker whose members hear of a rebalance within 200 ms."""
    return start_broker("consumer-protocol", QUICK_HEARTBEATS)


@pytest.fixture
def topic(quick: BrokerProcess, unique: Unique) -> str:
    return create_topic(quick.bootstrap, unique("clicks"), PARTITIONS)


@pytest.fixture
def confluent(quick: BrokerProcess) -> Iterator[Callable[..., confluent_kafka.Consumer]]:
    """Makes consumers of librdkafka that are closed with the test."""
    made: list[confluent_kafka.Consumer] = []

    def make(group: str, *topics: str, **config: Any) -> confluent_kafka.Consumer:
        settings = {
            "bootstrap.servers": quick.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **config,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(list(topics))
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def java(java_libs: Path, quick: BrokerProcess) -> Iterator[Callable[..., Consumer]]:
    """Starts VerifiableConsumers that are ended with the test."""
    started: list[Consumer] = []

    def start(group: str, topic: str, *arguments: str) -> Consumer:
        options = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose")
        protocol = ("--group-protocol", "consumer")
        started.append(Consumer(java_libs, "VerifiableConsumer", quick.bootstrap, *options, *protocol, *arguments))
        return started[-1]

    yield start
    for consumer in started:
        consumer.kill()


@pytest.fixture
def tools(java_libs: Path, quick: BrokerProcess) -> JavaTools:
    return JavaTools(java_libs, quick.bootstrap)


def numbered(count: int) -> list[Message]:
    return [Message(b"k%d" % number, b"%d" % number) for number in range(count)]


def partitions_of(consumer: confluent_kafka.Consumer) -> set[int]:
    return {place.partition for place in consumer.assignment()}


def consumed(consumers: list[confluent_kafka.Consumer]) -> list[str]:
    """Values that the consumers give in one round of polls."""
    values = []
    for consumer in consumers:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    return values


def test_confluent_members_share_a_topic(quick: BrokerProcess, topic: str, confluent: Any, unique: Unique) -> None:
    """Two consumers of librdkafka have two partitions each; one that stays takes all when the other closes."""
    group = unique("group")
    consumers = [confluent(group, topic), confluent(group, topic)]
    seen: list[str] = []

    def is_shared() -> bool:
        seen.extend(consumed(consumers))
        return [len(partitions_of(consumer)) for consumer in consumers] == [2, 2]

    wait_until(is_shared, "both have two partitions", timeout_s=WAIT_S)
    confluent_produce(quick.bootstrap, topic, numbered(100))

    def is_all() -> bool:
        seen.extend(consumed(consumers))
        return len(seen) >= 100

    wait_until(is_all, "all records", timeout_s=WAIT_S)
    assert sorted(seen, key=int) == [str(number) for number in range(100)]
    consumers[1].close()

    def has_all() -> bool:
        consumed(consumers[:1])
        return len(partitions_of(consumers[0])) == PARTITIONS

    wait_until(has_all, "the one that stays has all partitions", timeout_s=WAIT_S)


def test_confluent_subscribes_by_pattern(quick: BrokerProcess, unique: Unique, confluent: Any) -> None:
    """librdkafka sends the expression to the broker; topics that are created later are found."""
    stem = unique("by-pattern")
    create_topic(quick.bootstrap, f"{stem}-a", 1)
    consumer = confluent(unique("group"), f"^{stem}-.*")

    def has(count: int) -> Callable[[], bool]:
        def holds() -> bool:
            consumed([consumer])
            return len({place.topic for place in consumer.assignment()}) == count

        return holds

    wait_until(has(1), "one topic", timeout_s=WAIT_S)
    create_topic(quick.bootstrap, f"{stem}-b", 1)
    wait_until(has(2), "the topic that was created later", timeout_s=WAIT_S)


def test_committed_offsets_outlive_the_member(quick: BrokerProcess, topic: str, confluent: Any, unique: Unique) -> None:
    """A second consumer of the group begins where the first committed."""
    group = unique("group")
    confluent_produce(quick.bootstrap, topic, numbered(50))
    first = confluent(group, topic, **{"enable.auto.commit": False})
    seen: list[str] = []

    def has_half() -> bool:
        seen.extend(consumed([first]))
        return len(seen) >= 25

    wait_until(has_half, "half of the records", timeout_s=WAIT_S)
    first.commit(asynchronous=False)
    first.close()
    second = confluent(group, topic)

    def has_rest() -> bool:
        seen.extend(consumed([second]))
        return len(seen) >= 50

    wait_until(has_rest, "the rest", timeout_s=WAIT_S)
    assert sorted(seen, key=int) == [str(number) for number in range(50)]


def test_java_members_take_over_from_one_that_was_killed(
    quick: BrokerProcess, topic: str, java: Any, unique: Unique
) -> None:
    """Partitions of a killed Java member go to the other when its session ends."""
    group = unique("group")
    first, second = java(group, topic), java(group, topic)
    wait_until(lambda: (len(first.assigned), len(second.assigned)) == (2, 2), "both have two", timeout_s=WAIT_S)
    assert first.assigned | second.assigned == set(range(PARTITIONS))
    second.kill()
    wait_until(lambda: len(first.assigned) == PARTITIONS, "the other has all partitions", timeout_s=WAIT_S)
    confluent_produce(quick.bootstrap, topic, numbered(40))
    wait_until(lambda: len(first.values) >= 40, "all records", timeout_s=WAIT_S)
    assert sorted(first.values, key=int) == [str(number) for number in range(40)]


def test_a_static_java_member_comes_back_to_its_partitions(
    topic: str, java: Any, unique: Unique, tools: JavaTools
) -> None:
    """A static member that stops and returns has the partitions of before."""
    group = unique("group")
    # The start of a JVM takes longer than the session of 3 s on a busy machine: the member would come back to any two.
    place = ("--entity-type", "groups", "--entity-name", group)
    tools.check(CONFIGS, *place, "--alter", "--add-config", "consumer.session.timeout.ms=60000")
    first = java(group, topic, "--group-instance-id", "one")
    second = java(group, topic, "--group-instance-id", "two")
    wait_until(lambda: (len(first.assigned), len(second.assigned)) == (2, 2), "both have two", timeout_s=WAIT_S)
    had = first.assigned
    first.stop()
    again = java(group, topic, "--group-instance-id", "one")
    wait_until(lambda: len(again.assigned) == 2, "the partitions of before", timeout_s=WAIT_S)
    assert again.assigned == had


def test_a_classic_member_and_a_consumer_share_a_group(
    quick: BrokerProcess, topic: str, confluent: Any, unique: Unique, tools: JavaTools
) -> None:
    """kafka-python knows the classic protocol only: the group changes when librdkafka joins and when it leaves."""
    group = unique("group")
    classic = KafkaPythonMember(quick.bootstrap, topic, group)
    wait_until(lambda: len(classic.assigned) == PARTITIONS, "kafka-python has all", timeout_s=WAIT_S)
    assert type_of(tools, group) == "Classic"
    consumer = confluent(group, topic)

    def is_shared() -> bool:
        consumed([consumer])
        return len(classic.assigned) == 2 and len(partitions_of(consumer)) == 2

    wait_until(is_shared, "each has two", timeout_s=WAIT_S)
    assert type_of(tools, group) == "Consumer"
    assert classic.assigned | partitions_of(consumer) == set(range(PARTITIONS))
    consumer.close()
    wait_until(lambda: len(classic.assigned) == PARTITIONS, "kafka-python has all again", timeout_s=WAIT_S)
    assert type_of(tools, group) == "Classic"
    classic.close()


def type_of(tools: JavaTools, group: str) -> str:
    rows = tools.check(GROUPS, "--list").rows
    return next(row["TYPE"] for row in rows if row["GROUP"] == group)


def test_the_tools_see_and_change_consumer_groups(
    quick: BrokerProcess, topic: str, java: Any, unique: Unique, tools: JavaTools
) -> None:
    """`kafka-consumer-groups` describes, lists by type, resets offsets and deletes."""
    group = unique("group")
    confluent_produce(quick.bootstrap, topic, numbered(40))
    consumer = java(group, topic)
    wait_until(lambda: len(consumer.values) >= 40, "all records", timeout_s=WAIT_S)
    members = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--members", "--verbose").rows
    assert [row["#PARTITIONS"] for row in members] == [str(PARTITIONS)]
    state = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--state").stdout
    assert "Stable" in state
    assert "uniform" in state
    of_type = {name: tools.check(CONSUMER_GROUPS, "--list", "--type", name).rows for name in ("consumer", "classic")}
    assert group in [row["GROUP"] for row in of_type["consumer"]]
    assert group not in [row["GROUP"] for row in of_type["classic"]]
    refused = tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "not empty" in refused.stdout + refused.stderr
    consumer.stop()
    offsets = tools.check(CONSUMER_GROUPS, "--describe", "--group", group).rows
    assert sum(int(row["CURRENT-OFFSET"]) for row in offsets) == 40
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    tools.check(CONSUMER_GROUPS, *reset)
    again = java(group, topic)
    wait_until(lambda: len(again.values) >= 40, "all records again", timeout_s=WAIT_S)
    again.stop()
    tools.check(CONSUMER_GROUPS, "--delete", "--group", group)
    assert group not in tools.check(CONSUMER_GROUPS, "--list").lines


def test_settings_of_one_group(quick: BrokerProcess, topic: str, java: Any, unique: Unique, tools: JavaTools) -> None:
    """`kafka-configs --entity-type groups` sets the session timeout of one group."""
    group = unique("group")
    place = ("--entity-type", "groups", "--entity-name", group)
    tools.check(CONFIGS, *place, "--alter", "--add-config", "consumer.session.timeout.ms=60000")
    described = tools.check(CONFIGS, *place, "--describe").stdout
    assert "consumer.session.timeout.ms=60000" in described
    consumer = java(group, topic)
    wait_until(lambda: len(consumer.assigned) == PARTITIONS, "all partitions", timeout_s=WAIT_S)


def test_kafkas_formatter_reads_the_records(
    quick: BrokerProcess, topic: str, confluent: Any, unique: Unique, tools: JavaTools
) -> None:
    """`kafka-dump-log --offsets-decoder` reads every record of a consumer group."""
    group = unique("group")
    consumer = confluent(group, topic)

    def has_all() -> bool:
        consumed([consumer])
        return len(partitions_of(consumer)) == PARTITIONS

    wait_until(has_all, "all partitions", timeout_s=WAIT_S)
    consumer.close()
    assert quick.data_dir is not None
    logs = [path for path in quick.data_dir.glob("__consumer_offsets-*/*.log") if group.encode() in path.read_bytes()]
    assert len(logs) == 1
    dumped = tools.check(DUMP_LOG, "--offsets-decoder", "--files", str(logs[0]), connected=False).stdout
    ours = [line for line in dumped.splitlines() if f'"groupId":"{group}"' in line]
    assert {f'{{"type":"{number}"' in dumped for number in (3, 5, 6, 7, 8)} == {True}
    assert len(ours) >= 5
    assert "Error" not in dumped
