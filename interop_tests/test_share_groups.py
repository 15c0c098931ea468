"""Stock clients and tools in share groups of KIP-932: the Java share consumer, the console one, and the group tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import Message, confluent_produce, create_topic, wait_until
from interop_tests.java_tools import CONFIGS, FEATURES, GROUPS, JavaTools
from interop_tests.verifiable import Consumer

pytestmark = [pytest.mark.java, pytest.mark.area("groups"), pytest.mark.client("Java tools")]

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
}
WAIT_S = 90.0
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def quick(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker whose members of share groups hear of changes soon, with short locks."""
    return start_broker("share-groups", SETTINGS)


@pytest.fixture
def topic(quick: BrokerProcess, unique: Unique) -> str:
    return create_topic(quick.bootstrap, unique("orders"), 1)


@pytest.fixture
def tools(java_libs: Path, quick: BrokerProcess) -> JavaTools:
    return JavaTools(java_libs, quick.bootstrap)


@pytest.fixture
def java(java_libs: Path, quick: BrokerProcess) -> Iterator[Callable[..., Consumer]]:
    """Starts VerifiableShareConsumers, which are ended with the test."""
    started: list[Consumer] = []

    def start(group: str, topic: str, *arguments: str) -> Consumer:
        options = ("--topic", topic, "--group-id", group, "--offset-reset-strategy", "earliest", "--verbose")
        started.append(Consumer(java_libs, "VerifiableShareConsumer", quick.bootstrap, *options, *arguments))
        return started[-1]

    yield start
    for consumer in started:
        consumer.kill()


def numbered(first: int, end: int) -> list[Message]:
    return [Message(b"k%d" % number, b"%d" % number) for number in range(first, end)]


def acknowledged(consumer: Consumer) -> int:
    """Number of records whose acknowledgement the consumer knows to be stored."""
    return sum(event["count"] for event in consumer.named("offsets_acknowledged") if event.get("success"))


