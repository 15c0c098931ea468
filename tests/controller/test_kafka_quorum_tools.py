"""kafka-metadata-quorum, kafka-features and kafka-dump-log of Kafka 4.3.1 on three processes of ours (KIP-853)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop_tests.ports import free_port
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS
from tests.support.apache_kafka import java
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


class Node:
    """A broker and controller of ours in a process of its own; `quorum` is the setting that names the controllers."""

    def __init__(self, folder: Path, node_id: int, ports: dict[int, tuple[int, int]], quorum: str) -> None:
        self.node_id = node_id
        self.data = folder / f"node-{node_id}"
        self.bootstrap = f"127.0.0.1:{ports[node_id][0]}"
        self.settings = folder / f"{node_id}.properties"
        self._log = folder / f"{node_id}.log"
        properties = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{ports[node_id][1]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data,
            **dict([quorum.split("=")]),
        }
        self.settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def format(self, *words: str) -> None:
        command = [sys.executable, "-m", "pykbroker", "format", "--config", str(self.settings), "-t", CLUSTER, *words]
        subprocess.run(command, check=True, capture_output=True)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        ready = self.settings.with_suffix(".ready")
        command = [
            sys.executable,
            "-m",
            "pykbroker",
            "start",
            "--config",
            str(self.settings),
            "--port-file",
            str(ready),
        ]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait(30)

    def wait_until_ready(self) -> None:
        ready, deadline = self.settings.with_suffix(".ready"), time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    @property
    def directory_id(self) -> str:
        lines = (self.data / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


@contextmanager
def three_nodes(folder: Path, key: str, *, is_formatted: bool) -> Iterator[list[Node]]:
    ports = {node_id: (free_port(), free_port()) for node_id in (1, 2, 3)}
    named = [f"{node_id}@127.0.0.1:{port}" for node_id, (_, port) in ports.items()]
    servers = [f"127.0.0.1:{port}" for _, port in ports.values()]
    quorum = f"{key}={','.join(servers if 'bootstrap' in key else named)}"
    nodes = [Node(folder, node_id, ports, quorum) for node_id in ports]
    if is_formatted:
        nodes[0].format("--standalone")
    with nodes[0].running(), nodes[1].running(), nodes[2].running():
        for node in nodes:
            node.wait_until_ready()
        yield nodes


def tool(name: str, *words: str) -> str:
    result = subprocess.run(
        java(f"org.apache.kafka.tools.{name}", *words), capture_output=True, text=True, timeout=90, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def quorum_tool(node: Node, *words: str, config: Node | None = None) -> str:
    more = [] if config is None else ["--command-config", str(config.settings)]
    return tool("MetadataQuorumCommand", "--bootstrap-server", node.bootstrap, *more, *words)


def replication(node: Node) -> dict[int, tuple[str, str]]:
    """Node id to directory id and status, as `describe --replication` shows them."""
    lines = quorum_tool(node, "describe", "--replication").splitlines()[1:]
    return {int(row[0]): (row[1], row[-1]) for row in map(str.split, lines)}


def add(node: Node, new: Node) -> str:
    """Adds a controller; one that follows a new leader for a moment only is told to be lagging, and tried again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return quorum_tool(node, "add-controller", config=new)
        except AssertionError as error:
            if "lagging behind" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(1)


def test_controllers_come_and_go(tmp_path: Path) -> None:
    """Formatted with one voter: the tool adds the others, through any broker, and removes the leader."""
    kafka_libs()
    with three_nodes(tmp_path, "controller.quorum.bootstrap.servers", is_formatted=True) as nodes:
        first, second, third = nodes
        assert replication(second) == {
            1: (first.directory_id, "Leader"),
            2: (second.directory_id, "Observer"),
            3: (third.directory_id, "Observer"),
        }
        assert "Added controller 2" in add(first, second)
        assert "Added controller 3" in add(third, third)
        status = quorum_tool(second, "describe", "--status")
        voters = next(line for line in status.splitlines() if line.startswith("CurrentVoters"))
        for node in nodes:
            assert f'"id": {node.node_id}, "directoryId": "{node.directory_id}"' in voters
        words = ["--controller-id", "1", "--controller-directory-id", first.directory_id]
        assert "Removed" in quorum_tool(second, "remove-controller", *words)
        shown = replication(third)
        assert shown[1] == (first.directory_id, "Observer")
        assert sorted(status for _, status in shown.values()) == ["Follower", "Leader", "Observer"]
    files = sorted((first.data / "__cluster_metadata-0").glob("*.log"))
    checkpoint = first.data / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    for path in (*files, checkpoint):
        dumped = tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
        assert "KRaftVoters" in dumped
        assert "KRaftVersion" in dumped


