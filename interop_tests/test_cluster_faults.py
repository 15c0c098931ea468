"""Cut links and a full disk: what a cluster does when its nodes live and cannot do everything."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from interop_tests.clients import create_topic, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.cluster_load import Load
from interop_tests.cluster_network import NETWORKS, Network
from interop_tests.conftest import StartCluster
from interop_tests.report import Tables

pytestmark = [pytest.mark.own_broker, pytest.mark.area("several nodes"), pytest.mark.client("several clients")]

SMALL_DISK = "96m"
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def network(pytestconfig: pytest.Config) -> Iterator[Network]:
    """Network namespaces, or a proxy where those are not allowed; `--links` has it one way."""
    chosen = pytestconfig.getoption("--links")
    obstacles = []
    for name, kind in NETWORKS.items():
        if chosen in (None, name):
            obstacles.append(kind.obstacle())
            if not obstacles[-1]:
                with kind(NODES) as network:
                    yield network
                return
    pytest.skip("; ".join(obstacles))


@pytest.fixture(scope="module")
def linked(network: Network, start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("links", network=network)
    yield cluster
    cluster.close()


@pytest.fixture
def load(linked: Cluster, unique: Unique) -> Iterator[Load]:
    linked.wait_until_whole()
    load = Load(linked, unique, None)
    load.wait_for_progress()
    yield load
    for part in load.parts:
        part.stopping.set()


@pytest.mark.parametrize("whom", ["the active controller", "the leader of a partition"])
def test_cut_off(whom: str, linked: Cluster, network: Network, load: Load, target: str, summary_tables: Tables) -> None:
    """A node without any link is replaced, and takes nothing meanwhile; with its links back it is one of the others."""
    victim = linked.controller() if whom == "the active controller" else linked.leader(load.topics[0], 0)
    network.isolate(victim)
    try:
        linked.leader(load.topics[0], 0, without=[victim])
        assert linked.controller(without=[victim]) != victim
        load.recover()
    finally:
        network.mend()
    load.recover()
    linked.wait_until_whole()
    load.finish()
    summary_tables.texts.append(f"three nodes of {target}, {whom} cut off: {load.summary()}")


def test_cut_from_the_other_nodes_only(
    linked: Cluster, network: Network, load: Load, target: str, summary_tables: Tables
) -> None:
    """A leader that clients still reach and no other node does acknowledges nothing that gets lost."""
    victim = linked.leader(load.topics[0], 0)
    network.isolate(victim, from_clients=False)
    try:
        assert linked.leader(load.topics[0], 0, without=[victim]) != victim
        load.recover()
    finally:
        network.mend()
    load.recover()
    linked.wait_until_whole()
    load.finish()
    summary_tables.texts.append(f"three nodes of {target}, a leader alone with its clients: {load.summary()}")


def test_cut_between_two(linked: Cluster, network: Network, load: Load, target: str, summary_tables: Tables) -> None:
    """Two brokers lose each other, the controller sees both: the in-sync sets shrink, and everything goes on."""
    controller = linked.controller()
    one, other = (node_id for node_id in linked.nodes if node_id != controller)
    network.cut(one, other)
    try:
        load.recover()

        def is_shrunk() -> bool:
            partitions = linked.view().partitions
            # Of those that are written to: who has all there is counts as in sync, however long ago it asked for it.
            mine = [partition for (topic, _), partition in partitions.items() if topic in load.topics[:2]]
            return all(not {one, other} <= set(partition.isr) for partition in mine if partition.leader in (one, other))

        wait_until(is_shrunk, "the in-sync sets to shrink", timeout_s=60)
        load.recover()
    finally:
        network.mend()
    linked.wait_until_whole()
    load.finish()
    summary_tables.texts.append(f"three nodes of {target}, no link between two brokers: {load.summary()}")


def test_cut_one_way(linked: Cluster, network: Network, load: Load, target: str, summary_tables: Tables) -> None:
    """A broker that the active controller hears and does not reach counts as gone; everything goes on without it."""
    controller = linked.controller()
    victim = next(node_id for node_id in linked.nodes if node_id != controller)
    network.cut(controller, victim, one_way=True)
    try:
        wait_until(lambda: victim not in linked.view([victim]).brokers, "the broker to be fenced", timeout_s=60)
        load.recover()
    finally:
        network.mend()
    linked.wait_until_whole()
    load.finish()
    summary_tables.texts.append(
        f"three nodes of {target}, no way from the active controller to a broker: {load.summary()}"
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MB; skipped where nothing may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_full_disk_on_one_node(
    small_disk: Path, start_cluster: StartCluster, unique: Unique, target: str, summary_tables: Tables
) -> None:
    """A full disk on one node stops neither the others nor their clients; with space again the node is in sync."""
    cluster: Cluster = start_cluster("full-disk", data_dirs={NODES: small_disk / "data"})
    topic = create_topic(cluster.bootstrap, unique("full"), 3, replicas=NODES)
    numbers = iter(range(10_000_000))
    acknowledged: list[int] = []
    refused: list[object] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            refused.append(error)
        else:
            acknowledged.append(int((message.value() or b"")[:10]))

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000}
    )

    def produce(count: int, partitions: Sequence[int] = (0, 1, 2), size: int = 0) -> None:
        before = len(acknowledged)
        for _ in range(count):
            number = next(numbers)
            value = b"%010d" % number + b"." * size
            producer.produce(topic, value, partition=partitions[number % len(partitions)], on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(90) == 0
        assert not refused, refused[:3]
        assert len(acknowledged) == before + count

    produce(300)
    elsewhere = [number for number in range(3) if cluster.leader(topic, number) != NODES]
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        # The last page too, so that not one more byte can be stored.
        while True:
            try:
                os.write(file.fileno(), b"\0" * 4096)
            except OSError:
                break
    try:
        # Larger than what space was taken for ahead of the data. What the full node leads is another matter: Apache
        # Kafka ends there and another node leads, pykbroker refuses until there is space again.
        produce(60, elsewhere, 900_000)
        produce(3_000, elsewhere)
    finally:
        ballast.unlink()
    node = cluster.nodes[NODES]
    if not node.is_running:
        # Apache Kafka ends when its only log directory fails.
        node.start()
    began = time.monotonic()
    produce(300)
    cluster.wait_until_whole()
    back_s = time.monotonic() - began
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[int] = []
    wait_until(
        lambda: (
            found.extend(
                int((message.value() or b"")[:10]) for message in consumer.consume(500, 0.5) if message.error() is None
            )
            or len(found) >= len(acknowledged)
        ),
        "all records",
        timeout_s=60,
    )
    consumer.close()
    assert sorted(found) == sorted(acknowledged)
    summary_tables.texts.append(
        f"three nodes of {target}, the disk of one full: {len(acknowledged)} records acknowledged, all there once; "
        f"in sync again {back_s:.1f} s after there was space"
    )
    cluster.close()
