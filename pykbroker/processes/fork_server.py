"""The prepared process of LocalBroker: it imports a broker's modules and forks into a broker at each request.

A broker from a new interpreter takes 170 ms, most of them imports; one from here 20 ms. The first broker does not wait
for the imports: it is forked before them and makes them itself. This process makes them after a moment without
requests, so that the first broker has the processor to itself, and one by one, so that a request in between is served.
After the second broker more of them are likely: then this process also imports what brokers import when clients
connect. Codecs of messages are compiled in the same way.

`prepared_process` starts this process (`python -m pykbroker.cli.fork_server DESCRIPTOR`) and holds the other end of its
connection.

A request is JSON behind its length in four bytes. With `words` it starts a broker as `pykbroker start` does with these
words, and three descriptors come with it: the broker's standard input, its output, and a channel (SOCK_SEQPACKET) of
that broker alone. On the channel this process sends `pid`, with a pidfd, and in the end `status`, the exit code or the
negative signal as in subprocess; the broker itself sends `address` when it is ready. A request with `temporary` names a
directory that is removed when the connection ends.

The connection ends when the process that uses the brokers ends, also by SIGKILL. Then the brokers are ended, temporary
ones at once, and the named directories are removed: a directory in memory would stay there.

This process has one thread and does not run trio, so that a fork inherits no running threads and no event loop.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pykbroker.processes import preloaded
from pykbroker.processes.forks import fork

if TYPE_CHECKING:
    from collections.abc import Callable

    RunBroker = Callable[[list[str], Callable[[str], None]], int]

DESCRIPTORS_PER_REQUEST = 3
END_TIMEOUT_S = 5.0
"""Time, in seconds, that a broker with the user's data has to end after the process that uses it has ended."""

FORKS_BEFORE_MORE = 2
FIRST_QUIET_S = 0.3
"""Seconds without requests before the imports begin: many programs start only one broker, which takes as long."""
QUIET_S = 0.05
"""The same after the first broker: requests for the nodes of a cluster come right after one another."""
_LENGTH = struct.Struct(">I")


