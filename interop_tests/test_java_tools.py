"""Apache Kafka's command-line tools, unchanged, against the broker; each call starts a JVM, so few tests do much."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import confluent_kafka
import pytest

from interop_tests.clients import Message, confluent_produce, create_topic, kafka_python_consume, poll_confluent
from interop_tests.java_tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    DELETE_RECORDS,
    FEATURES,
    GET_OFFSETS,
    LOG_DIRS,
    METADATA_QUORUM,
    TOPICS,
    JavaTools,
)

pytestmark = [pytest.mark.java, pytest.mark.area("admin"), pytest.mark.client("Java tools")]

Unique = Callable[[str], str]


def numbered(count: int, start: int = 0) -> list[Message]:
    """Records whose key and value say their number."""
    return [Message(f"k{n}".encode(), f"v{n}".encode()) for n in range(start, start + count)]


def consume_and_commit(bootstrap: str, topic: str, group: str, count: int) -> None:
    """A member that reads `count` records, commits, and leaves: the group stays behind, empty, with offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        poll_confluent(consumer, count)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_the_order_of_a_topics_settings(tools: JavaTools, name: str) -> None:
    """P-613: kafka-topics shows settings in the order of the answer to DescribeConfigs."""
    settings = ("retention.ms=3600000", "segment.bytes=1048576", "flush.messages=7", "compression.zstd.level=4")
    options = [option for setting in settings for option in ("--config", setting)]
    tools.check(TOPICS, "--create", "--topic", name, *options)
    head, *_ = tools.check(TOPICS, "--describe", "--topic", name).lines
    shown = [setting for setting in head.partition("Configs: ")[2].split(",") if setting in settings]
    assert shown == ["segment.bytes=1048576", "retention.ms=3600000", "flush.messages=7", "compression.zstd.level=4"]


