"""The prepared process, as seen from the process that uses its brokers: started when the first broker is.

It has imported a broker's modules and forks into a broker at each request (`fork_server`): a broker from a new
interpreter takes 170 ms, most of them imports, one from there 20 ms.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from pykbroker.processes.broker_process import ProcessError
from pykbroker.processes.forked_process import ForkedProcess

END_TIMEOUT_S = 10.0
_LENGTH = struct.Struct(">I")
# Prefixes of variables that are read when an interpreter or the C library starts: a fork cannot change them.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")


class PreparedProcess:
    """A process that has imported a broker's modules and waits; `start` makes it fork. Any thread may use it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        # Its output is only used in error texts.
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
        """True until it has ended; it does not end by itself while this process needs it."""
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
        """Forks a broker.

        Args:
            words: those after `pykbroker start`.
            environment: the whole environment of the broker.
            log_path: what the broker prints is appended here.
            is_temporary: the data of the broker is not kept: when this process ends, the broker is killed at once.
            timeout_s: how long the fork may take. The first one waits for the imports.

        Raises:
            ProcessError: no process could be made.
        """
        request = {
            "words": list(words),
            "environment": dict(environment),
            "directory": os.getcwd(),
            "is_temporary": is_temporary,
        }
        stdin, lifeline = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        broker = ForkedProcess(ours, lifeline)
        self._brokers.add(broker)
        try:
            try:
                with theirs, open(log_path, "ab") as log:
                    self._request(request, stdin, log.fileno(), theirs.fileno())
            finally:
                os.close(stdin)
            broker.wait_for_pid(timeout_s)
        except BaseException as error:
            # Closed here and not by the garbage collector: the traceback of the error keeps the broker alive.
            broker.close()
            if isinstance(error, TimeoutError):
                raise ProcessError(f"the prepared process did not fork within {timeout_s:g} s") from None
            if isinstance(error, ProcessError) and not error.args[0]:
                raise ProcessError(self._end_in_words()) from None
            raise
        return broker

    def remove_at_end(self, directory: str) -> None:
        """Has a directory removed when this process ends, if it is still there then."""
        # If the prepared process has ended, the directory stays.
        with suppress(ProcessError):
            self._request({"temporary": directory})

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
    """Ends a prepared process and the brokers that are left, and waits for it."""
    connection.close()
    output.close()
    if owner != os.getpid():  # pragma: no cover: runs in a fork
        # A fork of the process that started it: that process still uses it.
        popen.returncode = 0
        for broker in list(brokers):
            broker.close_inherited()
        return
    for broker in list(brokers):
        broker.close_stdin()
    try:
        popen.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:  # pragma: no cover: it does not answer any more
        popen.kill()
        popen.wait()


class _Prepared:
    """The prepared processes of this process, by interpreter and by the variables that are read at their start."""

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
            # The prepared process was killed. Its brokers run as long as this process needs them.
            _Prepared.gone.append(found)
            found = None
        if found is None:
            found = _Prepared.by_start[key] = PreparedProcess(environment)
        return found


def _drop_inherited_connections() -> None:  # pragma: no cover: runs in a fork
    """Drops the copies of connections that a fork of this process has: one left open would outlive this process."""
    _Prepared.lock = threading.Lock()
    _Prepared.by_start.clear()
    _Prepared.gone.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited_connections)
