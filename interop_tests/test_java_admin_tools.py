"""Apache Kafka's tools for administrators, unchanged: replicas, elections, features, quotas, every kind of setting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import (
    API_VERSIONS,
    CLIENT_METRICS,
    CLUSTER,
    CONFIGS,
    DELETE_RECORDS,
    FEATURES,
    GROUPS,
    LEADER_ELECTION,
    LOG_DIRS,
    METADATA_QUORUM,
    REASSIGN,
    JavaTools,
    Output,
)
from interop_tests.ports import free_port
from interop_tests.test_java_tools import numbered
from interop_tests.wire import Connection, request_header

pytestmark = [pytest.mark.java, pytest.mark.area("admin"), pytest.mark.client("Java tools")]

Unique = Callable[[str], str]

API_VERSIONS_KEY = 18
UNKNOWN_BROKER = "2147480000"


def json_file(folder: Path, content: Any) -> str:
    """A file for the tools that read their wishes from one."""
    path = folder / "wishes.json"
    path.write_text(json.dumps(content))
    return str(path)


def json_in(output: Output) -> list[Any]:
    """The lines of the output that are JSON objects."""
    return [json.loads(line) for line in output.lines if line.startswith("{")]


def refused(tools: JavaTools, main_class: str, *arguments: str) -> str:
    """Runs a tool that has to fail; all that it printed."""
    output = tools.run(main_class, *arguments)
    text = output.stdout + output.stderr
    assert output.returncode == 1, text
    return text


def moves_of(topic: str, *moves: tuple[int, list[int], list[str]]) -> dict[str, Any]:
    """Input of kafka-reassign-partitions: (partition, replicas, log directories) of one topic."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": replicas, "log_dirs": folders}
        for number, replicas, folders in moves
    ]
    return {"version": 1, "partitions": partitions}