def test_topic_life(tools: JavaTools, name: str) -> None:
    """kafka-topics: create, list, describe, alter, create again, delete, describe what is gone."""
    tools.check(TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000")
    assert name in tools.check(TOPICS, "--list").lines
    head, *partitions = tools.check(TOPICS, "--describe", "--topic", name).lines
    assert re.search(
        r"TopicId: [\w-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention.ms=3600000", head
    )
    found = [re.search(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", line) for line in partitions]
    assert [match and match[1] for match in found] == ["0", "1"]
    assert all(match and match[2] == match[3] == match[4] for match in found), partitions
    tools.check(TOPICS, "--alter", "--topic", name, "--partitions", "3")
    again = tools.run(TOPICS, "--create", "--topic", name)
    assert again.returncode == 1
    assert f"Topic '{name}' already exists." in again.stdout + again.stderr
    fewer = tools.run(TOPICS, "--alter", "--topic", name, "--partitions", "2")
    assert fewer.returncode == 1
    assert "currently has 3 partition(s); 2 would not be an increase." in fewer.stdout + fewer.stderr
    tools.check(TOPICS, "--delete", "--topic", name)
    gone = tools.run(TOPICS, "--describe", "--topic", name)
    assert gone.returncode == 1
    assert f"Topic '{name}' does not exist as expected" in gone.stdout + gone.stderr


def test_topic_that_cannot_be(tools: JavaTools, name: str) -> None:
    """The broker's own words for a replication factor and a config that it does not take."""
    # The tool judges a wrong name by itself; that the broker does too is asked by raw frames in test_wire_errors.
    too_many = tools.run(TOPICS, "--create", "--topic", name, "--replication-factor", "3")
    assert too_many.returncode == 1
    assert "Unable to replicate the partition 3 time(s)" in too_many.stdout + too_many.stderr
    wrong = tools.run(TOPICS, "--create", "--topic", name, "--config", "retention.ms=soon")
    assert wrong.returncode == 1
    assert "Invalid value soon for configuration retention.ms" in wrong.stdout + wrong.stderr


def test_topic_configs(tools: JavaTools, bootstrap: str, name: str) -> None:
    """kafka-configs on a topic: add two, see them with source and synonyms, delete one, refuse nonsense."""
    create_topic(bootstrap, name)
    topic = ("--entity-type", "topics", "--entity-name", name)
    tools.check(CONFIGS, *topic, "--alter", "--add-config", "cleanup.policy=compact,max.message.bytes=12345")
    described = tools.check(CONFIGS, *topic, "--describe").stdout
    assert f"Dynamic configs for topic {name} are:" in described
    assert re.search(
        r"cleanup.policy=compact sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact", described
    )
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
    tools.check(CONFIGS, *topic, "--alter", "--delete-config", "cleanup.policy")
    everything = tools.check(CONFIGS, *topic, "--describe", "--all").stdout
    assert "cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}" in everything
    assert "max.message.bytes=12345" in everything
    refused = tools.run(CONFIGS, *topic, "--alter", "--add-config", "max.message.bytes=-5")
    assert refused.returncode == 1
    assert "Invalid value -5 for configuration max.message.bytes" in refused.stdout + refused.stderr


def test_broker_configs(tools: JavaTools) -> None:
    """kafka-configs on the brokers: a dynamic default is set, seen, and taken back."""
    brokers = ("--entity-type", "brokers", "--entity-default")
    tools.check(CONFIGS, *brokers, "--alter", "--add-config", "log.cleaner.backoff.ms=14000")
    assert "log.cleaner.backoff.ms=14000" in tools.check(CONFIGS, *brokers, "--describe").stdout
    tools.check(CONFIGS, *brokers, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in tools.check(CONFIGS, *brokers, "--describe").stdout
    read_only = tools.run(CONFIGS, *brokers, "--alter", "--add-config", "node.id=7")
    assert read_only.returncode == 1
    assert "node.id" in read_only.stdout + read_only.stderr


@pytest.mark.area("groups")
def test_consumer_groups(tools: JavaTools, bootstrap: str, name: str, unique: Unique) -> None:
    """kafka-consumer-groups: list, describe in four ways, reset, delete offsets, delete."""
    group = unique("group")
    create_topic(bootstrap, name, 2)
    confluent_produce(bootstrap, name, numbered(40))
    consume_and_commit(bootstrap, name, group, 40)
    assert group in tools.check(CONSUMER_GROUPS, "--list").lines
    listed = {row["GROUP"]: row for row in tools.check(CONSUMER_GROUPS, "--list", "--state", "--type").rows}
    assert (listed[group]["TYPE"], listed[group]["STATE"]) == ("Classic", "Empty")
    described = tools.check(CONSUMER_GROUPS, "--describe", "--group", group)
    assert "has no active members" in described.stdout + described.stderr
    rows = offsets_of(described.stdout, name)
    assert {row["PARTITION"] for row in rows} == {"0", "1"}
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 40
    assert all(row["CURRENT-OFFSET"] == row["LOG-END-OFFSET"] and row["LAG"] == "0" for row in rows)

    plan = tools.check(
        CONSUMER_GROUPS, "--group", group, "--topic", name, "--reset-offsets", "--to-offset", "3", "--execute"
    )
    assert {row["NEW-OFFSET"] for row in plan.rows if row.get("TOPIC") == name} == {"3"}
    rows = offsets_of(tools.check(CONSUMER_GROUPS, "--describe", "--group", group).stdout, name)
    assert {row["CURRENT-OFFSET"] for row in rows} == {"3"}
    assert sum(int(row["LAG"]) for row in rows) == 34

    deleted = tools.check(CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", f"{name}:1")
    assert re.search(rf"{name}\s+1\s+Successful", deleted.stdout)
    assert [
        row["PARTITION"]
        for row in offsets_of(tools.check(CONSUMER_GROUPS, "--describe", "--group", group).stdout, name)
    ] == ["0"]

    removed = tools.check(CONSUMER_GROUPS, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in removed.stdout
    assert group not in tools.check(CONSUMER_GROUPS, "--list").lines
    unknown = tools.run(CONSUMER_GROUPS, "--describe", "--group", group)
    assert "GroupIdNotFoundException" in unknown.stdout + unknown.stderr


@pytest.mark.area("groups")
def test_consumer_group_with_a_member(tools: JavaTools, bootstrap: str, name: str, unique: Unique) -> None:
    """kafka-consumer-groups describes a group with a member, and may not delete it or reset its offsets."""
    group = unique("group")
    create_topic(bootstrap, name, 2)
    confluent_produce(bootstrap, name, numbered(10))
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "client.id": "worker",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([name])
    try:
        poll_confluent(consumer, 10)
        consumer.commit(asynchronous=False)
        state = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--state").stdout
        assert re.search(rf"{group}\s+\S+:\d+\s+\(\d+\)\s+range\s+Stable\s+1", state), state
        members = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--members", "--verbose").stdout
        assert re.search(rf"{group}\s+worker-\S+\s+/127.0.0.1\s+worker\s+2\s+{name}\(0,1\)|{name}:0,1", members), (
            members
        )
        rows = offsets_of(tools.check(CONSUMER_GROUPS, "--describe", "--group", group).stdout, name)
        assert all(row["HOST"] == "/127.0.0.1" and row["CLIENT-ID"] == "worker" for row in rows)
        busy = tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
        assert "GroupNotEmptyException" in busy.stdout + busy.stderr
        reset = tools.run(
            CONSUMER_GROUPS, "--group", group, "--topic", name, "--reset-offsets", "--to-earliest", "--execute"
        )
        assert "Assignments can only be reset if the group" in reset.stdout + reset.stderr
    finally:
        consumer.close()


def offsets_of(described: str, topic: str) -> list[dict[str, str]]:
    """The rows of one topic in the table that --describe prints."""
    lines = [line.split() for line in described.splitlines() if line.strip()]
    head = next(cells for cells in lines if "CURRENT-OFFSET" in cells)
    return [dict(zip(head, cells, strict=False)) for cells in lines if topic in cells]


@pytest.mark.area("offsets")
def test_get_offsets_and_delete_records(tools: JavaTools, bootstrap: str, name: str, tmp_path: object) -> None:
    """kafka-get-offsets at each kind of time, before and after kafka-delete-records moves the beginning."""
    create_topic(bootstrap, name)
    confluent_produce(bootstrap, name, numbered(20))
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    later_ms = int(time.time() * 1000) + 60_000
    producer.produce(name, b"later", timestamp=later_ms)
    producer.produce(name, b"not so late", timestamp=later_ms - 30_000)
    assert producer.flush(30) == 0
    assert offset_at(tools, name, "-1") == 22
    assert offset_at(tools, name, "-2") == 0
    assert offset_at(tools, name, "-3") == 20, "the record with the greatest timestamp"
    assert offset_at(tools, name, str(later_ms - 40_000)) == 20
    plan = f"{tmp_path}/plan.json"
    with open(plan, "w") as file:
        file.write(f'{{"version": 1, "partitions": [{{"topic": "{name}", "partition": 0, "offset": 5}}]}}')
    assert f"partition: {name}-0\tlow_watermark: 5" in tools.check(DELETE_RECORDS, "--offset-json-file", plan).stdout
    assert offset_at(tools, name, "-2") == 5
    assert offset_at(tools, name, "0") == 5
    assert kafka_python_consume(bootstrap, [name], 17)[0].offset == 5


def offset_at(tools: JavaTools, topic: str, moment: str) -> int:
    output = tools.check(GET_OFFSETS, "--topic", topic, "--time", moment)
    return int(next(line for line in output.lines if line.startswith(f"{topic}:0:")).rpartition(":")[2])


@pytest.mark.area("records")
def test_console_producer_and_consumer(tools: JavaTools, bootstrap: str, name: str, unique: Unique) -> None:
    """Keys, headers, nulls and timestamps go in by the console producer and come out by the console consumer."""
    create_topic(bootstrap, name)
    reader = ("parse.key=true", "parse.headers=true", "key.separator=|", "headers.delimiter=;", "null.marker=NULL")
    lines = ["a:1,b:2;key|value", "c:3;NULL|no key", "d:4;deleted|NULL"]
    tools.check(
        CONSOLE_PRODUCER,
        *("--topic", name, "--request-required-acks", "all"),
        *(part for text in reader for part in ("--reader-property", text)),
        stdin="".join(f"{line}\n" for line in lines),
    )
    shown = (
        "print.key=true",
        "print.headers=true",
        "print.offset=true",
        "print.partition=true",
        "print.timestamp=true",
    )
    group = unique("group")
    output = tools.check(
        CONSOLE_CONSUMER,
        *("--topic", name, "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000", "--group", group),
        *(part for text in shown for part in ("--formatter-property", text)),
    )
    assert [re.sub(r"CreateTime:\d{13}", "CreateTime:T", line) for line in output.lines] == [
        "CreateTime:T\tPartition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "CreateTime:T\tPartition:0\tOffset:1\tc:3\tnull\tno key",
        "CreateTime:T\tPartition:0\tOffset:2\td:4\tdeleted\tnull",
    ]
    rows = offsets_of(tools.check(CONSUMER_GROUPS, "--describe", "--group", group).stdout, name)
    assert [row["CURRENT-OFFSET"] for row in rows] == ["3"], "the consumer committed when it ended"


@pytest.mark.area("storage")
def test_offsets_topic_is_kafkas(tools: JavaTools, bootstrap: str, name: str, unique: Unique) -> None:
    """The console consumer's own formatters read __consumer_offsets: the offsets, and the group's metadata."""
    group = unique("group")
    create_topic(bootstrap, name)
    confluent_produce(bootstrap, name, numbered(7))
    consume_and_commit(bootstrap, name, group, 7)

    def lines(formatter: str) -> list[str]:
        """Lines that it prints of the group."""
        # It ends when nothing comes for so long: on a slow machine too early, before its first record.
        for timeout_ms in ("4000", "40000"):
            arguments = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", timeout_ms)
            named = f"org.apache.kafka.tools.consumer.{formatter}"
            printed = tools.run(CONSOLE_CONSUMER, *arguments, "--formatter", named).lines
            mine = [line for line in printed if f'"group":"{group}"' in line]
            if mine:
                return mine
        raise AssertionError(printed[-20:])

    mine = lines("OffsetsMessageFormatter")
    assert f'"topic":"{name}","partition":0' in mine[-1]
    assert '"offset":7' in mine[-1]
    mine = lines("GroupMetadataMessageFormatter")
    assert '"protocolType":"consumer"' in mine[0]
    assert '"protocol":"range"' in "".join(mine)


def test_the_cluster_describes_itself(tools: JavaTools, bootstrap: str, name: str) -> None:
    """kafka-metadata-quorum, kafka-cluster, kafka-features, kafka-broker-api-versions, kafka-log-dirs."""
    status = dict(line.split(":", 1) for line in tools.check(METADATA_QUORUM, "describe", "--status").lines)
    assert re.fullmatch(r"[\w-]{22}", status["ClusterId"].strip())
    leader = status["LeaderId"].strip()
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 0
    assert status["MaxFollowerLag"].strip() == "0"
    assert f'"id": {leader}' in status["CurrentVoters"]
    replication = tools.check(METADATA_QUORUM, "describe", "--replication").rows
    assert [(row["NodeId"], row["Lag"], row["Status"]) for row in replication] == [(leader, "0", "Leader")]
    cluster = tools.check(CLUSTER, "cluster-id", "--bootstrap-server", bootstrap, connected=False).stdout
    assert f"Cluster ID: {status['ClusterId'].strip()}" in cluster
    features = tools.check(FEATURES, "describe").stdout
    levels = r"SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    found = re.search(rf"Feature: metadata.version\s+{levels}", features)
    assert found, features
    assert all(version.startswith(("3.", "4.")) for version in found.groups())
    versions = tools.check(API_VERSIONS).stdout
    assert re.search(r"\(id: \d+ rack: null isFenced: false\) -> \(", versions), versions[:300]
    for api in (
        "Produce(0)",
        "Fetch(1)",
        "Metadata(3)",
        "JoinGroup(11)",
        "ApiVersions(18)",
        "DescribeTopicPartitions(75)",
    ):
        assert re.search(rf"{re.escape(api)}: \d+( to \d+)? \[usable: \d+\]", versions), api
    create_topic(bootstrap, name)
    confluent_produce(bootstrap, name, numbered(3))
    folders = tools.check(LOG_DIRS, "--describe", "--topic-list", name).stdout
    assert f'"partition":"{name}-0"' in folders
    assert '"error":null' in folders
