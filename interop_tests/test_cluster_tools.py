"""Kafka's own tools on a cluster: who leads, who is behind, moves with a throttle, elections, reads from a rack."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.clients import Message, confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster
from interop_tests.java_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    LEADER_ELECTION,
    METADATA_QUORUM,
    REASSIGN,
    TOPICS,
    JavaTools,
)
from interop_tests.wire import Connection, request_header, string

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.fault("none"),
    pytest.mark.client("Java tools"),
]

DELETE_TOPICS = 20
UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER = 3, 41
THROTTLE = 2_000_000
RECORD_BYTES = 50_000


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("tools")
    yield cluster
    cluster.close()


@pytest.fixture
def tools(java_libs: Path, cluster: Cluster) -> JavaTools:
    cluster.wait_until_whole()
    return JavaTools(java_libs, cluster.bootstrap)


def numbered(count: int, size: int = 0) -> list[Message]:
    return [Message(None, b"%06d" % number + b"." * size) for number in range(count)]


def json_file(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.sample
def test_describe_quorum(tools: JavaTools, cluster: Cluster) -> None:
    """kafka-metadata-quorum: the leader, its voters, nobody behind; the same while one node is dead."""
    leader = cluster.controller()
    status = dict(
        line.split(":", 1) for line in tools.check(METADATA_QUORUM, "describe", "--status").lines if ":" in line
    )
    assert int(status["LeaderId"]) == leader
    assert {int(number) for number in re.findall(r'"id": (\d+)', status["CurrentVoters"])} == set(cluster.nodes)
    rows = {int(row["NodeId"]): row for row in tools.check(METADATA_QUORUM, "describe", "--replication").rows}
    assert set(rows) == set(cluster.nodes)
    assert rows[leader]["Status"] == "Leader"
    assert {row["Status"] for node_id, row in rows.items() if node_id != leader} == {"Follower"}
    victim = next(node_id for node_id in cluster.nodes if node_id != leader)
    cluster.nodes[victim].kill()
    try:
        cluster.wait_until_whole()
        rows = {int(row["NodeId"]): row for row in tools.check(METADATA_QUORUM, "describe", "--replication").rows}
        other = next(node_id for node_id in cluster.nodes if node_id not in (leader, victim))
        assert int(rows[victim]["Lag"]) > int(rows[other]["Lag"])
    finally:
        cluster.nodes[victim].start()


def test_topics_at_a_controller_that_is_not_active(cluster: Cluster, name: str) -> None:
    """P-685: each controller refuses to delete unknown topics by what it knows itself; only the active one deletes."""
    cluster.wait_until_whole()
    create_topic(cluster.bootstrap, name, replicas=NODES)
    active = cluster.controller()
    names = "no-1", "no-2"
    for node_id, node in cluster.nodes.items():
        with Connection(node.overrides["listeners"].rpartition("://")[2]) as connection:
            assert errors_of_deletion(connection, *names) == dict.fromkeys(names, UNKNOWN_TOPIC_OR_PARTITION)
            if node_id != active:
                both = "no-1", name
                assert errors_of_deletion(connection, *both) == dict.fromkeys(both, NOT_CONTROLLER)


def errors_of_deletion(connection: Connection, *topics: str) -> dict[str, int]:
    """Error codes by name, by DeleteTopics version 3."""
    names = b"".join(map(string, topics))
    body = struct.pack(">i", len(topics)) + names + struct.pack(">i", 10_000)
    reply = connection.exchange(request_header(DELETE_TOPICS, 3) + body)
    errors, position = {}, 12  # after correlation id, throttle time and number of topics
    while position < len(reply):
        (length,) = struct.unpack_from(">h", reply, position)
        name, error = struct.unpack_from(f">{length}sh", reply, position + 2)
        errors[name.decode()] = error
        position += 2 + length + 2
    return errors


def test_under_replicated_partitions(tools: JavaTools, cluster: Cluster, name: str) -> None:
    """kafka-topics --describe: with a dead node its partitions are under-replicated, at the least in-sync, and back."""
    create_topic(cluster.bootstrap, name, 3, replicas=NODES)
    confluent_produce(cluster.bootstrap, name, numbered(30))
    assert tools.check(TOPICS, "--describe", "--under-replicated-partitions").lines == []
    victim = cluster.leader(name, 0)
    cluster.nodes[victim].kill()
    try:
        cluster.wait_until_whole()
        described = tools.check(TOPICS, "--describe", "--topic", name, "--under-replicated-partitions").lines
        assert len(described) == 3
        for line in described:
            isr = re.search(r"Isr: ([\d,]+)", line)
            assert isr is not None
            assert {int(number) for number in isr[1].split(",")} == set(cluster.nodes) - {victim}
        assert len(tools.check(TOPICS, "--describe", "--topic", name, "--at-min-isr-partitions").lines) == 3
    finally:
        cluster.nodes[victim].start()
    cluster.wait_until_whole()
    assert tools.check(TOPICS, "--describe", "--under-replicated-partitions").lines == []


def test_preferred_leaders(tools: JavaTools, cluster: Cluster, name: str) -> None:
    """kafka-leader-election: after a restart the preferred replica does not lead; asked to, it does again."""
    create_topic(cluster.bootstrap, name, 3, replicas=NODES)
    victim = cluster.leader(name, 0)
    cluster.nodes[victim].stop()
    assert cluster.leader(name, 0) != victim
    cluster.nodes[victim].start()
    cluster.wait_until_whole()
    assert cluster.leader(name, 0) != victim
    elected = tools.check(LEADER_ELECTION, "--election-type", "preferred", "--topic", name, "--partition", "0").stdout
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in elected
    wait_until(lambda: cluster.leader(name, 0) == victim, "the preferred leader")


def test_reassignment_with_a_throttle(tools: JavaTools, cluster: Cluster, name: str, tmp_path: Path) -> None:
    """kafka-reassign-partitions: partitions move to another node, throttled, and all records with them."""
    one, other, target = cluster.nodes
    assignment = f"{one}:{other},{other}:{one}"
    tools.check(TOPICS, "--create", "--topic", name, "--replica-assignment", assignment)
    count = 120
    confluent_produce(cluster.bootstrap, name, numbered(count, RECORD_BYTES))
    topics = json_file(tmp_path, "topics", {"version": 1, "topics": [{"topic": name}]})
    brokers = ",".join(map(str, cluster.nodes))
    generated = tools.check(REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", brokers)
    assert "Proposed partition reassignment configuration" in generated.stdout
    moves = [
        {"topic": name, "partition": 0, "replicas": [target, other]},
        {"topic": name, "partition": 1, "replicas": [target, one]},
    ]
    plan = ("--reassignment-json-file", json_file(tmp_path, "moves", {"version": 1, "partitions": moves}))
    began = tools.check(REASSIGN, "--execute", *plan, "--throttle", str(THROTTLE)).stdout
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in began
    assert f"The inter-broker throttle limit was set to {THROTTLE} B/s" in began
    described = tools.check(CONFIGS, "--entity-type", "brokers", "--entity-name", str(target), "--describe").stdout
    assert f"follower.replication.throttled.rate={THROTTLE}" in described
    verified: list[str] = []

    def is_complete() -> bool:
        verified.append(tools.check(REASSIGN, "--verify", *plan, "--preserve-throttles").stdout)
        return verified[-1].count("is completed.") == 2

    wait_until(is_complete, "the reassignment to end", timeout_s=60, pause_s=0.5)
    cleared = tools.check(REASSIGN, "--verify", *plan).stdout
    assert f"Clearing topic-level throttles on topic {name}" in cleared
    view = cluster.view().partitions
    assert [view[name, number].replicas for number in range(2)] == [[target, other], [target, one]]
    assert tools.check(REASSIGN, "--list").stdout.strip() == "No partition reassignments found."
    found = kafka_python_consume(cluster.bootstrap, [name], count)
    assert sorted(int((message.value or b"")[:6]) for message in found) == list(range(count))
    folder = cluster.nodes[target].data_dir
    assert folder is not None
    assert (folder / f"{name}-0").is_dir()


def test_reassignment_cancelled(tools: JavaTools, cluster: Cluster, name: str, tmp_path: Path) -> None:
    """kafka-reassign-partitions --cancel: a move that a throttle holds up ends where it began."""
    one, other, target = cluster.nodes
    tools.check(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{one}:{other}")
    confluent_produce(cluster.bootstrap, name, numbered(100, RECORD_BYTES))
    moves = [{"topic": name, "partition": 0, "replicas": [target, other]}]
    plan = ("--reassignment-json-file", json_file(tmp_path, "moves", {"version": 1, "partitions": moves}))
    tools.check(REASSIGN, "--execute", *plan, "--throttle", "10000")
    assert f"{name}-0: replicas: {target},{other},{one}. adding: {target}. removing: {one}." in (
        tools.check(REASSIGN, "--list").stdout
    )
    cancelled = tools.check(REASSIGN, "--cancel", *plan).stdout
    assert f"Successfully cancelled partition reassignment for: {name}-0" in cancelled
    assert sorted(cluster.view().partitions[name, 0].replicas) == [one, other]


@pytest.mark.fault("kill -9")
def test_console_tools_over_a_kill(tools: JavaTools, cluster: Cluster, name: str) -> None:
    """kafka-console-producer and -consumer with the whole bootstrap list, of which one node is dead."""
    create_topic(cluster.bootstrap, name, 3, replicas=NODES)
    victim = cluster.leader(name, 0)
    cluster.nodes[victim].kill()
    try:
        lines = "".join(f"line {number}\n" for number in range(50))
        tools.check(CONSOLE_PRODUCER, "--topic", name, "--command-property", "acks=all", stdin=lines)
        arguments = ("--topic", name, "--from-beginning", "--max-messages", "50", "--timeout-ms", "60000")
        assert sorted(tools.check(CONSOLE_CONSUMER, *arguments).lines) == sorted(lines.splitlines())
        assert len(kafka_python_consume(cluster.bootstrap, [name])) == 50, "none is stored twice"
    finally:
        cluster.nodes[victim].start()


def test_consumer_reads_from_its_rack(
    tools: JavaTools, cluster: Cluster, name: str, java_libs: Path, unique: Callable[[str], str]
) -> None:
    """KIP-392: a consumer with client.rack is sent to the replica of its rack, and reads everything there."""
    create_topic(cluster.bootstrap, name, 1, replicas=NODES)
    confluent_produce(cluster.bootstrap, name, numbered(200))
    leader = cluster.leader(name, 0)
    follower = next(node_id for node_id in cluster.nodes if node_id != leader)
    output = tools.check(
        CONSOLE_CONSUMER,
        *("--topic", name, "--from-beginning", "--max-messages", "200", "--timeout-ms", "60000"),
        *("--group", unique("rack"), "--command-property", f"client.rack=rack-{follower}"),
        *("--command-property", "fetch.max.wait.ms=100"),
    )
    assert sorted(output.lines) == [f"{number:06d}" for number in range(200)]
    # librdkafka says in its statistics from which broker it fetches.
    import confluent_kafka

    seen: list[int] = []

    def on_stats(text: str) -> None:
        partitions = json.loads(text)["topics"].get(name, {}).get("partitions", {}).values()
        seen.extend(partition["broker"] for partition in partitions if partition["partition"] == 0)

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": unique("rack"),
            "client.rack": f"rack-{follower}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": on_stats,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    values: list[bytes] = []

    def has_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return len(values) >= 200 and bool(seen) and seen[-1] == follower

    wait_until(has_read, f"200 records from node {follower}")
    consumer.close()
    assert values == [b"%06d" % number for number in range(200)]
