"""The classic partitioning and group experiments: one table in the terminal and in reports/interop/."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka
import confluent_kafka.admin
import pytest

from interop_tests.clients import (
    KafkaPythonMember,
    Message,
    confluent_produce,
    create_topic,
    kafka_python_consume,
    kafka_python_produce,
    wait_until,
)
from interop_tests.java_tools import CONSOLE_PRODUCER, JavaTools

pytestmark = pytest.mark.area("partitioning")

COUNT = 300
KEYS = ("london", "paris", "tokyo")


class Row(NamedTuple):
    """One experiment as the table shows it."""

    experiment: str
    client: str
    setup: str
    outcome: str


class _Tables(Protocol):
    texts: list[str]


@pytest.fixture(scope="module")
def rows(reports: Path, summary_tables: _Tables, target: str) -> Iterator[list[Row]]:
    """Filled by the tests, written and shown when the last of them is done."""
    found: list[Row] = []
    yield found
    if not found:
        return
    table = as_table(found)
    (reports / "experiments.md").write_text(f"# Partitioning and group experiments against {target}\n\n{table}\n")
    summary_tables.texts.append(f"Partitioning and group experiments against {target}\n{table}")


def as_table(rows: list[Row]) -> str:
    """Markdown whose columns line up, so that it reads well in a terminal too."""
    heads = tuple(field.capitalize() for field in Row._fields)
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(heads), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])


def murmur2(data: bytes) -> int:
    """Kafka's partitioning hash: 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def expected_partition(key: str, partitions: int) -> int:
    """Partition of a key for every client that partitions as Kafka does: murmur2 of the key."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


@pytest.mark.client("none")
def test_murmur2_itself() -> None:
    """Values that Kafka's own unit test of this hash expects."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) for key in expected} == {key: value & 0xFFFFFFFF for key, value in expected.items()}


Produce = Callable[[str, list[Message]], None]


@pytest.fixture(
    params=[
        pytest.param("kafka-python", marks=pytest.mark.client("kafka-python 3")),
        pytest.param("confluent-kafka", marks=pytest.mark.client("confluent-kafka")),
        pytest.param("java", marks=[pytest.mark.java, pytest.mark.client("Java tools")]),
    ]
)
def client(request: pytest.FixtureRequest) -> str:
    """The producing client."""
    return str(request.param)


@pytest.fixture
def produce(client: str, bootstrap: str, request: pytest.FixtureRequest) -> Produce:
    """Sends messages with the client; librdkafka is told to hash as Kafka does (by default it takes CRC-32)."""
    if client == "kafka-python":
        return lambda topic, messages: kafka_python_produce(bootstrap, topic, messages)
    if client == "confluent-kafka":
        # Without stickiness the records of one short run spread over the partitions.
        config: dict[str, Any] = {"partitioner": "murmur2_random", "sticky.partitioning.linger.ms": 0}
        return lambda topic, messages: confluent_produce(bootstrap, topic, messages, **config)
    return lambda topic, messages: java_produce(request.getfixturevalue("tools"), topic, messages)


