"""Processes of LocalBroker: one with an interpreter of its own, or a fork of a prepared one.

Both run `pykbroker start` with the same words, end when this process ends, and have the same few methods. A fork is
ready in 20 ms instead of 170. It is no child of this process: how it ended comes from the prepared process, and
signals go through a pidfd, so that they reach no other process that was given its number.

The prepared process starts with the first broker and serves all that follow; it ends with this process. Brokers whose
environment differs in what an interpreter reads at its start get one of their own. After a fork of this process
(multiprocessing, for example) the child starts its own when it needs one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Protocol

__all__ = [
    "BrokerProcess",
    "ForkedProcess",
    "InterpreterProcess",
    "PreparedProcess",
    "ProcessError",
    "prepared_process",
]

CAN_FORK = sys.platform == "linux"
"""Elsewhere a broker has an interpreter of its own: SOCK_SEQPACKET between processes and pidfds are Linux's."""

STATUS_UNKNOWN = 255
"""Exit code of a broker whose prepared process was killed before the broker ended."""

END_TIMEOUT_S = 10.0
_POLL_S = 0.005
_MESSAGE_SIZE = 4096
_LENGTH = struct.Struct(">I")
# Read when an interpreter or the C library starts: a fork cannot have them different.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")


class ProcessError(Exception):
    """A process could not be started; the text says why."""


class BrokerProcess(Protocol):
    """A broker's process. `poll` and `wait` give the exit code, negative after a signal, as in subprocess."""

    pid: int

    def address(self) -> str | None:
        """host:port once the broker is ready, None before."""

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until the broker may be ready or have ended, at most so long."""

    def poll(self) -> int | None:
        """The exit code, None while it lives."""

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end. Raises TimeoutError."""

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""

    def close_stdin(self) -> None:
        """Tell it that it is not needed any more."""


class InterpreterProcess:
    """`python -m pykbroker start` in an interpreter of its own, which says by a file that it is ready."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log_path: str, port_file: str) -> None:
        self._port_file = port_file
        with suppress(FileNotFoundError):
            os.unlink(port_file)
        # -P: a file of the user's in the working directory must not hide a module of the broker's.
        command = [sys.executable, "-P", "-m", "pykbroker", "start", *words, "--port-file", port_file]
        with open(log_path, "ab") as log:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C in a terminal goes to the whole process group: the program decides when its broker ends.
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def address(self) -> str | None:
        """host:port once the broker is ready, None before."""
        try:
            with open(self._port_file, encoding="utf-8") as file:
                return file.read().strip() or None
        except FileNotFoundError:
            return None

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait a moment: a file cannot be waited for."""
        time.sleep(min(_POLL_S, timeout_s))

    def poll(self) -> int | None:
        """The exit code, None while it lives."""
        return self._popen.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end. Raises TimeoutError."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        self._popen.send_signal(number)

    def close_stdin(self) -> None:
        """Tell it that it is not needed any more."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()


class ForkedProcess:
    """A fork of a prepared process, as seen from here: a channel that tells of it, a pidfd, and its standard input.

    Any thread may use it.
    """

    def __init__(self, channel: socket.socket, lifeline: int) -> None:
        self.pid = 0
        # Python before 3.13 gives the flags of recv_fds, MSG_DONTWAIT among them, to nobody.
        channel.setblocking(False)
        self._channel = channel
        self._lock = threading.Lock()
        self._pidfd = -1
        self._lifeline = lifeline
        self._address: str | None = None
        self._status: int | None = None
        self._error: str | None = None
        self._is_lost = False

    def wait_for_pid(self, timeout_s: float) -> None:
        """Wait for the fork. Raises ProcessError or TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self.pid and self._error is None and not self._is_lost:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.wait_for_news(left)
        if not self.pid:
            raise ProcessError(self._error or "")

    def address(self) -> str | None:
        """host:port once the broker is ready, None before."""
        self._read()
        return self._address

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until the broker may be ready or have ended, at most so long."""
        if self._status is None and self._is_lost and self._pidfd < 0:
            time.sleep(min(_POLL_S, timeout_s))
        elif self._status is None:
            # Of a broker whose prepared process is gone only the pidfd tells.
            waiting = select.poll()
            waiting.register(self._pidfd if self._is_lost else self._channel, select.POLLIN)
            waiting.poll(int(timeout_s * 1000) + 1)
        self._read()

    def poll(self) -> int | None:
        """The exit code, None while it lives."""
        self._read()
        return self._status

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            left = 60.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.wait_for_news(left)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        with self._lock:
            if self._status is not None:
                return
            with suppress(ProcessLookupError):
                if self._pidfd >= 0:
                    signal.pidfd_send_signal(self._pidfd, number)
                else:
                    os.kill(self.pid, number)

    def close_stdin(self) -> None:
        """Tell it that it is not needed any more."""
        with self._lock:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1

    def _read(self) -> None:
        """Take in what has been said; never waits."""
        with self._lock:
            while self._status is None and not self._is_lost:
                try:
                    data, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE_SIZE, 1)
                except BlockingIOError:
                    return
                except OSError:
                    data, descriptors = b"", []
                if not data:
                    self._is_lost = True
                    break
                message = json.loads(data)
                self.pid = message.get("pid", self.pid)
                self._address = message.get("address", self._address)
                self._error = message.get("error", self._error)
                self._pidfd = descriptors[0] if descriptors else self._pidfd
                self._status = message.get("status")
            if self._is_lost and self._status is None and self.pid and self._is_gone():
                self._status = STATUS_UNKNOWN

    def _is_gone(self) -> bool:
        if self._pidfd >= 0:
            return bool(select.select([self._pidfd], [], [], 0)[0])
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def leave_to_parent(self) -> None:
        """In a fork of the process that started it: let go of the broker's input, which would not end otherwise."""
        # Another thread may have held it.
        self._lock = threading.Lock()
        self.close_stdin()

    def __del__(self) -> None:
        # Not earlier: another thread may wait for one of them, and would get a descriptor that is somebody else's.
        self.close_stdin()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._channel.close()