def test_configured_voters_become_voters_of_the_log(tmp_path: Path) -> None:
    """kafka-features raises kraft.version; the leader knows the voters' directories by then. Then they can change."""
    kafka_libs()
    with three_nodes(tmp_path, "controller.quorum.voters", is_formatted=False) as nodes:
        first = nodes[0]
        before = quorum_tool(first, "describe", "--status")
        assert first.directory_id not in next(line for line in before.splitlines() if "CurrentVoters" in line)
        deadline = time.monotonic() + 60
        while True:
            try:
                upgraded = tool(
                    "FeatureCommand", "--bootstrap-server", first.bootstrap, "upgrade", "--feature", "kraft.version=1"
                )
                break
            except AssertionError as error:
                if "not all of the voters support it" not in str(error) or time.monotonic() > deadline:
                    raise
        assert "kraft.version was upgraded to 1" in upgraded
        shown = replication(first)
        assert {directory for directory, _ in shown.values()} == {node.directory_id for node in nodes}
        leader = next(node for node in nodes if shown[node.node_id][1] == "Leader")
        follower = next(node for node in nodes if node is not leader)
        words = ["--controller-id", str(follower.node_id), "--controller-directory-id", follower.directory_id]
        assert "Removed" in quorum_tool(leader, "remove-controller", *words)
        assert replication(leader)[follower.node_id][1] == "Observer"


def test_kafka_goes_on_with_a_quorum_that_we_formatted(tmp_path: Path) -> None:
    """Kafka starts on the directory that `pykbroker format --standalone` and a run have left, with its topics and
    voters."""
    kafka_libs()
    ports = {1: (free_port(), free_port())}
    node = Node(tmp_path, 1, ports, f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[1][1]}")
    node.format("--standalone")
    with node.running():
        node.wait_until_ready()
        tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "kept")
    with kafka_on(node, tmp_path / "kafka.log"):
        assert "kept" in tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--list")
        assert replication(node) == {1: (node.directory_id, "Leader")}


def test_kafka_begins_at_the_levels_that_we_formatted(tmp_path: Path) -> None:
    """Levels of a directory in which nothing has run, and for which no options named any."""
    kafka_libs()
    ports = {1: (free_port(), free_port())}
    node = Node(tmp_path, 1, ports, f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[1][1]}")
    node.format("--standalone")
    with kafka_on(node, tmp_path / "kafka.log"):
        described = tool("FeatureCommand", "--bootstrap-server", node.bootstrap, "describe")
    levels = dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", described))
    expected = {name: str(level) for name, level in BOOTSTRAP_LEVELS.items()}
    assert levels == {**expected, "metadata.version": "4.3-IV0", "kraft.version": "1"}


@contextmanager
def kafka_on(node: Node, log_path: Path) -> Iterator[None]:
    """Apache Kafka with the settings and the directory of a node; it answers."""
    with log_path.open("wb") as log:
        kafka = subprocess.Popen(java("kafka.Kafka", str(node.settings)), stdout=log, stderr=log, env=os.environ)
        try:
            deadline = time.monotonic() + 90
            while True:
                assert time.monotonic() < deadline
                assert kafka.poll() is None
                try:
                    tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--list")
                    break
                except (AssertionError, subprocess.TimeoutExpired):
                    time.sleep(0.5)
            yield
        finally:
            kafka.send_signal(signal.SIGTERM)
            kafka.wait(60)