def from_earliest(tools: JavaTools, group: str, **configs: str) -> None:
    """Has a share group without a position begin at the beginning; and further configs of the group.

    Its locks and sessions are long: the records of a consumer that stands still for a while do not go to another one.
    """
    settings = {
        "share_auto_offset_reset": "earliest",
        "share_record_lock_duration_ms": "45000",
        "share_session_timeout_ms": "45000",
        **configs,
    }
    pairs = ",".join(f"{key.replace('_', '.')}={value}" for key, value in settings.items())
    tools.check(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", pairs)


def console(tools: JavaTools, topic: str, group: str, count: int, *options: str) -> list[str]:
    """Values that a console consumer gets, of at most `count` records."""
    output = tools.check(
        SHARE_CONSUMER,
        "--topic",
        topic,
        "--group",
        group,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "60000",
        *options,
    )
    return output.lines


def test_two_share_consumers_have_one_partition(
    quick: BrokerProcess, topic: str, tools: JavaTools, java: Callable[..., Consumer], unique: Unique
) -> None:
    """Two consumers share one partition: each record goes to one of them, and all are acknowledged."""
    group = unique("group")
    from_earliest(tools, group)
    consumers = [java(group, topic, "--acknowledgement-mode", mode) for mode in ("auto", "sync")]
    wait_until(lambda: all(c.named("startup_complete") for c in consumers), "both run", timeout_s=WAIT_S)
    count = 0

    def both_have_some() -> bool:
        # A consumer that joins first may have all that there is by then.
        nonlocal count
        confluent_produce(quick.bootstrap, topic, numbered(count, count + 100))
        count += 100
        return count >= 2_000 and all(consumer.values for consumer in consumers)

    wait_until(both_have_some, "both have records", timeout_s=WAIT_S)
    wait_until(lambda: sum(map(acknowledged, consumers)) >= count, "all are acknowledged", timeout_s=WAIT_S)
    seen = Counter(value for consumer in consumers for value in consumer.values)
    assert seen == Counter(str(number) for number in range(count))


def test_the_records_of_a_killed_consumer_go_to_another(
    quick: BrokerProcess, topic: str, tools: JavaTools, java: Callable[..., Consumer], unique: Unique
) -> None:
    """A consumer dies with records in its hands: the other one gets them, and what was accepted stays accepted."""
    group = unique("group")
    confluent_produce(quick.bootstrap, topic, numbered(0, 1_000))
    first = java(group, topic, "--acknowledgement-mode", "sync")
    wait_until(lambda: acknowledged(first) > 0, "some are acknowledged", timeout_s=WAIT_S)
    confluent_produce(quick.bootstrap, topic, numbered(1_000, 3_000))
    first.kill()
    second = java(group, topic, "--acknowledgement-mode", "sync")
    known = [event for event in first.named("offsets_acknowledged") if event.get("success")]
    accepted = {o for event in known for place in event["partitions"] for o in place["offsets"]}
    assert len(accepted) == acknowledged(first)

    # Records whose acknowledgement was stored, and whose response the first one did not read, do not come again.
    def is_all() -> bool:
        described = tools.check(SHARE_GROUPS, "--describe", "--group", group).rows
        return bool(described) and described[0]["LAG"] == "0"

    wait_until(is_all, "all are delivered for good", timeout_s=WAIT_S)
    assert not accepted & {event["offset"] for event in second.named("record_data")}


def test_console_consumers_and_tools(quick: BrokerProcess, topic: str, tools: JavaTools, unique: Unique) -> None:
    """kafka-console-share-consumer accepts and rejects; kafka-share-groups shows the group and resets it."""
    group = unique("group")
    confluent_produce(quick.bootstrap, topic, numbered(0, 20))
    from_earliest(tools, group)
    assert console(tools, topic, group, 20) == [str(number) for number in range(20)]
    described = tools.check(SHARE_GROUPS, "--describe", "--group", group)
    assert described.rows[0]["LAG"] == "0"
    state = tools.check(SHARE_GROUPS, "--describe", "--group", group, "--state").rows[0]
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")
    assert f"{group} Empty" in " ".join(tools.check(SHARE_GROUPS, "--list", "--state", "Empty").stdout.split())
    reset = tools.check(
        SHARE_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert reset.rows[0]["NEW-OFFSET"] == "0"
    assert tools.check(SHARE_GROUPS, "--describe", "--group", group).rows[0]["LAG"] == "20"
    assert console(tools, topic, group, 20) == [str(number) for number in range(20)]
    deleted = tools.check(SHARE_GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in deleted.stdout or topic in deleted.stdout
    tools.check(SHARE_GROUPS, "--delete", "--group", group)
    assert group not in tools.check(SHARE_GROUPS, "--list").stdout


def test_members_of_a_share_group_are_shown(
    quick: BrokerProcess, topic: str, tools: JavaTools, java: Callable[..., Consumer], unique: Unique
) -> None:
    """The tools show members with their assignments; a group with members is neither deleted nor reset."""
    group = unique("group")
    consumer = java(group, topic)
    confluent_produce(quick.bootstrap, topic, numbered(0, 5))
    wait_until(lambda: acknowledged(consumer) == 5, "it has consumed", timeout_s=WAIT_S)
    members = tools.check(SHARE_GROUPS, "--describe", "--group", group, "--members").rows
    assert [(row["GROUP"], row["ASSIGNMENT"]) for row in members] == [(group, f"{topic}:0")]
    refused = tools.run(
        SHARE_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert "not empty" in (refused.stdout + refused.stderr).lower() or refused.returncode != 0
    refused = tools.run(SHARE_GROUPS, "--delete", "--group", group)
    assert "not empty" in (refused.stdout + refused.stderr).lower()
    listed = tools.check(GROUPS, "--list", "--share").rows
    assert {"GROUP": group, "TYPE": "Share", "PROTOCOL": "share"} in listed


def test_released_records_come_again_and_are_given_up(
    quick: BrokerProcess, topic: str, tools: JavaTools, unique: Unique
) -> None:
    """A record that is released each time is archived after its last delivery."""
    group = unique("group")
    confluent_produce(quick.bootstrap, topic, numbered(0, 1))
    from_earliest(tools, group, share_delivery_count_limit="3")
    assert console(tools, topic, group, 3, "--release") == ["0", "0", "0"]
    assert tools.check(SHARE_GROUPS, "--describe", "--group", group).rows[0]["LAG"] == "0"
    confluent_produce(quick.bootstrap, topic, numbered(1, 2))
    assert console(tools, topic, group, 1) == ["1"]


def test_the_feature_is_finalized(tools: JavaTools) -> None:
    """kafka-features shows share.version at level 1, and cannot raise it further."""
    described = tools.check(FEATURES, "describe").lines
    line = next(line for line in described if line.startswith("Feature: share.version"))
    assert "FinalizedVersionLevel: 1" in line
    assert tools.run(FEATURES, "upgrade", "--feature", "share.version=2").returncode != 0
