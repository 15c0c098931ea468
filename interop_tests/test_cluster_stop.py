"""SIGTERM to a node of a cluster: what it led goes elsewhere first, and new topics still get all their replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from interop_tests.clients import confluent_consume, create_topic, keep_failure, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("confluent-kafka"),
    pytest.mark.fault("stop in order"),
]

RECORDS = 30
Unique = Callable[[str], str]


@pytest.fixture
def cluster(start_cluster: StartCluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes, of which as many vote as the test says."""
    cluster: Cluster = start_cluster("stop", voters=request.param)
    yield cluster
    cluster.close()


def write(cluster: Cluster, topic: str) -> None:
    """Records for each of three partitions, acknowledged by all that are in sync."""
    errors: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000}
    producer = confluent_kafka.Producer(settings)
    for number in range(RECORDS):
        producer.produce(
            topic, str(number), partition=number % 3, on_delivery=lambda error, _: keep_failure(errors, error)
        )
    left = producer.flush(90)
    assert (left, errors) == (0, [])


@pytest.mark.sample
@pytest.mark.parametrize("cluster", [NODES], indirect=True)
def test_new_topics_get_three_replicas_while_a_node_is_stopped(cluster: Cluster, unique: Unique) -> None:
    """A broker that was stopped in order still counts: it is fenced, and gets replicas that it fetches when it is back.

    Among the new topics is that of consumer groups' offsets, which the first group needs.
    """
    before = create_topic(cluster.bootstrap, unique("before"), 3, replicas=NODES)
    write(cluster, before)
    stopped = cluster.leader(before)
    cluster.nodes[stopped].stop()
    topic = create_topic(cluster.bootstrap, unique("after"), 3, replicas=NODES)
    for number in range(3):
        cluster.leader(topic, number, without=[stopped])
    partitions = [found for (name, _), found in cluster.view().partitions.items() if name == topic]
    assert len(partitions) == 3
    for partition in partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert stopped not in partition.isr
        assert partition.replicas[0] != stopped
    write(cluster, topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": unique("group"), "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []

    def are_read() -> bool:
        found.extend(consumer.consume(RECORDS, 1.0))
        return len(found) >= RECORDS

    wait_until(are_read, "the group to read", timeout_s=60)
    consumer.commit(asynchronous=False)
    consumer.close()
    cluster.nodes[stopped].start()
    cluster.wait_until_whole()


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_the_only_voter_moves_what_it_leads_before_it_stops(cluster: Cluster, unique: Unique) -> None:
    """The other brokers have no controller after that, and go on with what was decided before."""
    topic = create_topic(cluster.bootstrap, unique("sole"), 3, replicas=NODES)
    write(cluster, topic)
    cluster.wait_until_whole()
    assert 1 in {cluster.leader(topic, number) for number in range(3)}
    cluster.nodes[1].stop()
    for node_id in (2, 3):
        view = cluster.view(without=[5 - node_id])
        for number in range(3):
            partition = view.partitions[topic, number]
            assert partition.leader in (2, 3)
            assert sorted(partition.isr) == [2, 3]
    write(cluster, topic)
    assert len(confluent_consume(cluster.bootstrap, [topic], 2 * RECORDS)) == 2 * RECORDS
    cluster.nodes[1].start()
    cluster.wait_until_whole()
