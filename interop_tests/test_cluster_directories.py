"""Nodes with two log directories each: replicas move between directories and nodes, and a restart leaves them there.

With `--target mixed` brokers and controllers of both kinds tell each other where replicas are (KIP-858).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from interop_tests.clients import confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster
from interop_tests.java_tools import REASSIGN, JavaTools
from interop_tests.test_java_admin_tools import json_file, moves_of
from interop_tests.test_java_tools import numbered

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("Java tools"),
    pytest.mark.fault("restart in order"),
]

PARTITIONS = 6
Folders = Mapping[int, tuple[str, str]]
"""The two log directories of each node."""
Places = dict[tuple[int, int], str]
"""Log directory by node and partition."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    folder = tmp_path_factory.mktemp("directories")
    return {
        node_id: (str(folder / f"{node_id}-first"), str(folder / f"{node_id}-second"))
        for node_id in range(1, NODES + 1)
    }


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster, folders: Folders) -> Iterator[Cluster]:
    own = {node_id: {"log.dirs": ",".join(both)} for node_id, both in folders.items()}
    cluster: Cluster = start_cluster("directories", own=own)
    yield cluster
    cluster.close()


def places_of(cluster: Cluster, topic: str) -> Places:
    """Directories of a topic's replicas. While one moves both directories have it, and the old one counts."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        found = admin.describe_log_dirs([topic])
    finally:
        admin.close()
    return {
        (broker["broker"], log["partition_index"]): directory["log_dir"]
        for broker in found
        for directory in broker["log_dirs"]
        for of_topic in directory["topics"]
        if of_topic["name"] == topic
        for log in of_topic["partitions"]
        if not log["is_future_key"]
    }


def replicas_of(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    """Nodes of each partition's replicas, in their order."""
    return {
        number: list(found.replicas) for (name, number), found in cluster.view().partitions.items() if name == topic
    }


def reassign(tools: JavaTools, plan: str) -> None:
    """Carries a plan out with kafka-reassign-partitions, and waits until the tool says that it is done."""
    tools.check(REASSIGN, "--reassignment-json-file", plan, "--execute")

    def is_done() -> bool:
        printed = tools.check(REASSIGN, "--reassignment-json-file", plan, "--verify").stdout
        return "in progress" not in printed and "completed successfully" in printed

    wait_until(is_done, "the reassignment", timeout_s=90)


def restart_all(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.stop()
        node.start()
        cluster.wait_until_whole()


def test_replicas_move_between_directories_of_each_node(
    cluster: Cluster, folders: Folders, java_libs: Path, name: str, tmp_path: Path
) -> None:
    """Every replica goes to the other directory of its node (P-300), and is found there after a restart (P-277)."""
    create_topic(cluster.bootstrap, name, PARTITIONS, replicas=NODES)
    confluent_produce(cluster.bootstrap, name, numbered(300))
    before = places_of(cluster, name)
    assert len(before) == PARTITIONS * NODES
    assert {path for both in folders.values() for path in both} == set(before.values())
    goal = {
        (node_id, number): next(path for path in folders[node_id] if path != before[node_id, number])
        for node_id, number in before
    }
    moves = [
        (number, replicas, [goal[node_id, number] for node_id in replicas])
        for number, replicas in sorted(replicas_of(cluster, name).items())
    ]
    reassign(JavaTools(java_libs, cluster.bootstrap), json_file(tmp_path, moves_of(name, *moves)))
    assert places_of(cluster, name) == goal
    confluent_produce(cluster.bootstrap, name, numbered(300))
    restart_all(cluster)
    assert places_of(cluster, name) == goal
    assert len(kafka_python_consume(cluster.bootstrap, [name])) == 600


def test_replicas_move_to_directories_of_other_nodes(
    cluster: Cluster, folders: Folders, java_libs: Path, name: str, tmp_path: Path
) -> None:
    """A replica is made in the directory that the plan names, on a node that had none of the partition (P-278)."""
    create_topic(cluster.bootstrap, name, PARTITIONS, replicas=NODES - 1)
    confluent_produce(cluster.bootstrap, name, numbered(300))
    moves, goal = [], {}
    for number, (first, last) in sorted(replicas_of(cluster, name).items()):
        (new,) = set(folders) - {first, last}
        goal[new, number] = folders[new][number % 2]
        moves.append((number, [new, last], [goal[new, number], "any"]))
    reassign(JavaTools(java_libs, cluster.bootstrap), json_file(tmp_path, moves_of(name, *moves)))
    assert replicas_of(cluster, name) == {number: replicas for number, replicas, _ in moves}
    assert goal.items() <= places_of(cluster, name).items()
    # The old replicas are deleted.
    wait_until(lambda: len(places_of(cluster, name)) == PARTITIONS * (NODES - 1), "the old replicas to be gone")
    restart_all(cluster)
    assert goal.items() <= places_of(cluster, name).items()
    assert len(kafka_python_consume(cluster.bootstrap, [name])) == 300
