"""Brokers forked from a prepared process: what could differ from a broker with an interpreter of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from pykbroker.processes import fork_server, preloaded
from pykbroker.processes.broker_process import CAN_FORK, ProcessError
from pykbroker.processes.forked_process import STATUS_UNKNOWN, ForkedProcess
from pykbroker.processes.interpreter_process import InterpreterProcess
from pykbroker.processes.prepared_process import PreparedProcess, prepared_process
from pykbroker.testing.local_broker import LocalBroker, LocalBrokerError, _environment
from tests.pykbroker.testing.test_local_broker import wait_until_gone, wait_until_removed

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="brokers are forked on Linux alone")


def parent_of(pid: int | None) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return int(fields[1])


def open_descriptors() -> set[str]:
    """The targets of this process's descriptors; those of pipes and sockets contain their inode number.

    A number of descriptors would not do: the garbage collector may close those of an earlier test at any time.
    """
    targets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that `listdir` itself had open
            targets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return targets


def meta_properties(broker: LocalBroker) -> dict[str, str]:
    lines = Path(broker.data_dir, "meta.properties").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_brokers_are_forks_of_one_process_and_share_no_chance() -> None:
    """Two forks begin with the same memory: what is drawn at random in them must differ all the same."""
    with LocalBroker() as first, LocalBroker() as second:
        assert parent_of(first.pid) == parent_of(second.pid) == prepared_process(_environment()).pid
        ours, theirs = meta_properties(first), meta_properties(second)
        assert ours["cluster.id"] != theirs["cluster.id"]
        assert ours["directory.id"] != theirs["directory.id"]
        assert os.getsid(first.pid or 0) == first.pid, "Ctrl-C in a terminal is for the program alone"


@pytest.mark.parametrize("name", [*preloaded.MODULES, *preloaded.USED_BY_CLIENTS])
def test_what_is_imported_in_advance_is_there(name: str) -> None:
    """A module that was renamed would end the prepared process."""
    assert find_spec(name) is not None


@pytest.mark.parametrize("step", [*preloaded.CODECS, *preloaded.CODECS_USED_BY_CLIENTS], ids=str)
def test_what_is_compiled_in_advance_is_declared(step: preloaded.CodecStep) -> None:
    preloaded.prepare(step)


PREPARED_START = """
import os, sys
from pykbroker.processes import preloaded
preloaded.prepare_all()
from pykbroker.cli.start.run import start
from pykbroker.protocol import codec
from pykbroker.protocol.fields import Message

def prepared():
    messages = [Message]
    for message in messages:
        messages += message.__subclasses__()
    modules = {name for name in sys.modules if name.startswith("pykbroker")}
    return modules | {*codec._readers} | {*codec._writers} | {m for m in messages if "__init__" in vars(m)}

def tell(address):
    print(prepared() - before, file=sys.stderr, flush=True)
    os._exit(0)

before = prepared()
start(["--port", "0", "--data-dir", sys.argv[1]], tell)
"""


def test_a_start_imports_and_compiles_nothing_that_is_not_prepared(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PREPARED_START, str(tmp_path / "data")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=_environment())
    assert ran.stderr == "set()\n"


class Imports:
    """A prepared process in this thread, whose imports and forks are only noted. Requests are sent from its imports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The handlers of signals are those of the process that runs the tests.
        monkeypatch.setattr("signal.signal", lambda *_: None)
        monkeypatch.setattr("signal.set_wakeup_fd", lambda *_, **__: None)
        monkeypatch.setattr(fork_server, "FIRST_QUIET_S", 0.0)
        monkeypatch.setattr(preloaded, "AT_START", ("one", "two"))
        monkeypatch.setattr(preloaded, "FOR_CLIENTS", ("three", "four"))
        self.ours, self.theirs = socket.socketpair()
        self.server = fork_server.ForkServer(self.theirs, lambda words, tell: 0)
        self.imported: list[str] = []
        self.at_import: dict[str, Callable[[], object]] = {}
        monkeypatch.setattr(self.server, "_start_broker", self._fork)
        monkeypatch.setattr("importlib.import_module", self._import)

    def ask(self) -> None:
        body = b'{"words": []}'
        self.ours.send(struct.pack(">I", len(body)) + body)

    def run(self) -> list[str]:
        self.server.run()
        for end in (self.ours, self.theirs, self.server._wakeups, self.server._handlers_end):
            end.close()
        return self.imported

    def _fork(self, request: object, *descriptors: int) -> None:
        self.imported.append("FORK")
        self.server._fork_count += 1

    def _import(self, name: str) -> None:
        self.imported.append(name)
        self.at_import.get(name, lambda: None)()


def test_the_first_broker_does_not_wait_for_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = Imports(monkeypatch)
    imports.ask()
    imports.at_import["two"] = imports.ours.close
    assert imports.run() == ["FORK", "one", "two"]


def test_a_request_between_imports_is_served_and_later_brokers_have_what_clients_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imports = Imports(monkeypatch)
    imports.ask()
    imports.at_import["one"] = imports.ask
    imports.at_import["four"] = imports.ours.close
    assert imports.run() == ["FORK", "one", "FORK", "two", "three", "four"]


def test_an_interpreter_of_its_own() -> None:
    with LocalBroker(prepared=False) as broker:
        assert isinstance(broker._resources.process, InterpreterProcess)
        assert parent_of(broker.pid) == os.getpid()
        broker.kill()
        assert broker.returncode == -signal.SIGKILL
        assert broker.restart().stop() == 0


