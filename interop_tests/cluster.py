"""Clusters to test against: several nodes, a process each, pykbroker by its command line or Apache Kafka from its jars.

Both get the same `server.properties`, except for ports and folders: brokers that are voters as well, quick settings,
topics with three replicas. So what one target passes and the other does not is about the target. A mixed cluster has
nodes of both kinds, which replicate from each other, vote for each other and coordinate each other's groups.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from interop_tests.brokers import CHECKOUT, CLUSTER_ID, PYTHON, START_TIMEOUT_S, BrokerProcess
from interop_tests.clients import wait_until
from interop_tests.cluster_network import Address, Network
from interop_tests.cluster_view import ClusterView, NoAnswer, quorum_leader, view_of
from interop_tests.java_tools import JavaTools
from interop_tests.kafka_jars import JAVA
from interop_tests.ports import free_ports

NODES = 3
WHOLE_TIMEOUT_S = 90.0
# Three JVMs on a small machine, for minutes: little memory, and no threads for compiling and collecting.
JVM_FLAGS = ["-Xmx400M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]

QUICK_CLUSTER = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "2000",
    "default.replication.factor": "3",
    # Half of such a heap by default, and what is short of memory then is a fetcher.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "4000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
}
"""Times of a cluster on one machine; three replicas of everything, of which two must have what is acknowledged."""


class ClusterNode(BrokerProcess):
    """One node: broker and voter. Started, stopped, killed, paused; its data and ports stay.

    Attributes:
        node_id: from 1.
        settings: what is in its server.properties.
        network: where it runs; None for the machine itself.
    """

    def __init__(self, node_id: int, folder: Path, settings: Mapping[str, str], network: Network | None) -> None:
        super().__init__(folder, folder / "broker.log", settings)
        self.node_id = node_id
        self.network = network
        self.properties = folder / "server.properties"
        listener = settings.get("advertised.listeners", settings["listeners"]).partition(",")[0]
        self.bootstrap = listener.partition("://")[2]

    @property
    def is_running(self) -> bool:
        """True while the node's process exists, paused or not."""
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        """Command line of the node."""
        raise NotImplementedError

    def format(self, *options: str) -> None:
        """Formats its folder, once. Raises AssertionError with what was printed when that is refused."""
        raise NotImplementedError

    def write_properties(self) -> None:
        """Writes its server.properties."""
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.overrides.items()))

    def launch(self) -> None:
        """Starts the process without waiting for anything."""
        self.write_properties()
        wrapper = () if self.network is None else self.network.wrapper(self.node_id)
        self.process = self._spawn([*wrapper, *self.command()], cwd=CHECKOUT)
        if self.network is not None:
            self.network.started(self.node_id, self.pid)

    def wait_until_ready(self) -> None:
        """Until it serves metadata in which it finds itself. Raises RuntimeError with the end of its log."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serves():
            if not self.is_running:
                code = None if self.process is None else self.process.returncode
                raise self._fail(f"node {self.node_id} ended with code {code} at its start")
            if time.monotonic() > deadline:
                raise self._fail(f"node {self.node_id} was not ready within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def kill(self) -> None:
        self.resume()
        super().kill()

    def pause(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)

    def _serves(self) -> bool:
        try:
            return self.node_id in view_of(self.bootstrap).brokers
        except NoAnswer:
            return False


class PykbrokerNode(ClusterNode):
    """`pykbroker start --config server.properties`."""

    def command(self) -> list[str]:
        return [PYTHON, "-m", "pykbroker", "start", "--config", str(self.properties)]

    def format(self, *options: str) -> None:
        self.write_properties()
        command = [PYTHON, "-m", "pykbroker", "format", "--cluster-id", CLUSTER_ID, "--config", str(self.properties)]
        done = subprocess.run([*command, *options], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    def _spawn(self, command: list[str], cwd: Path, **variables: str) -> subprocess.Popen[bytes]:
        return super()._spawn(command, cwd, **variables, CLUSTER_ID=CLUSTER_ID)


class ApacheKafkaNode(ClusterNode):
    """`kafka.Kafka server.properties`, its folder formatted before."""

    tools: JavaTools

    def command(self) -> list[str]:
        return [JAVA, *JVM_FLAGS, "-cp", self.tools.classpath, "kafka.Kafka", str(self.properties)]

    def format(self, *options: str) -> None:
        self.write_properties()
        where = ("-t", CLUSTER_ID, "-c", str(self.properties))
        self.tools.check("kafka.tools.StorageTool", "format", *where, *options, connected=False)

    def take_format_of(self, other: ApacheKafkaNode) -> None:
        """As `format`, from a folder that was formatted: saves the start of a JVM."""
        assert self.data_dir is not None
        assert other.data_dir is not None
        shutil.copytree(other.data_dir, self.data_dir, dirs_exist_ok=True)
        path = self.data_dir / "meta.properties"
        directory_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
        own = {"node.id": str(self.node_id), "directory.id": directory_id}
        pairs = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        path.write_text("".join(f"{key}={value}\n" for key, value in (pairs | own).items()))


class Cluster:
    """Nodes 1 to n in one quorum.

    Args:
        folder: where each node gets a folder of its own.
        tools: the Java tools, for a cluster with nodes of Apache Kafka; None for one of pykbroker.
        kafka_nodes: with `tools`, ids of the nodes that are Apache Kafka; by default all.
        overrides: settings of all nodes, over QUICK_CLUSTER.
        voters: how many of the nodes are controllers too, the first ones; by default all.
        host: name or address of all nodes that have no network.
        is_advertised: whether nodes have `advertised.listeners`; without it they tell the hosts of `listeners`.
        network: whose links can be cut, for `count` nodes.
        data_dirs: folders for the data of some nodes, by node id.
        own: settings of some nodes, by node id, over those of all; None for a setting that the node does not have.
        prepare: changes the settings of nodes before their first start.
        release: the one whose feature levels the cluster begins with, such as 3.9-IV0; by default the newest.
        format_options: further options of the format command.
    """

    def __init__(
        self,
        folder: Path,
        tools: JavaTools | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        kafka_nodes: Collection[int] | None = None,
        count: int = NODES,
        voters: int | None = None,
        host: str = "127.0.0.1",
        is_advertised: bool = True,
        network: Network | None = None,
        data_dirs: Mapping[int, Path] | None = None,
        own: Mapping[int, Mapping[str, str | None]] | None = None,
        prepare: Callable[[Cluster], None] | None = None,
        release: str | None = None,
        format_options: tuple[str, ...] = (),
    ) -> None:
        self.tools = tools
        self.network = network
        self.release = release
        self.format_options = format_options
        self.is_formatted = tools is None and release is None and not format_options
        ids = range(1, count + 1)
        if network is None:
            addresses = [Address(host, port, port) for port in free_ports(2 * count)]
            places = dict(zip(ids, zip(addresses[::2], addresses[1::2], strict=True), strict=True))
        else:
            places = {node_id: network.addresses(node_id) for node_id in ids}
        controllers = {node_id: own for node_id, (_, own) in places.items() if node_id <= (voters or count)}
        quorum = ",".join(f"{node_id}@{own.host}:{own.public_port}" for node_id, own in controllers.items())
        self.nodes: dict[int, ClusterNode] = {}
        for node_id, (for_clients, for_controllers) in places.items():
            own_folder = folder / f"node-{node_id}"
            is_voter = node_id in controllers
            listeners = [f"PLAINTEXT://{for_clients.host}:{for_clients.port}"]
            advertised = [f"PLAINTEXT://{for_clients.host}:{for_clients.public_port}"]
            if is_voter:
                listeners.append(f"CONTROLLER://{for_controllers.host}:{for_controllers.port}")
                advertised.append(f"CONTROLLER://{for_controllers.host}:{for_controllers.public_port}")
            given: dict[str, str | None] = {
                "process.roles": "broker,controller" if is_voter else "broker",
                "node.id": str(node_id),
                "controller.quorum.voters": quorum,
                "listeners": ",".join(listeners),
                "advertised.listeners": ",".join(advertised),
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": str((data_dirs or {}).get(node_id, own_folder / "data")),
                "broker.rack": f"rack-{node_id}",
                **QUICK_CLUSTER,
                **(overrides or {}),
                **(own or {}).get(node_id, {}),
            }
            if not is_advertised:
                del given["advertised.listeners"]
            settings = {key: value for key, value in given.items() if value is not None}
            is_kafka = tools is not None and (kafka_nodes is None or node_id in kafka_nodes)
            self.nodes[node_id] = self._node(node_id, own_folder, settings, tools if is_kafka else None)
        if prepare is not None:
            prepare(self)

    def _node(self, node_id: int, folder: Path, settings: Mapping[str, str], tools: JavaTools | None) -> ClusterNode:
        """A node of Apache Kafka, with `tools`, or of pykbroker."""
        node: ClusterNode
        if tools is None:
            node = PykbrokerNode(node_id, folder, settings, self.network)
        else:
            node = ApacheKafkaNode(node_id, folder, settings, self.network)
            node.tools = tools
        node.data_dir = Path(settings["log.dirs"].partition(",")[0])
        return node

    def exchange(self, node_id: int, tools: JavaTools | None) -> ClusterNode:
        """Puts a node of Apache Kafka, with `tools`, or of pykbroker in the place of one that is down.

        It has the same settings, ports and data directory, and is not started.
        """
        old = self.nodes[node_id]
        assert not old.is_running, f"node {node_id} runs"
        self.nodes[node_id] = self._node(node_id, old.folder, old.overrides, tools)
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        """All nodes, as every client takes them."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def living(self) -> list[ClusterNode]:
        """The nodes whose processes run."""
        return [node for node in self.nodes.values() if node.is_running]

    def start(self) -> None:
        """Starts all at once, and returns when every node knows of all."""
        if not self.is_formatted:
            self.format()
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        self.wait_until_whole()

    def format(self) -> None:
        """Formats the folders of all nodes."""
        options = self.format_options + (() if self.release is None else ("--release-version", self.release))
        first, *others = self.nodes.values()
        first.format(*options)
        for other in others:
            has_several = "," in other.overrides["log.dirs"]
            if isinstance(first, ApacheKafkaNode) and isinstance(other, ApacheKafkaNode) and not has_several:
                other.take_format_of(first)
            else:
                other.format(*options)
        self.is_formatted = True

    def close(self) -> None:
        """kill -9 to all that live."""
        for node in self.nodes.values():
            node.kill()

    def view(self, without: Iterable[int] = ()) -> ClusterView:
        """The cluster as the first node that answers describes it. Raises AssertionError when none answers."""
        found: list[ClusterView] = []

        def asked() -> bool:
            for node in self.living:
                if node.node_id not in without:
                    try:
                        found.append(view_of(node.bootstrap))
                    except NoAnswer:
                        continue
                    return True
            return False

        wait_until(asked, "a node to answer", pause_s=0.05)
        return found[0]

    def controller(self, without: Iterable[int] = ()) -> int:
        """Id of the active controller, as the quorum says it."""
        found: list[int] = []

        def asked() -> bool:
            for node in self.living:
                if node.node_id not in without:
                    try:
                        found.append(quorum_leader(node.bootstrap))
                    except NoAnswer:
                        continue
                    if found[-1] in self.nodes and found[-1] not in without:
                        return True
            return False

        wait_until(asked, "an active controller", timeout_s=WHOLE_TIMEOUT_S, pause_s=0.05)
        return found[-1]

    def leader(self, topic: str, partition: int = 0, without: Iterable[int] = ()) -> int:
        """Id of the node that leads a partition, once one does."""
        found: list[int] = []

        def asked() -> bool:
            found.append(self.view(without).partitions[topic, partition].leader)
            return found[-1] in self.nodes and found[-1] not in without

        wait_until(asked, f"a leader of {topic}-{partition}", timeout_s=WHOLE_TIMEOUT_S, pause_s=0.05)
        return found[-1]

    def wait_until_whole(self, timeout_s: float = WHOLE_TIMEOUT_S) -> None:
        """Until each living node knows every living node, and every replica on them is in sync."""
        ids = {node.node_id for node in self.living}
        missing: list[object] = []

        def is_whole() -> bool:
            missing.clear()
            for node in self.living:
                try:
                    view = view_of(node.bootstrap)
                except NoAnswer:
                    missing.append(f"an answer of node {node.node_id}")
                    return False
                if set(view.brokers) != ids:
                    missing.append(f"node {node.node_id} knows {sorted(view.brokers)}")
                for place, partition in view.partitions.items():
                    if partition.leader not in ids or set(partition.isr) < (set(partition.replicas) & ids):
                        missing.append(f"node {node.node_id} says of {place}: {partition}")
            return not missing

        try:
            wait_until(is_whole, f"{sorted(ids)} to be one cluster in sync", timeout_s=timeout_s, pause_s=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}; {missing[:3]}") from None
