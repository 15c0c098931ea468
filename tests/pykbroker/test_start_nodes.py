"""`pykbroker start --nodes` as real processes: what it says, who ends when, and LocalCluster beside it."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pykbroker
from pykbroker.cli import main
from pykbroker.testing.local_broker import LocalBrokerError

DEADLINE_S = 30.0


class Started:
    """The supervisor's process and what it has printed."""

    def __init__(self, folder: Path, nodes: int | None, *words: str) -> None:
        self.folder = folder
        self.port_file = folder / "address"
        self._log_path = folder / "log"
        command = [sys.executable, "-m", "pykbroker", "start", "--port", "0"]
        command += [] if nodes is None else ["--nodes", str(nodes)]
        command += ["--data-dir", str(folder / "data"), "--port-file", str(self.port_file), *words]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}:\n{self.log}"
            time.sleep(0.005)

    def wait_until_ready(self) -> str:
        """The bootstrap list."""
        self.wait_for(lambda: self.port_file.exists() or self.process.poll() is not None, "the cluster to be ready")
        assert self.process.poll() is None, self.log
        return self.port_file.read_text()

    @property
    def nodes(self) -> list[int]:
        """The processes of the nodes."""
        (numbers,) = re.findall(r"processes +([\d, ]+)", self.log)
        return [int(number) for number in numbers.split(",")]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def start_one(nodes: int, *words: str) -> Started:
        started.append(Started(tmp_path, nodes, *words))
        return started[-1]

    yield start_one
    for one in started:
        one.end()


def topic_command(*words: str) -> str:
    """`pykbroker topic ...` in a process of its own: its client leaves sockets behind when a node is away."""
    command = [sys.executable, "-m", "pykbroker", "topic", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_text_when_all_are_ready_and_an_end_in_order(start: Callable[..., Started], tmp_path: Path) -> None:
    cluster = start(1, "--topic", "orders:2")
    address = cluster.wait_until_ready()
    assert "is ready: 1 nodes" in cluster.log
    assert "Warning" not in cluster.log
    assert f"bootstrap   {address}" in cluster.log
    assert (tmp_path / "data" / "node-1" / "orders-1").is_dir()
    settings = tmp_path / "data" / "node-1.properties"
    assert f"log.dirs={tmp_path}/data/node-1" in settings.read_text()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600, "passwords may be among the settings"
    (node,) = cluster.nodes
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.process.wait(DEADLINE_S) == 0
    assert is_gone(node)
    assert "stopping; once more stops at once" in cluster.log
    assert not cluster.port_file.exists()


def test_a_node_that_dies_is_named_and_not_started_again(start: Callable[..., Started], tmp_path: Path) -> None:
    cluster = start(1)
    cluster.wait_until_ready()
    os.kill(cluster.nodes[0], signal.SIGKILL)
    assert cluster.process.wait(DEADLINE_S) == 1
    assert f"node 1 (process {cluster.nodes[0]}) was ended by SIGKILL; no node is left" in cluster.log
    assert f"pykbroker start --config {tmp_path}/data/node-1.properties" in cluster.log


def test_nodes_end_when_the_supervisor_is_killed(start: Callable[..., Started]) -> None:
    cluster = start(1)
    cluster.wait_until_ready()
    cluster.process.kill()
    cluster.wait_for(lambda: is_gone(cluster.nodes[0]), "the node to end")


def test_a_node_that_cannot_start_stops_all_and_says_why(start: Callable[..., Started], tmp_path: Path) -> None:
    folder = tmp_path / "data" / "node-1"
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\ncluster.id=aaaaaaaaaaaaaaaaaaaaaA\nnode.id=7\n")
    cluster = start(1)
    assert cluster.process.wait(DEADLINE_S) == 1
    assert "node 1 | pykbroker: " in cluster.log
    assert "belongs to node 7, this is node 1" in cluster.log
    assert "before the cluster was ready: all are stopped" in cluster.log


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nodes", "0"], "expected a number from 1 to 9"),
        (["--nodes", "3", "--override", "node.id=7"], "node.id is set for each node by --nodes itself"),
        (["--nodes", "3", "--port", "65534"], "3 nodes need 3 ports from 65534 on"),
        (["--nodes", "3", "--override", "log.dirs=/a,/b", "--port", "0"], "there is one directory"),
    ],
)
def test_what_cannot_be_asked(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", *words]) == 2
    assert text in capsys.readouterr().err


def test_feature_levels_that_do_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "3", "--port", "0", "--data-dir", str(tmp_path), "--release-version", "0.1"]
    assert main(["start", *words]) == 2
    assert "Unknown metadata.version '0.1'" in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").touch()
    assert main(["start", "--nodes", "3", "--data-dir", str(tmp_path)]) == 1
    assert "has the data of a single node" in capsys.readouterr().err
    (tmp_path / "meta.properties").unlink()
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").touch()
    assert main(["start", "--nodes", "3", "--data-dir", str(tmp_path)]) == 1
    assert "has a cluster of 1: start it with --nodes 1" in capsys.readouterr().err


