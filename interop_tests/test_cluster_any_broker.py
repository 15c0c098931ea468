"""Answers that depend on the broker that is asked: topics that it has created, and producers in its replica."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import confluent_kafka
import pytest

from interop_tests.clients import create_topic, wait_until
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster
from interop_tests.wire import METADATA, Connection, request_header, string

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("raw frames"),
    pytest.mark.fault("none"),
]

NOT_LEADER_OR_FOLLOWER = 6
PARTITIONS, REPLICAS = "num.partitions", "default.replication.factor"

# What each broker has set of its own; the second one has neither.
OWN: dict[int, dict[str, str | None]] = {
    1: {PARTITIONS: "4", REPLICAS: None},
    2: {PARTITIONS: None, REPLICAS: None},
    3: {PARTITIONS: "2", REPLICAS: "2"},
}


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("any-broker", {"min.insync.replicas": "1"}, own=OWN)
    yield cluster
    cluster.close()


def set_or_one(node_id: int, key: str) -> int:
    return int(OWN[node_id][key] or 1)


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_topic_is_created_as_the_asked_broker_says(node_id: int, cluster: Cluster) -> None:
    """num.partitions and default.replication.factor of the asked broker count where set, else the controller's."""
    topic = f"by-broker-{node_id}"
    controller = cluster.controller()
    ask = request_header(METADATA, 4) + struct.pack(">i", 1) + string(topic) + b"\1"
    with Connection(cluster.nodes[node_id].bootstrap) as connection:
        connection.exchange(ask)
    wait_until(lambda: (topic, 0) in cluster.view().partitions, f"{topic} to be created")
    partitions = {place: view for place, view in cluster.view().partitions.items() if place[0] == topic}
    expected = [
        set_or_one(node_id, key) if OWN[node_id][key] is not None else set_or_one(controller, key)
        for key in (PARTITIONS, REPLICAS)
    ]
    assert [len(partitions), len(partitions[topic, 0].replicas)] == expected


def producers_of(bootstrap: str, topic: str) -> tuple[int, list[int]]:
    with Connection(bootstrap) as connection:
        return connection.describe_producers(topic, 0)


def test_every_replica_describes_its_producers(cluster: Cluster) -> None:
    """DescribeProducers is answered by leader and followers alike, as kafka-transactions --broker-id asks them."""
    topic = create_topic(cluster.bootstrap, "producers", replicas=2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"}
    )
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    replicas = cluster.view().partitions[topic, 0].replicas
    answers = {node_id: producers_of(node.bootstrap, topic) for node_id, node in cluster.nodes.items()}
    leader = cluster.leader(topic)
    assert answers[leader][0] == 0
    assert len(answers[leader][1]) == 1
    other = next(node_id for node_id in cluster.nodes if node_id not in replicas)
    expected = {**dict.fromkeys(replicas, answers[leader]), other: (NOT_LEADER_OR_FOLLOWER, [])}
    assert answers == expected