class PreparedProcess:
    """A process that has imported a broker's modules and waits; `start` makes it fork. Any thread may use it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        # What it prints is for errors alone.
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `_end`
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "pykbroker.cli.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._brokers: weakref.WeakSet[ForkedProcess] = weakref.WeakSet()
        self._finalizer = weakref.finalize(
            self, _end, self._popen, self._connection, self._output, self._brokers, os.getpid()
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended, which it does not while this process needs it."""
        return self._popen.poll() is None

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log_path: str,
        *,
        is_temporary: bool,
        timeout_s: float,
    ) -> ForkedProcess:
        """Fork a broker.

        Args:
            words: those after `pykbroker start`.
            environment: all of it.
            log_path: what the broker prints is appended here.
            is_temporary: its data is thrown away with it: when this process ends it is killed at once.
            timeout_s: how long the fork may take. The first one waits for the imports.

        Raises:
            ProcessError: no process could be made.
        """
        stdin, lifeline = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        broker = ForkedProcess(ours, lifeline)
        self._brokers.add(broker)
        try:
            with theirs, open(log_path, "ab") as log:
                request = {
                    "words": list(words),
                    "environment": dict(environment),
                    "directory": os.getcwd(),
                    "is_temporary": is_temporary,
                }
                self._request(request, stdin, log.fileno(), theirs.fileno())
        finally:
            os.close(stdin)
        try:
            broker.wait_for_pid(timeout_s)
        except TimeoutError:
            raise ProcessError(f"the prepared process did not fork within {timeout_s:g} s") from None
        except ProcessError as error:
            if error.args[0]:
                raise
            raise ProcessError(self._end_in_words()) from None
        return broker

    def remove_at_end(self, folder: str) -> None:
        """Have a folder removed when this process ends, if it is still there then."""
        # Without the prepared process it stays.
        with suppress(ProcessError):
            self._request({"folder": folder})

    def _request(self, request: Mapping[str, object], *descriptors: int) -> None:
        body = json.dumps(request).encode()
        with self._lock:
            try:
                socket.send_fds(self._connection, [_LENGTH.pack(len(body))], descriptors)
                self._connection.sendall(body)
            except OSError:
                raise ProcessError(self._end_in_words()) from None

    def _end_in_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(1.0)
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace").strip()
        return f"the prepared process ended with exit code {self._popen.poll()}: {printed or 'it printed nothing'}"


def _end(
    popen: subprocess.Popen[bytes],
    connection: socket.socket,
    output: IO[bytes],
    brokers: weakref.WeakSet[ForkedProcess],
    owner: int,
) -> None:
    """Let a prepared process end, with what is left of its brokers, and wait for it."""
    connection.close()
    output.close()
    if owner != os.getpid():
        # In a fork of the process that started it, which goes on to use it.
        popen.returncode = 0
        for broker in list(brokers):
            broker.leave_to_parent()
        return
    for broker in list(brokers):
        broker.close_stdin()
    try:
        popen.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


class _Prepared:
    """The prepared processes of this process, by what they read at their start."""

    lock = threading.Lock()
    gone: list[PreparedProcess] = []  # noqa: RUF012  a class for its name alone
    by_start: dict[tuple[object, ...], PreparedProcess] = {}  # noqa: RUF012  a class for its name alone


def prepared_process(environment: Mapping[str, str]) -> PreparedProcess:
    """The prepared process for brokers with this environment; started when there is none."""
    at_start = sorted(item for item in environment.items() if item[0].startswith(_READ_AT_START))
    key = (os.getpid(), sys.executable, *at_start)
    with _Prepared.lock:
        found = _Prepared.by_start.get(key)
        if found is not None and not found.is_running:
            # It was killed. Its brokers live on as long as this process needs them.
            _Prepared.gone.append(found)
            found = None
        if found is None:
            found = _Prepared.by_start[key] = PreparedProcess(environment)
        return found


def _forget() -> None:
    """In a fork of this process: the connections are its parent's, and would seem to go on if they stayed open here."""
    _Prepared.lock = threading.Lock()
    _Prepared.by_start.clear()
    _Prepared.gone.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