def java_produce(tools: JavaTools, topic: str, messages: list[Message]) -> None:
    # Java fills one partition until a batch is full before it takes the next, and prefers those it can send to sooner.
    # Small batches and no preference make it change often enough for the few records here.
    arguments = ["--topic", topic, "--max-partition-memory-bytes", "200"]
    arguments += ["--command-property", "partitioner.adaptive.partitioning.enable=false"]
    if messages[0].key is not None:
        arguments += ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = [f"{m.key.decode()}:{(m.value or b'').decode()}" if m.key else (m.value or b"").decode() for m in messages]
    tools.check(CONSOLE_PRODUCER, *arguments, stdin="".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("partitions", [2, 3])
def test_without_key(
    partitions: int, client: str, produce: Produce, bootstrap: str, name: str, rows: list[Row]
) -> None:
    """Records without a key spread over all partitions, each stored once."""
    topic = create_topic(bootstrap, name, partitions)
    # Long enough that Java, which changes partition only when a batch is full, does so often.
    sent = [Message(None, f"{number} {'.' * 100}".encode()) for number in range(COUNT)]
    produce(topic, sent)
    found = kafka_python_consume(bootstrap, [topic], COUNT)
    assert Counter(m.value for m in found) == Counter(m.value for m in sent)
    counts = Counter(m.partition for m in found)
    assert set(counts) == set(range(partitions)), counts
    outcome = ", ".join(f"p{number}: {counts[number]}" for number in range(partitions))
    rows.append(Row(f"no key, {partitions} partitions", client, f"{COUNT} records", f"spread: {outcome}"))


@pytest.mark.parametrize("key_count", [1, 2, 3])
@pytest.mark.parametrize("partitions", [2, 3])
def test_with_keys(
    partitions: int, key_count: int, client: str, produce: Produce, bootstrap: str, name: str, rows: list[Row]
) -> None:
    """Same key, same partition, and by Kafka's hash exactly which."""
    keys = KEYS[:key_count]
    topic = create_topic(bootstrap, name, partitions)
    produce(topic, [Message(keys[n % key_count].encode(), str(n).encode()) for n in range(COUNT)])
    values_by_key: dict[bytes | None, list[int]] = defaultdict(list)
    partitions_by_key: dict[str, set[int]] = defaultdict(set)
    for message in kafka_python_consume(bootstrap, [topic], COUNT):
        assert message.key is not None
        values_by_key[message.key].append(int(message.value or b""))
        partitions_by_key[message.key.decode()].add(message.partition)
    assert partitions_by_key == {key: {expected_partition(key, partitions)} for key in keys}
    assert all(values == sorted(values) for values in values_by_key.values()), "the order within a key"
    outcome = ", ".join(f"{key} -> p{expected_partition(key, partitions)}" for key in keys)

    rows.append(
        Row(f"{key_count} key{plural(key_count)}, {partitions} partitions", client, f"{COUNT} records", outcome)
    )


class Member(Protocol):
    """One consumer of a group, by whichever client."""

    @property
    def assigned(self) -> set[int]: ...

    @property
    def values(self) -> list[int]: ...

    def poll(self) -> None:
        """Takes part in the group for a moment and keeps what came."""

    def close(self) -> None:
        """Leaves the group."""


class ThreadedMember(KafkaPythonMember):
    """kafka-python, which polls by itself."""

    @property
    def values(self) -> list[int]:
        return [int(record.value) for record in self.records]

    def poll(self) -> None:
        """Its thread does."""


class ConfluentMember:
    """confluent-kafka, which is polled in turn with others."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.values: list[int] = []
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = confluent_kafka.Consumer({**settings, "heartbeat.interval.ms": 300})
        self.consumer.subscribe([topic])

    @property
    def assigned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            if message.error() is None:
                self.values.append(int(message.value() or b""))

    def close(self) -> None:
        self.consumer.close()


MEMBERS: dict[str, Callable[[str, str, str], Member]] = {
    "kafka-python": ThreadedMember,
    "confluent-kafka": ConfluentMember,
}
GROUP_EXPERIMENTS = [
    pytest.param(1, [2], id="1-partition-2-members"),
    pytest.param(2, [3], id="2-partitions-3-members"),
    pytest.param(2, [2, 1], id="2-partitions-2-members-and-another-group-of-1"),
]


@pytest.mark.parametrize(("partitions", "group_sizes"), GROUP_EXPERIMENTS)
@pytest.mark.parametrize(
    "member_client",
    [
        pytest.param("kafka-python", marks=pytest.mark.client("kafka-python 3")),
        pytest.param("confluent-kafka", marks=pytest.mark.client("confluent-kafka")),
    ],
)
def test_groups(
    partitions: int, group_sizes: list[int], member_client: str, bootstrap: str, name: str, rows: list[Row]
) -> None:
    """Each partition has one member in each group, members too many are idle, and each group gets every record once."""
    topic = create_topic(bootstrap, name, partitions)
    groups: list[list[Member]] = [
        [MEMBERS[member_client](bootstrap, topic, f"{name}-group-{number}") for _ in range(size)]
        for number, size in enumerate(group_sizes)
    ]
    members = [member for group in groups for member in group]
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    try:

        def settled() -> bool:
            for member in members:
                member.poll()
            # The shares alone would do for a group whose first member has all while the others have not joined yet.
            return all(
                shares(group) == fair_shares(partitions, len(group))
                and is_stable(admin, f"{name}-group-{number}", len(group))
                for number, group in enumerate(groups)
            )

        wait_until(settled, "the assignment to settle")
        kafka_python_produce(bootstrap, topic, [Message(str(n).encode(), str(n).encode()) for n in range(COUNT)])

        def all_there() -> bool:
            for member in members:
                member.poll()
            return all(sum(len(member.values) for member in group) >= COUNT for group in groups)

        wait_until(all_there, f"{COUNT} records in each group")
        wait_until(settled, "the assignment to be as it was")
        for group in groups:
            assert sorted(value for member in group for value in member.values) == list(range(COUNT))
            owned = sorted(number for member in group for number in member.assigned)
            assert owned == list(range(partitions)), "no partition twice, none forgotten"
            assert all(member.assigned or not member.values for member in group), "an idle member gets nothing"
        outcome = "; ".join(
            f"group {number + 1}: "
            + ", ".join(f"{describe(member.assigned)} {len(member.values)} records" for member in group)
            for number, group in enumerate(groups)
        )
    finally:
        for member in members:
            member.close()
    sizes = " + ".join(str(size) for size in group_sizes)
    setup = f"{COUNT} records, {len(groups)} group{plural(len(groups))}"
    rows.append(Row(f"{partitions} partition{plural(partitions)}, {sizes} members", member_client, setup, outcome))


def is_stable(admin: confluent_kafka.admin.AdminClient, group_id: str, size: int) -> bool:
    """True if the group is stable and has this many members, as its coordinator describes it."""
    described = admin.describe_consumer_groups([group_id])[group_id].result(30)
    return described.state == confluent_kafka.ConsumerGroupState.STABLE and len(described.members) == size


def shares(group: list[Member]) -> list[int]:
    """Numbers of partitions that the members have, the largest first."""
    return sorted((len(member.assigned) for member in group), reverse=True)


def fair_shares(partitions: int, members: int) -> list[int]:
    """Numbers of partitions of a fair assignment, the largest first."""
    return sorted((len(range(member, partitions, members)) for member in range(members)), reverse=True)


def describe(assigned: set[int]) -> str:
    """`p0+p1`, or `idle`."""
    return "+".join(f"p{number}" for number in sorted(assigned)) or "idle"


def plural(count: int) -> str:
    """The s of "2 keys"."""
    return "" if count == 1 else "s"