def test_local_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pykbroker.LocalCluster(nodes=1, topics={"orders": 2}, data_dir=tmp_path) as cluster:
        assert main(["topic", "list", "-b", cluster.bootstrap_servers]) == 0
        assert "orders" in capsys.readouterr().out
        address = cluster.bootstrap_servers
        cluster.pause(1)
        cluster.resume(1)
        cluster.kill(1)
        assert repr(cluster) == "<LocalCluster of 1, running: none>"
        cluster.start(1)
        assert cluster.bootstrap_servers == address
        cluster.stop(1)
        assert cluster.node(1).returncode == 0
        with pytest.raises(LocalBrokerError, match="there is no node 2"):
            cluster.kill(2)
        with pytest.raises(LocalBrokerError, match="not running"):
            cluster.pause(1)
    with pykbroker.LocalCluster(nodes=1, data_dir=tmp_path) as again:
        assert main(["topic", "list", "-b", again.bootstrap_servers]) == 0
        assert "orders" in capsys.readouterr().out


def test_three_nodes_go_on_when_one_dies(start: Callable[..., Started]) -> None:
    cluster = start(3, "--topic", "orders:3")
    address = cluster.wait_until_ready()
    assert address.count(",") == 2
    os.kill(cluster.nodes[1], signal.SIGKILL)
    cluster.wait_for(lambda: "2 of 3 nodes go on. To start it again: pykbroker start --config" in cluster.log, "a word")
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (topic,) = json.loads(topic_command("describe", "orders", "--json", "-b", address))
        partitions = topic["partitions"]
        if all(partition["leader"] in (1, 3) for partition in partitions):
            break
        assert time.monotonic() < deadline, partitions
    # By hand, as the text says.
    command = [sys.executable, "-m", "pykbroker", "start", "--config", str(cluster.folder / "data/node-2.properties")]
    again = subprocess.Popen([*command, "--stop-with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert again.stdout is not None
    assert "is ready" in again.stdout.readline()
    assert again.stdin is not None
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(DEADLINE_S) == 1, "one of its nodes died"
    again.stdin.close()
    assert again.wait(DEADLINE_S) == 0
    again.stdout.close()


def test_local_cluster_of_three() -> None:
    with pykbroker.LocalCluster(nodes=3, topics={"orders": 1}) as cluster:
        cluster.kill(2)
        assert repr(cluster) == "<LocalCluster of 3, running: 1, 3>"
        topic_command("create", "more", "-p", "2", "-r", "2", "-b", cluster.bootstrap_servers)
        cluster.start(2)
        cluster.pause(3)
        cluster.resume(3)
        cluster.stop(1)
        assert {"orders", "more"} <= set(topic_command("list", "-b", cluster.node(2).bootstrap_servers).split())
        left = [cluster.node(2), cluster.node(3)]
    # They are killed: in an ordered stop the last one would wait for leave that cannot come.
    assert [node.returncode for node in left] == [-signal.SIGKILL] * 2
