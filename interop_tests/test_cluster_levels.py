"""Every level of metadata.version that Kafka 4.3 reads: a cluster formatted at it serves, goes up, and not down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidUpdateVersionError

from interop_tests.clients import confluent_consume, create_topic, wait_until
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("feature levels"),
    pytest.mark.client("several clients"),
    pytest.mark.fault("none"),
]

METADATA_VERSION = "metadata.version"
NEWEST = 30
LEVELS = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
CHANGED_AT = {8, 11, 13, 14, 15, 17, 23, 30}
"""Levels that changed what records hold: no way leads back below them."""
SCRAM, CONTROLLERS = 11, 15
UPGRADE, SAFE, UNSAFE = 1, 2, 3
ONE_NODE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
TIMEOUT_S = 30.0

Unique = Callable[[str], str]


@pytest.fixture
def start(start_cluster: StartCluster) -> Iterator[Callable[..., Cluster]]:
    """`start(17)` starts one node, broker and controller, in a folder formatted at that level."""
    started: list[Cluster] = []

    def start(level: int, overrides: dict[str, str] | None = None, count: int = 1) -> Cluster:
        cluster = start_cluster(f"level-{level}", overrides or ONE_NODE, count=count, release=LEVELS[level])
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


def level_of(cluster: Cluster) -> int:
    """The finalized metadata.version."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        lowest, highest = admin.describe_features()[METADATA_VERSION]["finalized"]
        assert lowest == highest
        return int(highest)
    finally:
        admin.close()


def update(cluster: Cluster, level: int, kind: int = UPGRADE) -> None:
    """Asks for a level, and waits until the node says it has it."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.update_features({METADATA_VERSION: (kind, level)})
    finally:
        admin.close()
    wait_until(lambda: level_of(cluster) == level, f"level {level}", pause_s=0.05)


def refusal(cluster: Cluster, level: int, kind: int) -> str:
    """Error text of the refusal of a level."""
    with pytest.raises(InvalidUpdateVersionError) as refused:
        update(cluster, level, kind)
    return str(refused.value)


def write(cluster: Cluster, topic: str, count: int = 10) -> None:
    """Records of a transaction that commits."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-writer"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number))
    producer.commit_transaction(TIMEOUT_S)


def read_as_group(cluster: Cluster, topic: str, count: int) -> None:
    """All records by a group that commits where it is."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    try:
        for _ in range(count):
            next(consumer)
        consumer.commit()
    finally:
        consumer.close()


def every_kind_of_command(cluster: Cluster, unique: Unique, level: int) -> str:
    """Commands that write each kind of record; the name of a topic with ten records."""
    topic = create_topic(cluster.bootstrap, unique("level"), 2, retention_ms="-1")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(TIMEOUT_S)
    acl = AclBinding(
        ResourceType.TOPIC,
        unique("secret"),
        ResourcePatternType.LITERAL,
        "User:nobody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (created,) = admin.create_acls([acl]).values()
    created.result(TIMEOUT_S)
    password = UserScramCredentialUpsertion(
        unique("user"), ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password", b"salt"
    )
    (upserted,) = admin.alter_user_scram_credentials([password]).values()
    if level < SCRAM:
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            upserted.result(TIMEOUT_S)
        assert "The current metadata.version does not support SCRAM" in str(refused.value)
    else:
        upserted.result(TIMEOUT_S)
    write(cluster, topic)
    read_as_group(cluster, topic, 10)
    gone = create_topic(cluster.bootstrap, unique("gone"))
    admin.delete_topics([gone])[gone].result(TIMEOUT_S)
    return topic


@pytest.mark.parametrize("level", LEVELS)
def test_a_cluster_formatted_at_a_level_serves_and_is_upgraded(
    start: Callable[..., Cluster], level: int, unique: Unique
) -> None:
    """Topics, configs, access control, credentials, groups, transactions; after a restart, after an upgrade, and after
    the node that was upgraded has been killed."""
    cluster = start(level)
    assert level_of(cluster) == level
    before = every_kind_of_command(cluster, unique, level)
    node = cluster.nodes[1]
    node.stop()
    node.start()
    assert level_of(cluster) == level
    assert len(confluent_consume(cluster.bootstrap, [before], 10)) == 10
    update(cluster, NEWEST)
    after = every_kind_of_command(cluster, unique, NEWEST)
    node.kill()
    node.start()
    assert level_of(cluster) == NEWEST
    cluster.wait_until_whole()
    assert len(confluent_consume(cluster.bootstrap, [before, after], 20)) == 20


def test_level_by_level(start: Callable[..., Cluster], unique: Unique) -> None:
    """A level goes down again only where no level between has changed what records hold, and with leave to do so."""
    cluster = start(7)
    topics: list[str] = []
    for level in range(8, NEWEST + 1):
        update(cluster, level)
        below = level - 1
        assert "Can't downgrade the version of this feature without setting" in refusal(cluster, below, UPGRADE)
        if level in CHANGED_AT:
            assert (
                f"Unsupported metadata.version downgrade from {level} to {below}. Refusing to perform the requested "
                "downgrade because it might delete metadata information."
            ) in refusal(cluster, below, SAFE)
            assert "Unsafe metadata downgrade is not supported in this version." in refusal(cluster, below, UNSAFE)
        else:
            update(cluster, below, SAFE)
            update(cluster, level)
        topics.append(create_topic(cluster.bootstrap, unique(f"at-{level}"), 2))
    write(cluster, topics[0])
    cluster.nodes[1].stop()
    cluster.nodes[1].start()
    assert level_of(cluster) == NEWEST
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    assert set(topics) <= set(known)


def test_three_nodes_from_the_oldest_level_to_the_newest(start: Callable[..., Cluster], unique: Unique) -> None:
    """In-sync sets shrink and grow, leaders move, and a node is away while the level rises."""
    cluster = start(7, {"min.insync.replicas": "1"}, 3)
    topic = create_topic(cluster.bootstrap, unique("three"), 3, replicas=3)
    write(cluster, topic)
    for level in (CONTROLLERS - 1, CONTROLLERS, 17, NEWEST):
        away = cluster.leader(topic)
        cluster.nodes[away].stop()
        write(cluster, topic)
        if level >= 17:
            update(cluster, level)
        cluster.nodes[away].start()
        cluster.wait_until_whole()
        if level < 17:
            update(cluster, level)
        write(cluster, topic)
    assert len(confluent_consume(cluster.bootstrap, [topic], 90)) == 90
    assert level_of(cluster) == NEWEST


def test_a_level_that_is_not_known_is_refused_by_name(start_cluster: StartCluster, target: str) -> None:
    """By the format step, and by a cluster that is asked to go there."""
    cluster: Any = start_cluster("unknown", ONE_NODE, count=1)
    text = refusal(cluster, NEWEST + 1, UPGRADE)
    assert f"Invalid update version {NEWEST + 1} for feature metadata.version. Local controller 1 only supports" in text
    cluster.close()
    for release in ("4.4-IV0", "nonsense"):
        cluster.release = release
        with pytest.raises(AssertionError) as refused:
            cluster.format()
        assert f"Unknown metadata.version '{release}'. Supported metadata.version are: 3.3-IV3, " in str(refused.value)
