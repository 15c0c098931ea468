"""Output of the nodes of `pykbroker start --nodes`, from pipes in place of processes, and their end, with
processes that do nothing."""

from __future__ import annotations

import os
import selectors
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.nodes import _cluster_id
from pykbroker.cli.start.options import StartOptions, TopicSpec
from pykbroker.cli.start.supervisor import Node, Supervisor
from pykbroker.processes.forks import exit_text
from tests.pykbroker.cli.conftest import Run


def test_each_line_has_the_id_of_its_node(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    supervisor = Supervisor(StartOptions(), {}, {1: "data/node-1.properties"}, "id")
    output, nodes_output = os.pipe()
    os.set_blocking(output, False)
    node = Node(1, pid=0, output=output, ready=-1, lifeline=-1)
    os.write(nodes_output, b"first\nsecond\nbegin")
    supervisor._forward_output(node)
    assert capfdbinary.readouterr().err == b"node 1 | first\nnode 1 | second\n"
    os.write(nodes_output, b" and end without a line break")
    os.close(nodes_output)
    supervisor._forward_output(node)
    assert capfdbinary.readouterr().err == b"node 1 | begin and end without a line break\n"
    supervisor._forward_output(node)
    assert capfdbinary.readouterr().err == b""
    os.close(output)


class Sleeper:
    """A node whose process does nothing; `life` is the other end of its lifeline."""

    def __init__(self, node_id: int) -> None:
        self._process = subprocess.Popen(["sleep", "600"])
        self.output, write_end = os.pipe()
        os.set_blocking(self.output, False)
        os.close(write_end)
        self.life, lifeline = os.pipe()
        os.set_blocking(self.life, False)
        self.node = Node(node_id, self._process.pid, self.output, -1, lifeline)

    @property
    def is_told_to_stop(self) -> bool:
        """True if the lifeline is closed."""
        try:
            return os.read(self.life, 1) == b""
        except BlockingIOError:
            return False

    def await_end(self) -> None:
        """Waits until the process has ended, and leaves it to the supervisor to reap it, which it may have done."""
        if self.node.is_running:
            os.waitid(os.P_PID, self.node.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        if self.node.is_running:
            os.kill(self.node.pid, signal.SIGKILL)
            os.waitpid(self.node.pid, 0)
        self._process.returncode = 0
        self.node.close_lifeline()
        os.close(self.output)
        os.close(self.life)


@pytest.fixture
def three() -> Iterator[tuple[Supervisor, list[Sleeper]]]:
    """A supervisor of three nodes."""
    sleepers = [Sleeper(number) for number in (1, 2, 3)]
    supervisor = Supervisor(StartOptions(), {}, {n: f"data/node-{n}.properties" for n in (1, 2, 3)}, "id")
    supervisor._nodes = [sleeper.node for sleeper in sleepers]
    yield supervisor, sleepers
    for sleeper in sleepers:
        sleeper.close()
    supervisor._selector.close()


def test_a_node_that_dies_is_reported(
    three: tuple[Supervisor, list[Sleeper]], capfd: pytest.CaptureFixture[str]
) -> None:
    """With the command that starts it again; the others keep running."""
    supervisor, (first, second, third) = three
    supervisor._is_announced = True
    os.kill(first.node.pid, signal.SIGKILL)
    first.await_end()
    supervisor._reap()
    assert capfd.readouterr().err == (
        f"pykbroker: node 1 (process {first.node.pid}) was ended by SIGKILL; 2 of 3 nodes go on. "
        "To start it again: pykbroker start --config data/node-1.properties\n"
    )
    assert not second.is_told_to_stop
    for other in (second, third):
        os.kill(other.node.pid, signal.SIGTERM)
        other.await_end()
        supervisor._reap()
    assert "was ended by SIGTERM; no node is left." in capfd.readouterr().err
    assert supervisor._has_failed


def test_a_node_that_dies_before_the_cluster_is_ready_ends_all(
    three: tuple[Supervisor, list[Sleeper]], capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor, (first, second, third) = three
    os.kill(first.node.pid, signal.SIGKILL)
    first.await_end()
    supervisor._reap()
    assert "node 1 was ended by SIGKILL before the cluster was ready: all are stopped" in capfd.readouterr().err
    second.await_end()
    third.await_end()
    supervisor._reap()
    assert not any(node.is_running for node in supervisor._nodes)


def test_nodes_without_a_majority_no_longer_wait_for_the_controller(three: tuple[Supervisor, list[Sleeper]]) -> None:
    """While all stop, a broker asks the controller for permission, which a minority of voters cannot give."""
    supervisor, (first, second, third) = three
    supervisor._signals = 1
    os.kill(first.node.pid, signal.SIGKILL)
    first.await_end()
    supervisor._reap()
    assert not third.is_told_to_stop, "two of three are a majority"
    os.kill(second.node.pid, signal.SIGKILL)
    second.await_end()
    supervisor._reap()
    assert third.is_told_to_stop


def test_signals_stop_in_order_and_then_at_once(
    three: tuple[Supervisor, list[Sleeper]], capfd: pytest.CaptureFixture[str]
) -> None:
    """A node that does not end by SIGTERM, as it is busy, is killed by the second signal; others are no errors."""
    supervisor, sleepers = three
    stubborn = sleepers[0].node
    os.kill(stubborn.pid, signal.SIGSTOP)
    ours, theirs = os.pipe()
    os.write(theirs, bytes([signal.SIGCHLD, signal.SIGTERM]))
    supervisor._on_signals(ours)
    assert capfd.readouterr().out == "stopping; once more stops at once\n"
    assert supervisor._stop_deadline is not None
    os.write(theirs, bytes([signal.SIGINT]))
    supervisor._on_signals(ours)
    assert capfd.readouterr().err == "pykbroker: stopped at once\n"
    assert supervisor._stop_deadline is None
    for sleeper in sleepers:
        sleeper.await_end()
    supervisor._reap()
    assert not any(node.is_running for node in supervisor._nodes)
    os.close(ours)
    os.close(theirs)


def test_the_end_of_standard_input_stops_all(three: tuple[Supervisor, list[Sleeper]]) -> None:
    supervisor, sleepers = three
    ours, theirs = os.pipe()
    supervisor._selector.register(ours, selectors.EVENT_READ, supervisor._on_stdin)
    os.write(theirs, b"a line")
    supervisor._on_stdin(ours)
    assert supervisor._signals == 0
    os.close(theirs)
    supervisor._on_stdin(ours)
    for sleeper in sleepers:
        sleeper.await_end()
    supervisor._reap()
    assert [exit_text(os.waitstatus_to_exitcode(s.node.status or 0)) for s in sleepers] == ["was ended by SIGTERM"] * 3
    os.close(ours)


def test_the_cluster_id_is_that_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTER_ID", raising=False)
    assert len(_cluster_id(str(tmp_path))) == 22
    assert _cluster_id(str(tmp_path)) != _cluster_id(str(tmp_path))
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1/meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert _cluster_id(str(tmp_path)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    monkeypatch.setenv("CLUSTER_ID", "AAAAAAAAAAAAAAAAAAAAAg")
    assert _cluster_id(str(tmp_path)) == "AAAAAAAAAAAAAAAAAAAAAg"


def test_a_cluster_of_two_is_announced(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the command line to the text when both are ready, with pipes in place of processes."""
    pids = iter((101, 102))
    topics: list[tuple[str, int, list[str]]] = []

    async def create(host: str, port: int, specs: list[TopicSpec], opener: object, *, brokers_within_s: float) -> None:
        topics.append((host, port, [spec.name for spec in specs]))

    def run_supervisor(supervisor: Supervisor) -> int:
        for node_id in supervisor._configs:
            ready, write_end = os.pipe()
            node = Node(node_id, next(pids), output=-1, ready=ready, lifeline=-1)
            supervisor._selector.register(ready, selectors.EVENT_READ, supervisor._on_ready)
            os.write(write_end, f"localhost:{9100 + node_id}\n".encode())
            os.close(write_end)
            supervisor._nodes.append(node)
        for node in supervisor._nodes:
            assert not port_file.exists(), "written when all are ready"
            supervisor._on_ready(node)
            os.close(node.ready)
        seen.append(port_file.read_text())
        return 0

    port_file, seen = tmp_path / "port", list[str]()
    monkeypatch.setattr(Supervisor, "run", run_supervisor)
    monkeypatch.setattr("pykbroker.processes.preloaded.prepare_all", lambda: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("pykbroker.cli.start.initial_topics.create_initial_topics", create)
    directory = tmp_path / "data"
    words = ["--nodes", "2", "--data-dir", str(directory), "--port-file", str(port_file), "--topic", "orders:3"]
    code, output, errors = run("start", *words, "--override", "no.such.setting=1")
    assert code == 0
    assert errors == "pykbroker: unknown settings, ignored: no.such.setting\n"
    first, second = seen[0].split(",")
    assert f"is ready: 2 nodes\n  bootstrap   {first},{second}\n" in output
    assert f"data in     {directory}, with a .properties file for each node" in output
    assert "processes   101, 102" in output
    assert topics == [("localhost", 9101, ["orders"])]
    files = [directory / f"node-{number}.properties" for number in (1, 2)]
    assert [f"node.id={number}" in file.read_text() for number, file in enumerate(files, start=1)] == [True, True]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}, "passwords may be among the settings"
    assert not port_file.exists(), "removed at the end"


def test_topics_that_cannot_be_created_end_the_cluster(
    three: tuple[Supervisor, list[Sleeper]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor, sleepers = three

    async def refuse(*_: object, **__: object) -> None:
        raise CliError("topic t was not created: no room")

    monkeypatch.setattr("pykbroker.cli.start.initial_topics.create_initial_topics", refuse)
    supervisor._options = StartOptions()
    supervisor._options.topics = [TopicSpec("t", 1, {})]
    sleepers[0].node.address = "[::1]:9092"
    supervisor._create_topics_and_announce()
    assert capfd.readouterr().err == "pykbroker: topic t was not created: no room\n"
    assert supervisor._has_failed
    for sleeper in sleepers:
        sleeper.await_end()
    supervisor._reap()


def test_a_cluster_in_a_place_that_cannot_be(run: Run, tmp_path: Path) -> None:
    code, _, errors = run("start", "--nodes", "2", "--override", f"log.dirs={tmp_path}/a,{tmp_path}/b")
    assert (code, "with --nodes there is one directory" in errors) == (2, True)
    (tmp_path / "file").write_text("")
    code, _, errors = run("start", "--nodes", "2", "--data-dir", str(tmp_path / "file"))
    assert (code, errors) == (1, f"pykbroker: {tmp_path}/file: File exists\n")
