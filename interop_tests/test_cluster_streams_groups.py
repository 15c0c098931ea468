"""Kafka Streams with a Streams group (KIP-1071) and exactly once on three nodes, one of which dies by kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.clients import create_topic, end_of, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster
from interop_tests.language_programs import streams_program
from interop_tests.made_once import or_skip
from interop_tests.streams_application import TIMEOUT_S, StreamsApplication
from interop_tests.word_count import QUICK_GROUPS, Lines, counted, one_by_one, wait_for_output

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("Kafka Streams"),
    pytest.mark.fault("kill -9 of coordinators of transactions"),
]

PARTITIONS = 2
NAME = "word-count"


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    # The group and its transactions have one coordinator each, which is the node that is killed.
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    cluster: Cluster = start_cluster("cluster-streams-groups", QUICK_GROUPS | settings)
    yield cluster
    cluster.close()


def test_its_coordinator_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Every word is counted once, and the store is right, though the coordinators of group and transactions die."""
    command = or_skip(streams_program)
    bootstrap = cluster.bootstrap
    lines = Lines(bootstrap, create_topic(bootstrap, f"{NAME}-lines", PARTITIONS, replicas=NODES))
    output = create_topic(bootstrap, f"{NAME}-output", 2, replicas=NODES)
    settings = {"application_id": NAME, "group_protocol": "streams", "processing_guarantee": "exactly_once_v2"}
    lines.send(300)
    application = StreamsApplication(command, ("words", f"{NAME}-lines", output), bootstrap, tmp_path / "i", **settings)
    try:
        wait_for_output(bootstrap, output, application)
        for topic in ("__consumer_offsets", "__transaction_state"):
            first = end_of(bootstrap, output)
            node = cluster.nodes[cluster.leader(topic, 0)]
            node.kill()
            lines.send(300)
            wait_for_output(bootstrap, output, application, first=first)
            node.start()
            cluster.wait_until_whole()
        assert counted(bootstrap, output, lines.word_count) == one_by_one(lines.counts)
        wait_until(lambda: application.ask("all counts") == lines.counts, "the store", timeout_s=TIMEOUT_S, pause_s=0.2)
        assert application.finish() == 0, application.output()
    finally:
        application.kill()
