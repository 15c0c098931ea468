"""Share consumers on three nodes whose leaders are killed: those of the partition, and of the share coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.clients import Message, confluent_produce, create_topic, wait_until
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster
from interop_tests.verifiable import Consumer

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("Java tools"),
    pytest.mark.fault("kill -9 of leaders of share partitions"),
]

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "5000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "1",
}
ROUND = 300
WAIT_S = 90.0


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("cluster-share-groups", SETTINGS)
    yield cluster
    cluster.close()


@pytest.fixture
def consumers(java_libs: Path, cluster: Cluster) -> Iterator[list[Consumer]]:
    """Two VerifiableShareConsumers of one group, which acknowledge record by record."""
    options = ("--topic", "orders", "--group-id", "share", "--offset-reset-strategy", "earliest", "--verbose")
    create_topic(cluster.bootstrap, "orders", 1, replicas=3)
    started = [
        Consumer(java_libs, "VerifiableShareConsumer", cluster.bootstrap, *options, "--acknowledgement-mode", "sync")
        for _ in range(2)
    ]
    yield started
    for consumer in started:
        consumer.kill()


def accepted(consumers: list[Consumer]) -> Counter[int]:
    """Offset -> how often a consumer was told that its acknowledgement is stored."""
    return Counter(
        offset
        for consumer in consumers
        for event in consumer.named("offsets_acknowledged")
        if event.get("success")
        for place in event["partitions"]
        for offset in place["offsets"]
    )


@pytest.mark.sample
def test_nothing_is_accepted_twice_or_lost(cluster: Cluster, consumers: list[Consumer]) -> None:
    """Each record is delivered, and no acknowledgement that was confirmed is forgotten by a new leader."""
    sent = 0
    for victim in ("", "orders", "__share_group_state", "__consumer_offsets", "orders"):
        if victim:
            node = cluster.nodes[cluster.leader(victim)]
            node.kill()
        messages = [Message(b"k", b"%d" % number) for number in range(sent, sent + ROUND)]
        confluent_produce(cluster.bootstrap, "orders", messages, acks="all")
        sent += ROUND
        expected = {str(number) for number in range(sent)}
        wait_until(
            lambda: expected <= {value for consumer in consumers for value in consumer.values},  # noqa: B023
            f"all of {sent} records to be delivered after the end of the leader of {victim or 'none'}",
            timeout_s=WAIT_S,
        )
        if victim:
            node.start()
            cluster.wait_until_whole()
    wait_until(lambda: len(accepted(consumers)) >= sent - 2 * ROUND, "acknowledgements", timeout_s=WAIT_S)
    assert set(accepted(consumers).values()) == {1}
