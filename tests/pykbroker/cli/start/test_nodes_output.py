"""Output of the nodes of `pykbroker start --nodes`, from pipes in place of processes, and their end, with
processes that do nothing."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.cli.start.nodes import Node, Supervisor, _cluster_id
from pykbroker.cli.start.options import StartOptions
from pykbroker.processes.forks import exit_text


def test_each_line_has_the_id_of_its_node(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    supervisor = Supervisor(StartOptions(), {}, {1: "data/node-1.properties"}, "id")
    output, nodes_output = os.pipe()
    os.set_blocking(output, False)
    node = Node(1, pid=0, output=output, ready=-1, lifeline=-1)
    os.write(nodes_output, b"first\nsecond\nbegin")
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b"node 1 | first\nnode 1 | second\n"
    os.write(nodes_output, b" and end without a line break")
    os.close(nodes_output)
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b"node 1 | begin and end without a line break\n"
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b""
    os.close(output)


class Sleeper:
    """A node whose process does nothing; its lifeline's other end is `life`."""

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
        """True if the lifeline is cut."""
        try:
            return os.read(self.life, 1) == b""
        except BlockingIOError:
            return False

    def await_end(self) -> None:
        """Waits until the process has ended, and leaves it to the supervisor to reap it."""
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
    """With the command that starts it again; the others go on."""
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
    """While all stop: a broker asks the controller for permission, which a minority of voters cannot give."""
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