def test_delete_records_partition_by_partition(tools: JavaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    """kafka-delete-records: each partition has its answer, one beyond the end keeps no other from being cut."""
    create_topic(bootstrap, name, 3)
    confluent_produce(bootstrap, name, numbered(300))
    offsets = {0: 5, 1: -1, 2: 10_000}
    partitions = [{"topic": name, "partition": number, "offset": offset} for number, offset in offsets.items()]
    plan = json_file(tmp_path, {"version": 1, "partitions": partitions})
    printed = tools.check(DELETE_RECORDS, "--offset-json-file", plan).stdout
    assert f"partition: {name}-0\tlow_watermark: 5\n" in printed
    # -1 is the high watermark.
    emptied = re.search(rf"partition: {name}-1\tlow_watermark: (\d+)", printed)
    assert emptied, printed
    assert int(emptied[1]) > 5
    assert re.search(rf"partition: {name}-2\terror: \S+OffsetOutOfRangeException", printed), printed


def test_log_dirs(tools: JavaTools, bootstrap: str, name: str) -> None:
    """kafka-log-dirs: sizes by broker, directory and partition; a broker that does not exist."""
    create_topic(bootstrap, name, 2)
    confluent_produce(bootstrap, name, numbered(100))
    (found,) = json_in(tools.check(LOG_DIRS, "--describe", "--topic-list", name))
    folders = [folder for broker in found["brokers"] for folder in broker["logDirs"]]
    assert [folder["error"] for folder in folders] == [None] * len(folders)
    assert all(folder["logDir"].startswith("/") for folder in folders)
    partitions = {partition["partition"]: partition for folder in folders for partition in folder["partitions"]}
    assert set(partitions) == {f"{name}-0", f"{name}-1"}
    assert all(
        partition["size"] > 0 and partition["offsetLag"] == 0 and not partition["isFuture"]
        for partition in partitions.values()
    )
    text = refused(tools, LOG_DIRS, "--describe", "--broker-list", UNKNOWN_BROKER)
    assert f"The given brokers do not exist from --broker-list: {UNKNOWN_BROKER}" in text


def test_leader_elections(tools: JavaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    """kafka-leader-election: nothing to elect, of one, some or all partitions; a topic that is not there (P-156)."""
    create_topic(bootstrap, name, 2)
    wanted = json_file(tmp_path, {"partitions": [{"topic": name, "partition": number} for number in (0, 1)]})
    some = tools.check(LEADER_ELECTION, "--election-type", "preferred", "--path-to-json-file", wanted).stdout
    assert re.search(rf"Valid replica already elected for partitions ({name}-[01](, )?){{2}}\n", some), some
    one = tools.check(LEADER_ELECTION, "--election-type", "unclean", "--topic", name, "--partition", "1").stdout
    assert f"Valid replica already elected for partitions {name}-1" in one
    # Of all partitions only those are told where there was something to do.
    assert tools.check(LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions").lines == []
    text = refused(tools, LEADER_ELECTION, "--election-type", "preferred", "--topic", f"{name}-no", "--partition", "0")
    assert f"UnknownTopicOrPartitionException: No such topic as {name}-no" in text


def test_reassignment_to_where_it_is(tools: JavaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    """kafka-reassign-partitions: generate, execute, list, verify, cancel, with a move to the same directory (P-157)."""
    create_topic(bootstrap, name, 2)
    brokers = ",".join(map(str, broker_ids(bootstrap)))
    topics = json_file(tmp_path, {"version": 1, "topics": [{"topic": name}]})
    current, proposed = json_in(
        tools.check(REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", brokers)
    )
    assert [entry["partition"] for entry in proposed["partitions"]] == [0, 1]
    here = {entry["partition"]: entry for entry in current["partitions"]}
    (replica,), (folder,) = here[1]["replicas"], here[1]["log_dirs"]
    assert folder.startswith("/")

    same = moves_of(name, (0, here[0]["replicas"], ["any"]), (1, [replica], [folder]))
    plan = ("--reassignment-json-file", json_file(tmp_path, same))
    started = tools.check(REASSIGN, "--execute", *plan, "--throttle", "50000000").stdout
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in started
    assert (
        f"Successfully started moving log directory to {folder} for replica {name}-1 with broker {replica}" in started
    )
    assert "The inter-broker throttle limit was set to 50000000 B/s" in started
    assert "No partition reassignments found." in tools.check(REASSIGN, "--list").stdout
    topic = ("--entity-type", "topics", "--entity-name", name)
    assert "leader.replication.throttled.replicas=0:" in tools.check(CONFIGS, *topic, "--describe").stdout

    verified = tools.check(REASSIGN, "--verify", *plan).stdout
    for line in (
        f"Reassignment of partition {name}-0 is completed.",
        f"Reassignment of partition {name}-1 is completed.",
        f"Reassignment of replica {name}-1-{replica} completed successfully.",
        f"Clearing topic-level throttles on topic {name}",
    ):
        assert line in verified
    assert "throttled" not in tools.check(CONFIGS, *topic, "--describe").stdout
    cancelled = tools.check(REASSIGN, "--cancel", *plan).stdout
    assert "None of the specified partition reassignments are active." in cancelled


def test_reassignment_to_where_it_cannot_be(tools: JavaTools, bootstrap: str, name: str, tmp_path: Path) -> None:
    """kafka-reassign-partitions: a broker, a partition and a directory that do not exist."""
    create_topic(bootstrap, name)
    broker = broker_ids(bootstrap)[0]
    unknown = json_file(tmp_path, moves_of(name, (0, [int(UNKNOWN_BROKER)], ["any"])))
    text = refused(tools, REASSIGN, "--execute", "--reassignment-json-file", unknown)
    assert f"Unknown broker id {UNKNOWN_BROKER}" in text
    missing = json_file(tmp_path, moves_of(name, (7, [broker], ["any"])))
    text = refused(tools, REASSIGN, "--execute", "--reassignment-json-file", missing)
    assert f"Unable to find partition: {name}-7" in text or "UnknownTopicOrPartition" in text, text
    nowhere = json_file(tmp_path, moves_of(name, (0, [broker], ["/no/such/folder"])))
    text = refused(tools, REASSIGN, "--execute", "--reassignment-json-file", nowhere)
    assert "LogDirNotFoundException" in text


def broker_ids(bootstrap: str) -> list[int]:
    """The brokers of the cluster, by a client that starts faster than a tool."""
    return sorted(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).brokers)


def test_cluster(tools: JavaTools, bootstrap: str) -> None:
    """kafka-cluster: its id, its brokers, and a broker to unregister that is not there."""

    def run(*arguments: str) -> Output:
        return tools.run(CLUSTER, arguments[0], "--bootstrap-server", bootstrap, *arguments[1:], connected=False)

    identity = run("cluster-id")
    assert re.search(r"^Cluster ID: [\w-]{22}$", identity.stdout, re.MULTILINE)
    listed = run("list-endpoints", "--include-fenced-brokers")
    assert {(row["STATE"], row["ENDPOINT_TYPE"]) for row in listed.rows} == {("unfenced", "broker")}
    assert sorted(int(row["ID"]) for row in listed.rows) == broker_ids(bootstrap)
    assert all(row["HOST"] and int(row["PORT"]) > 0 for row in listed.rows)
    unknown = run("unregister", "--id", UNKNOWN_BROKER)
    assert unknown.returncode == 1
    assert f"Broker ID {UNKNOWN_BROKER} is not currently registered" in unknown.stdout + unknown.stderr


def test_features(tools: JavaTools) -> None:
    """kafka-features: levels that are there, that cannot be, and that would lose metadata (P-158)."""
    described = tools.check(FEATURES, "describe").stdout
    level = re.search(r"Feature: metadata.version .*FinalizedVersionLevel: (\S+)", described)
    assert level, described
    upgraded = tools.check(FEATURES, "upgrade", "--metadata", level[1]).stdout
    assert re.search(r"metadata.version was upgraded to \d+.", upgraded)
    dry = tools.run(FEATURES, "downgrade", "--metadata", "3.3-IV3", "--dry-run")
    assert dry.returncode == 1
    assert "Can not downgrade metadata.version to 7." in dry.stdout
    for arguments, reason in (
        (("upgrade", "--feature", "no.such=1"), "Invalid update version 1 for feature no.such."),
        (("downgrade", "--metadata", "3.3-IV3"), "it might delete metadata information."),
        (
            ("downgrade", "--metadata", "3.3-IV3", "--unsafe"),
            "Unsafe metadata downgrade is not supported in this version.",
        ),
        (("disable", "--feature", "metadata.version"), "Invalid update version 0 for feature metadata.version."),
    ):
        assert reason in refused(tools, FEATURES, *arguments)
    assert level[0] in tools.check(FEATURES, "describe").stdout


def test_a_feature_goes_down_and_up(tools: JavaTools) -> None:
    """kafka-features: eligible leader replicas, with which the cluster has a minimum in sync of its own (P-201)."""
    feature = "eligible.leader.replicas.version"
    brokers = ("--entity-type", "brokers", "--entity-default")
    own = ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "min.insync.replicas=1")
    finalized = rf"Feature: {feature}\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: "
    assert re.search(f"{finalized}1", tools.check(FEATURES, "describe").stdout)
    assert "Broker-level min.insync.replicas cannot be altered while ELR is enabled." in refused(tools, CONFIGS, *own)
    without = (*brokers, "--alter", "--delete-config", "min.insync.replicas")
    assert "cannot be removed while ELR is enabled." in refused(tools, CONFIGS, *without)
    down = tools.check(FEATURES, "downgrade", "--feature", f"{feature}=0").stdout
    assert f"{feature} was downgraded to 0." in down
    assert re.search(f"{finalized}0", tools.check(FEATURES, "describe").stdout)
    tools.check(CONFIGS, *without)
    assert f"{feature} was upgraded to 1." in tools.check(FEATURES, "upgrade", "--feature", f"{feature}=1").stdout
    assert "min.insync.replicas=1" in tools.check(CONFIGS, *brokers, "--describe").stdout


def test_api_versions(tools: JavaTools) -> None:
    """kafka-broker-api-versions: what administrators' clients need is there in its newest version."""
    printed = tools.check(API_VERSIONS).stdout
    for api in (
        "DescribeAcls(29): 1 to 3 [usable: 3]",
        "AlterReplicaLogDirs(34): 1 to 2 [usable: 2]",
        "DescribeLogDirs(35): 1 to 5 [usable: 5]",
        "ElectLeaders(43): 0 to 2 [usable: 2]",
        "AlterPartitionReassignments(45): 0 to 1 [usable: 1]",
        "ListPartitionReassignments(46): 0 [usable: 0]",
        "AlterClientQuotas(49): 0 to 1 [usable: 1]",
        "AlterUserScramCredentials(51): 0 [usable: 0]",
        "UnregisterBroker(64): 0 [usable: 0]",
    ):
        assert f"\t{api}" in printed


def test_quorum(tools: JavaTools) -> None:
    """kafka-metadata-quorum: replication as people read it."""
    replication = tools.check(METADATA_QUORUM, "describe", "--replication", "--human-readable").stdout
    assert re.search(r"\d+\s+\S+\s+\d+\s+0\s+\d+ ms ago\s+\d+ ms ago\s+Leader", replication), replication


def test_configs_of_brokers_and_their_loggers(tools: JavaTools, bootstrap: str) -> None:
    """kafka-configs: one broker's own setting wins over the default of all; loggers have levels."""
    broker = ("--entity-type", "brokers", "--entity-name", str(broker_ids(bootstrap)[0]))
    default = ("--entity-type", "brokers", "--entity-default")
    tools.check(CONFIGS, *default, "--alter", "--add-config", "log.cleaner.backoff.ms=14000")
    tools.check(CONFIGS, *broker, "--alter", "--add-config", "log.cleaner.backoff.ms=13000")
    described = tools.check(CONFIGS, *broker, "--describe").stdout
    assert re.search(
        r"log.cleaner.backoff.ms=13000 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=13000, "
        r"DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=14000, DEFAULT_CONFIG:log.cleaner.backoff.ms=15000\}",
        described,
    ), described
    for entity in (broker, default):
        tools.check(CONFIGS, *entity, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in tools.check(CONFIGS, *broker, "--describe").stdout
    loggers = tools.check(CONFIGS, "--entity-type", "broker-loggers", *broker[2:], "--describe").stdout
    assert re.search(r"\S+=(ERROR|WARN|INFO|DEBUG) sensitive=false synonyms=\{\}", loggers), loggers


@pytest.mark.own_broker
def test_a_listener_is_added(start_broker: StartBroker, java_libs: Path) -> None:
    """kafka-configs: a list in brackets, which the broker applies at once; the port answers, and the tool shows it."""
    names = ("PLAINTEXT", "INTERNAL", "CONTROLLER", "ADDED")
    protocols = {"listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names)}
    started = start_broker("added-listener", protocols)
    tools = JavaTools(java_libs, started.bootstrap)
    place = ("--entity-type", "brokers", "--entity-name", str(broker_ids(started.bootstrap)[0]))

    def listeners() -> tuple[str, str]:
        """The setting, and where its value comes from."""
        described = tools.check(CONFIGS, *place, "--describe", "--all").stdout
        found = re.search(r"^ *listeners=(\S+) sensitive=false synonyms=\{(\w+)", described, re.MULTILINE)
        assert found is not None, described
        return found[1], found[2]

    port = free_port()
    wanted = f"{listeners()[0]},ADDED://127.0.0.1:{port}"
    tools.check(CONFIGS, *place, "--alter", "--add-config", f"listeners=[{wanted}]")

    def is_served() -> bool:
        try:
            with Connection(f"127.0.0.1:{port}") as connection:
                return len(connection.exchange(request_header(API_VERSIONS_KEY, 0))) > 100
        except OSError:
            return False

    wait_until(is_served, "the added listener to answer")
    assert listeners() == (wanted, "DYNAMIC_BROKER_CONFIG")


def test_configs_of_groups_and_client_metrics(tools: JavaTools, unique: Unique) -> None:
    """kafka-configs and kafka-client-metrics: settings of what need not exist; kafka-groups lists what does."""
    group = ("--entity-type", "groups", "--entity-name", unique("group"))
    tools.check(CONFIGS, *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert (
        "consumer.session.timeout.ms=50000 sensitive=false "
        "synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}"
    ) in tools.check(CONFIGS, *group, "--describe").stdout
    tools.check(CONFIGS, *group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert re.match(r"GROUP\s+TYPE\s+PROTOCOL", tools.check(GROUPS, "--list").lines[0])

    metrics = unique("metrics")
    subscription = ("--metrics", "org.apache.kafka.producer.", "--interval", "60000", "--match", "client_id=x")
    altered = tools.check(CLIENT_METRICS, "--alter", "--name", metrics, *subscription).stdout
    assert f"Altered client metrics config for {metrics}." in altered
    assert metrics in tools.check(CLIENT_METRICS, "--list").lines
    described = tools.check(CLIENT_METRICS, "--describe", "--name", metrics).stdout
    assert all(
        line in described for line in ("interval.ms=60000", "match=client_id=x", "metrics=org.apache.kafka.prod")
    )
    tools.check(CLIENT_METRICS, "--delete", "--name", metrics)
    assert metrics not in tools.check(CLIENT_METRICS, "--list").lines
    wrong = refused(tools, CONFIGS, "--entity-type", "client-metrics", "--entity-name", metrics, "--alter")
    assert "At least one of --add-config" in wrong


def test_quotas(tools: JavaTools, unique: Unique) -> None:
    """kafka-configs: quotas of users, of clients, of both, of addresses and of defaults (P-160)."""
    user = unique("user")
    of_user = ("--entity-type", "users", "--entity-name", user)
    of_pair = (*of_user, "--entity-type", "clients", "--entity-default")
    tools.check(CONFIGS, *of_user, "--alter", "--add-config", "producer_byte_rate=1000,request_percentage=50")
    tools.check(CONFIGS, *of_pair, "--alter", "--add-config", "consumer_byte_rate=2000")
    described = tools.check(CONFIGS, *of_user, "--describe").stdout
    assert re.search(rf"Quota configs for user-principal '{user}' are .*producer_byte_rate=1000.0", described), (
        described
    )
    assert "request_percentage=50.0" in described
    assert "consumer_byte_rate" not in described, "a pair is another entity than its user"
    pair = tools.check(CONFIGS, *of_pair, "--describe").stdout
    assert f"Quota configs for user-principal '{user}', the default client-id are consumer_byte_rate=2000.0" in pair
    tools.check(CONFIGS, *of_user, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    tools.check(CONFIGS, *of_pair, "--alter", "--delete-config", "consumer_byte_rate")
    assert user not in tools.check(CONFIGS, "--entity-type", "users", "--describe").stdout

    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    tools.check(CONFIGS, *address, "--alter", "--add-config", "connection_creation_rate=100")
    assert (
        "Quota configs for ip '127.0.0.9' are connection_creation_rate=100.0"
        in tools.check(CONFIGS, "--entity-type", "ips", "--describe").stdout
    )
    tools.check(CONFIGS, *address, "--alter", "--delete-config", "connection_creation_rate")


def test_scram_credentials(tools: JavaTools, unique: Unique) -> None:
    """kafka-configs: a password is stored as what SCRAM needs of it, and never shown."""
    user = ("--entity-type", "users", "--entity-name", unique("user"))
    tools.check(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    described = tools.check(CONFIGS, *user, "--describe").stdout
    assert f"SCRAM credential configs for user-principal '{user[3]}' are SCRAM-SHA-256=iterations=8192" in described
    assert "secret" not in described
    tools.check(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    gone = tools.run(CONFIGS, *user, "--describe")
    assert "SCRAM-SHA-256" not in gone.stdout


@pytest.mark.own_broker
def test_a_broker_that_was_unregistered_comes_back(
    start_broker: Callable[..., BrokerProcess], java_libs: Path, unique: Unique
) -> None:
    """kafka-cluster unregister takes even a living broker out of the cluster; it registers again at its next start."""
    broker, name = start_broker("unregistered"), unique("topic")
    tools = JavaTools(java_libs, broker.bootstrap)
    create_topic(broker.bootstrap, name)
    confluent_produce(broker.bootstrap, name, numbered(5))
    (number,) = broker_ids(broker.bootstrap)
    arguments = ("unregister", "--bootstrap-server", broker.bootstrap, "--id", str(number))
    assert f"Broker {number} is no longer registered." in tools.check(CLUSTER, *arguments, connected=False).stdout
    wait_until(lambda: broker_ids(broker.bootstrap) == [], "the broker is gone from the metadata")
    # Not in order: Apache Kafka waits for its controller to let it go, which does not know it any more.
    broker.kill()
    broker.start()
    wait_until(lambda: broker_ids(broker.bootstrap) == [number], "the broker is back in the metadata")
    confluent_produce(broker.bootstrap, name, numbered(5, 5))
    assert [record.value for record in kafka_python_consume(broker.bootstrap, [name], 10)] == [
        message.value for message in numbered(10)
    ]
