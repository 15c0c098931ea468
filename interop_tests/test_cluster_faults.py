"""Cut links and a full disk: what a cluster does when its nodes live and cannot do everything."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from interop_tests.clients import confluent_consume, create_topic, wait_until
from interop_tests.cluster import NODES, ApacheKafkaNode, Cluster
from interop_tests.cluster_load import Load, clients_at_work
from interop_tests.cluster_network import NETWORKS, Network
from interop_tests.conftest import StartCluster
from interop_tests.disk_writers import confluent_writer, kafka_python_writer
from interop_tests.kill_load import Consuming
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
def load(linked: Cluster, unique: Unique, target: str, summary_tables: Tables) -> Iterator[Load]:
    with clients_at_work(linked, unique, None, target, summary_tables) as load:
        yield load


@pytest.mark.fault("all links of a node cut")
@pytest.mark.parametrize(
    "whom", [pytest.param("the active controller", marks=pytest.mark.sample), "the leader of a partition"]
)
def test_cut_off(whom: str, linked: Cluster, network: Network, load: Load) -> None:
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
    load.finish(f"{whom} cut off")


@pytest.mark.sample
@pytest.mark.fault("links to other nodes cut")
def test_cut_from_the_other_nodes_only(linked: Cluster, network: Network, load: Load) -> None:
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
    load.finish("a leader alone with its clients")


@pytest.mark.sample
@pytest.mark.fault("one link cut")
def test_cut_between_two(linked: Cluster, network: Network, load: Load) -> None:
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
    load.finish("no link between two brokers")


@pytest.mark.sample
@pytest.mark.fault("one direction of a link cut")
def test_cut_one_way(linked: Cluster, network: Network, load: Load) -> None:
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
    load.finish("no way from the active controller to a broker")


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


WRITERS = [(make, acks) for make in (confluent_writer, kafka_python_writer) for acks in ("all", "1")]
BEFORE_S, FULL_S = 3.0, 12.0
RESERVE_S = 7.0
"""After its start a node of pykbroker takes some seconds to set space for metadata aside."""
KAFKA = "kafka"


def fill(disk: Path) -> Path:
    """Takes what is left of a small disk, the last page too, so that not one more byte can be stored."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        while True:
            try:
                os.write(file.fileno(), b"\0" * 4096)
            except OSError:
                return ballast


@pytest.mark.fault("full disk")
@pytest.mark.parametrize("whom", ["the active controller", pytest.param("another node", marks=pytest.mark.sample)])
def test_full_disk_on_one_node(
    whom: str, small_disk: Path, start_cluster: StartCluster, unique: Unique, target: str, summary_tables: Tables
) -> None:
    """Other nodes soon lead the partitions of a node with a full disk, and producers go on; with space again it
    rejoins."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    full = NODES
    cluster: Cluster = start_cluster(unique("full-disk").replace("_", "-"), data_dirs={full: small_disk / "data"})
    if (cluster.controller() == full) is not (whom == "the active controller"):
        move_controller(cluster, full, to_it=whom == "the active controller")
    topics = [create_topic(cluster.bootstrap, unique("full"), 3, replicas=NODES) for _ in WRITERS]
    wait_until(lambda: leads(cluster, full, topics), f"node {full} to lead partitions", timeout_s=60)
    writers = [make(cluster.bootstrap, topic, 3, acks) for topic, (make, acks) in zip(topics, WRITERS, strict=True)]
    group = Consuming(cluster.bootstrap, topics[0], 3, unique("full-group"))
    group.start()
    time.sleep(BEFORE_S + (RESERVE_S if target != KAFKA else 0))
    led = leads(cluster, full, topics)
    others = [node_id for node_id in cluster.nodes if node_id != full]
    ballast = fill(small_disk)
    began = time.monotonic()
    try:
        wait_until(lambda: not leads(cluster, full, topics, ask=others), "others to lead", timeout_s=60, pause_s=0.02)
        progress = group.progress
        time.sleep(FULL_S)
        assert group.progress > progress, "the group reads on"
        assert not leads(cluster, full, topics, ask=others)
        node = cluster.nodes[full]
        assert node.is_running or isinstance(node, ApacheKafkaNode), "pykbroker lives"
        ended = time.monotonic()
    finally:
        ballast.unlink()
    if not node.is_running:
        # Apache Kafka ends when its only log directory fails.
        node.start()
    again = time.monotonic()
    cluster.wait_until_whole()
    back_s = time.monotonic() - again
    # A leader that is replaced for another reason takes the last acks=1 records with it, as Apache Kafka's does.
    for writer in writers:
        if writer.acks == "1":
            writer.finish()
    elect_preferred(cluster, topics)
    wait_until(lambda: leads(cluster, full, topics) == led, f"node {full} to lead again", timeout_s=90)
    time.sleep(1)
    for writer in writers:
        writer.finish()
    group.finish()
    group.check()
    standstills, lost = [], {}
    for writer in writers:
        found: dict[int, list[int]] = defaultdict(list)
        for message in confluent_consume(cluster.bootstrap, [writer.topic]):
            found[message.partition].append(int((message.value or b"")[:10]))
        lost[writer.name] = [f"{at - began:.3f} s" for at in writer.missing(found)]
        if writer.acks == "all":
            assert not writer.repeated(found), f"{writer.name}: records are there twice"
        standstills.append(f"{writer.name} {writer.standstill_s(began, ended):.2f} s")
        if writer.acks == "all" or target != KAFKA:
            assert not lost[writer.name], f"{writer.name}: lost what was acknowledged after {lost[writer.name][:3]}"
    summary_tables.texts.append(
        f"three nodes of {target}, the disk of one full ({whom}, it led {led} of {3 * len(topics)} partitions): "
        f"longest time without an acknowledgement: {', '.join(standstills)}; "
        f"{sum(writer.sent for writer in writers)} records acknowledged, {sum(map(len, lost.values()))} lost; "
        f"in sync again {back_s:.1f} s after there was space, and led again when asked to"
    )
    cluster.close()


def leads(cluster: Cluster, node_id: int, topics: Sequence[str], ask: Sequence[int] = ()) -> int:
    """Number of partitions of the topics that a node leads, as any other node tells it (one of `ask`, if given)."""
    without = [other for other in cluster.nodes if ask and other not in ask]
    partitions = cluster.view(without).partitions
    return sum(found.leader == node_id for (topic, _), found in partitions.items() if topic in topics)


def move_controller(cluster: Cluster, node_id: int, *, to_it: bool) -> None:
    """Restarts active controllers until one is another, or is the one that is wanted."""
    for _ in range(20):
        active = cluster.controller()
        if (active == node_id) is to_it:
            return
        cluster.nodes[active].stop()
        cluster.nodes[active].start()
        cluster.wait_until_whole()
    raise AssertionError(f"the lead of the quorum does not go where it is wanted: node {node_id}, {to_it}")


def elect_preferred(cluster: Cluster, topics: Sequence[str]) -> None:
    """Asks for the preferred leaders of all partitions."""
    places = [confluent_kafka.TopicPartition(topic, number) for topic in topics for number in range(3)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, places).result(30)