class ForkServer:
    """Takes requests from `connection` until it ends; reports the end of each broker on its channel.

    Args:
        connection: to the process that uses the brokers.
        run_broker: called in a fork with the words after `pykbroker start` and a function that takes the address of
            the broker when it is ready; returns the exit code.
    """

    def __init__(self, connection: socket.socket, run_broker: RunBroker) -> None:
        self._connection = connection
        self._run_broker = run_broker
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, socket.socket] = {}
        # Brokers whose data are not kept.
        self._temporary: set[int] = set()
        self._directories: set[str] = set()
        self._fork_count = 0
        self._is_preparing = False
        self._unprepared = list(preloaded.AT_START)
        self._unprepared_for_clients = list(preloaded.FOR_CLIENTS)
        self._wakeups, handlers_end = socket.socketpair()
        for end in (self._wakeups, handlers_end):
            end.setblocking(False)
        self._handlers_end = handlers_end

    def run(self) -> None:
        """Serves until the connection ends, then ends the brokers that are left."""
        # The handler does nothing: the wakeup socket ends the wait of the selector.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._handlers_end.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._connection, selectors.EVENT_READ)
        self._selector.register(self._wakeups, selectors.EVENT_READ)
        is_connected = True
        while is_connected:
            events = self._selector.select(self._preparation_delay_s())
            if not events:
                self._prepare_next()
            for key, _ in events:
                if key.fileobj is self._wakeups:  # pragma: no cover: runs in the prepared process
                    self._empty_wakeups()
                else:
                    is_connected = self._serve_request()
            self._reap()
        self._end_all()

    def _empty_wakeups(self) -> None:  # pragma: no cover: runs in the prepared process
        with suppress(BlockingIOError):
            while self._wakeups.recv(4096):
                pass

    def _preparation_delay_s(self) -> float | None:
        """Seconds without requests until the next preparation; None when nothing is left to prepare."""
        if self._fork_count >= FORKS_BEFORE_MORE:
            self._unprepared += self._unprepared_for_clients
            self._unprepared_for_clients = []
        if not self._unprepared or not self._fork_count:
            return None
        if self._is_preparing:
            return 0.0
        return FIRST_QUIET_S if self._fork_count == 1 else QUIET_S

    def _prepare_next(self) -> None:
        self._is_preparing = True
        preloaded.prepare(self._unprepared.pop(0))
        if not self._unprepared:
            # The garbage collector of a broker skips these objects, so that their memory stays shared.
            gc.collect()
            gc.freeze()

    # Requests

    def _serve_request(self) -> bool:
        """Reads and processes one request; False when the connection has ended."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._connection, _LENGTH.size, DESCRIPTORS_PER_REQUEST)
            request = self._receive_rest(head)
        except OSError:  # pragma: no cover: the process that used it was killed
            return False
        if request is None:
            return False
        if "temporary" in request:  # pragma: no cover: runs in the prepared process
            self._directories.add(request["temporary"])
        if "words" in request:
            self._start_broker(request, *descriptors)
        return True

    def _receive_rest(self, head: bytes) -> Any:
        head += self._receive(_LENGTH.size - len(head)) if head else b""
        if len(head) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(head)
        body = self._receive(size)
        return json.loads(body) if len(body) == size else None

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self._connection.recv(size - len(data))):
            data += piece
        return data

    def _start_broker(  # pragma: no cover: runs in the prepared process
        self, request: Any, stdin: int, output: int, channel_descriptor: int
    ) -> None:
        channel = socket.socket(fileno=channel_descriptor)
        self._fork_count += 1

        def leave() -> None:
            self._selector.close()
            for other in (self._connection, self._wakeups, self._handlers_end, *self._channels.values()):
                other.close()

        try:
            pid = fork(lambda: self._run_broker_in_fork(request, channel), stdin=stdin, output=output, leave=leave)
        except OSError as error:
            _send(channel, {"error": f"no process could be forked: {error.strerror}"})
            channel.close()
            return
        self._channels[pid] = channel
        if request["is_temporary"]:
            self._temporary.add(pid)
        try:
            # The fork cannot have been reaped yet, so its pid cannot be that of another process.
            pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            # The kernel, or the C library that Python was built with, is from before 2019.
            _send(channel, {"pid": pid})
            return
        _send(channel, {"pid": pid}, pidfd)
        os.close(pidfd)

    def _run_broker_in_fork(self, request: Any, channel: socket.socket) -> int:  # pragma: no cover: runs in a fork
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.argv = ["pykbroker", "start", *request["words"]]

        def send_address(address: str) -> None:
            _send(channel, {"address": address})
            channel.close()

        return self._run_broker(request["words"], send_address)

    # The end of brokers

    def _reap(self) -> None:  # pragma: no cover: runs in the prepared process
        while self._channels:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._temporary.discard(pid)
            channel = self._channels.pop(pid)
            _send(channel, {"status": os.waitstatus_to_exitcode(status)})
            channel.close()

    def _end_all(self) -> None:  # pragma: no cover: runs in the prepared process
        """Ends the remaining brokers, whose standard input has ended already, and removes the directories."""
        deadline = time.monotonic() + END_TIMEOUT_S
        for pid in self._channels:
            # A paused broker does not read the end of its input.
            os.kill(pid, signal.SIGKILL if pid in self._temporary else signal.SIGCONT)
        while self._channels and (left := deadline - time.monotonic()) > 0:
            self._reap()
            if self._channels and self._selector_has_wakeup(left):
                self._empty_wakeups()
        for pid in self._channels:
            os.kill(pid, signal.SIGKILL)
        for pid in self._channels:
            os.waitpid(pid, 0)
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)

    def _selector_has_wakeup(self, timeout_s: float) -> bool:  # pragma: no cover: runs in the prepared process
        if self._connection in self._selector.get_map():
            self._selector.unregister(self._connection)
        return bool(self._selector.select(timeout_s))


def _send(  # pragma: no cover: runs in the prepared process
    channel: socket.socket, message: dict[str, Any], *descriptors: int
) -> None:
    # The process that used the broker may have closed its end.
    with suppress(OSError):
        socket.send_fds(channel, [json.dumps(message).encode()], descriptors)
