"""Messages about a forked broker: times that are over, a prepared process that is gone, systems without pidfds."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pykbroker.processes.broker_process import CAN_FORK
from pykbroker.processes.forked_process import STATUS_UNKNOWN, ForkedProcess
from pykbroker.processes.interpreter_process import InterpreterProcess

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="brokers are forked on Linux alone")


class Fork:
    """A process of this test in place of a fork; `tell` is the prepared process, which gives no pidfd."""

    def __init__(self) -> None:
        self.theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, lifeline = os.pipe()
        os.close(reading)
        self.process = ForkedProcess(ours, lifeline)
        self.real = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])

    def tell(self, **message: Any) -> None:
        self.theirs.send(json.dumps(message).encode())

    def end(self) -> None:
        self.real.kill()
        self.real.wait()
        self.theirs.close()
        self.process.close()


@pytest.fixture
def fork() -> Iterator[Fork]:
    made = Fork()
    yield made
    made.end()


def test_a_wait_ends_with_its_time(fork: Fork) -> None:
    with pytest.raises(TimeoutError):
        fork.process.wait_for_pid(0.0)
    fork.tell(pid=fork.real.pid)
    fork.process.wait_for_pid(5.0)
    with pytest.raises(TimeoutError):
        fork.process.wait(0.0)
    fork.tell(status=3)
    assert fork.process.wait(5.0) == 3


def test_signals_reach_a_process_without_a_pidfd_and_none_that_has_ended(fork: Fork) -> None:
    """After its end another process may have its id."""
    fork.tell(pid=fork.real.pid)
    fork.process.wait_for_pid(5.0)
    fork.process.send_signal(signal.SIGKILL)
    assert fork.real.wait(10) == -signal.SIGKILL
    fork.tell(status=-signal.SIGKILL)
    assert fork.process.wait(5.0) == -signal.SIGKILL
    sent: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append(number))
        fork.process.send_signal(signal.SIGKILL)
    assert sent == []


def test_without_the_prepared_process_and_a_pidfd_its_end_is_seen_by_its_id(fork: Fork) -> None:
    fork.tell(pid=fork.real.pid)
    fork.process.wait_for_pid(5.0)
    fork.theirs.close()
    assert fork.process.poll() is None
    with pytest.raises(TimeoutError):
        fork.process.wait(0.01)
    fork.real.kill()
    fork.real.wait()
    assert fork.process.wait(5.0) == STATUS_UNKNOWN


def test_a_channel_that_fails_is_that_of_a_prepared_process_that_is_gone(
    fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork.tell(pid=fork.real.pid)
    fork.process.wait_for_pid(5.0)

    def refuse(*_: object) -> object:
        raise ConnectionResetError

    monkeypatch.setattr(socket, "recv_fds", refuse)
    assert fork.process.poll() is None
    fork.real.kill()
    fork.real.wait()
    assert fork.process.poll() == STATUS_UNKNOWN


def test_a_wait_for_another_interpreter_ends_with_its_time() -> None:
    process = InterpreterProcess.__new__(InterpreterProcess)
    process._popen = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(TimeoutError):
            process.wait(0.01)
    finally:
        process._popen.kill()
        process._popen.wait()
