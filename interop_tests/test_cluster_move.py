"""The nodes of a cluster move between pykbroker and Apache Kafka on their data directories, one by one, under load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cluster import Cluster
from interop_tests.cluster_load import clients_at_work
from interop_tests.conftest import StartCluster
from interop_tests.java_tools import JavaTools
from interop_tests.report import Tables

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.java,
    pytest.mark.area("several nodes"),
    pytest.mark.client("several clients"),
]


@pytest.mark.fault("restart in order")
def test_move(
    start_cluster: StartCluster, unique: Callable[[str], str], java_libs: Path, target: str, summary_tables: Tables
) -> None:
    """Each node of three is stopped and started as the other broker, then all go back: nothing acknowledged is lost.

    Until the last node has moved both kinds are in one quorum, replicate from each other and coordinate groups and
    transactions whose clients are led by the other.
    """
    cluster: Cluster = start_cluster("move")
    kafka = JavaTools(java_libs)
    there, back = (None, kafka) if target == "kafka" else (kafka, None)
    with clients_at_work(cluster, unique, java_libs, target, summary_tables, kafka_comes=True) as load:
        for kind in (there, back):
            for node_id, node in list(cluster.nodes.items()):
                # Java exits with 128 + SIGTERM after an orderly end.
                assert node.stop() in (0, 143)
                load.recover()
                cluster.exchange(node_id, kind).start()
                cluster.wait_until_whole()
                load.wait_for_progress()
                load.check()
        load.finish("nodes moved to the other broker and back")
    cluster.close()