def test_pause_stop_kill_and_exit_codes() -> None:
    with LocalBroker() as broker:
        assert isinstance(broker._resources.process, ForkedProcess)
        broker.pause()
        broker.resume()
        broker.pause()
        assert broker.stop() == 0, "a paused one goes on to stop"
        assert "stopping" in broker.log
        broker.start()
        assert broker.returncode is None
        os.kill(broker.pid or 0, signal.SIGKILL)
        wait_until_gone(broker.pid or 0)
        broker._resources.process.wait(20)
        assert (broker.is_running, broker.returncode) == (False, -signal.SIGKILL)
        with pytest.raises(LocalBrokerError, match="not running"):
            broker.pause()


def test_what_it_gets_from_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were started by exec: the environment and the working directory of this moment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with LocalBroker() as broker:
        assert Path(f"/proc/{broker.pid}/cwd").resolve() == tmp_path
        # What an interpreter reads at its start is had from another prepared process.
        environment = Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
        assert b"PYTHONHASHSEED=7" in environment
        monkeypatch.delenv("PYTHONHASHSEED")
        with LocalBroker() as other:
            assert parent_of(other.pid) != parent_of(broker.pid)


def test_many_at_once_from_several_threads() -> None:
    brokers = [LocalBroker(topics=[f"t{number}"]) for number in range(6)]
    threads = [threading.Thread(target=broker.start) for broker in brokers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len({broker.port for broker in brokers}) == len(brokers)
        assert all(broker.is_running for broker in brokers)
    finally:
        for broker in brokers:
            broker.close()


def use_in_a_fork(parents: LocalBroker, results: multiprocessing.SimpleQueue[object]) -> None:
    parents.close()
    with LocalBroker() as broker:
        results.put((broker.is_running, parent_of(broker.pid)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_this_process_has_a_prepared_process_of_its_own() -> None:
    """multiprocessing forks a program with its LocalBrokers: they stay the parent's."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with LocalBroker() as broker:
        child = context.Process(target=use_in_a_fork, args=(broker, results))
        child.start()
        is_running, prepared = results.get()
        child.join(60)
        assert child.exitcode == 0
        assert is_running
        assert prepared != parent_of(broker.pid)
        assert broker.is_running
        assert os.path.exists(broker.data_dir)


def test_the_prepared_process_is_killed() -> None:
    """Its brokers live on, nobody knows their exit codes, and the next broker has another prepared process."""
    with LocalBroker() as broker:
        killed = parent_of(broker.pid)
        os.kill(killed, signal.SIGKILL)
        wait_until_gone(killed)
        assert broker.is_running
        with LocalBroker() as other:
            assert parent_of(other.pid) != killed
        assert broker.stop() == STATUS_UNKNOWN
        assert "stopping" in broker.log


@pytest.mark.parametrize("is_paused", [False, True])
def test_everything_goes_when_the_program_is_killed(is_paused: bool) -> None:
    """kill -9 leaves the program no moment: the prepared process ends its brokers and removes their folders."""
    script = (
        "import pykbroker, time\n"
        "broker = pykbroker.LocalBroker().start()\n"
        "cluster = pykbroker.LocalCluster(2).start_all()\n"
        + ("broker.pause(); cluster.pause(2)\n" if is_paused else "")
        + "nodes = [broker, *map(cluster.node, cluster.node_ids)]\n"
        "print(*[node.pid for node in nodes])\n"
        "print(cluster.data_dir, *[node._resources.directory for node in nodes], flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        folders = program.stdout.readline().split()
        assert len(pids) == 3
        assert len(folders) == 4
        program.kill()
    for pid in pids:
        wait_until_gone(pid)
    for folder in folders:
        wait_until_removed(folder)


def test_a_program_that_ends_lets_a_broker_with_data_end_in_order(tmp_path: Path) -> None:
    script = (
        "import sys, pykbroker\n"
        "broker = pykbroker.LocalBroker(data_dir=sys.argv[1], keep=True).start()\n"
        "print(broker._resources.directory, broker.pid)\n"
    )
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    folder, pid = done.stdout.split()
    wait_until_gone(int(pid))
    try:
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    finally:
        subprocess.run(["rm", "-r", folder], check=True)


def test_a_prepared_process_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "sitecustomize.py"
    broken.write_text("import os; print('no luck'); os._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broker = LocalBroker()
    with pytest.raises(LocalBrokerError, match=r"exit code 3: no luck"):
        broker.start()
    broker.close()


def test_a_broker_that_cannot_be_forked_leaves_no_descriptor(tmp_path: Path) -> None:
    """The traceback of the error holds what `start` has made: it is closed, not left to the garbage collector."""
    prepared = PreparedProcess(_environment())
    os.kill(prepared.pid, signal.SIGKILL)
    while prepared.is_running:
        threading.Event().wait(0.01)
    before = open_descriptors()
    with pytest.raises(ProcessError, match="exit code -9") as caught:
        prepared.start([], _environment(), str(tmp_path / "log"), is_temporary=True, timeout_s=10)
    assert open_descriptors() <= before
    assert caught.value.__traceback__ is not None


def test_a_fork_that_takes_too_long_leaves_no_descriptor(tmp_path: Path) -> None:
    prepared = PreparedProcess(_environment())
    os.kill(prepared.pid, signal.SIGSTOP)
    before = open_descriptors()
    with pytest.raises(ProcessError, match=r"did not fork within 0\.01 s") as caught:
        prepared.start([], _environment(), str(tmp_path / "log"), is_temporary=True, timeout_s=0.01)
    assert open_descriptors() <= before
    assert caught.value.__traceback__ is not None
    os.kill(prepared.pid, signal.SIGKILL)
