"""A fork of a prepared process, as seen from the process that uses the broker."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress

from pykbroker.processes.broker_process import ProcessError

STATUS_UNKNOWN = 255
"""Exit code of a broker whose prepared process was killed before the broker ended."""

_POLL_S = 0.005
_MESSAGE_SIZE = 4096


class ForkedProcess:
    """A fork of a prepared process: the channel with messages about it, its pidfd and its standard input.

    Any thread may use it.
    """

    def __init__(self, channel: socket.socket, lifeline: int) -> None:
        self.pid = 0
        # Python before 3.13 ignores the flags of recv_fds, MSG_DONTWAIT among them.
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
        """Waits for the fork. Raises ProcessError or TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self.pid and self._error is None and not self._is_lost:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.wait_for_output(left)
        if not self.pid:
            raise ProcessError(self._error or "")

    def address(self) -> str | None:
        """host:port once the broker is ready, None before."""
        self._read()
        return self._address

    def wait_for_output(self, timeout_s: float) -> None:
        """Waits until the broker may be ready or may have ended, at most `timeout_s` seconds."""
        if self._status is None and self._is_lost and self._pidfd < 0:
            time.sleep(min(_POLL_S, timeout_s))
        elif self._status is None:
            # Without the prepared process only the pidfd shows that the broker has ended.
            waiting = select.poll()
            waiting.register(self._pidfd if self._is_lost else self._channel, select.POLLIN)
            waiting.poll(int(timeout_s * 1000) + 1)
        self._read()

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        self._read()
        return self._status

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits until the process ends; returns its exit code. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            left = 60.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.wait_for_output(left)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal; no effect when the process has ended."""
        with self._lock:
            if self._status is not None:
                return
            with suppress(ProcessLookupError):
                if self._pidfd >= 0:
                    signal.pidfd_send_signal(self._pidfd, number)
                else:
                    os.kill(self.pid, number)

    def close_stdin(self) -> None:
        """Closes its standard input: the broker stops, and one that is stopping no longer waits for the controller."""
        with self._lock:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1

    def _read(self) -> None:
        """Reads the messages that are on the channel; never waits."""
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

    def close_inherited(self) -> None:  # pragma: no cover: runs in a fork
        """Closes the copy of the broker's input that a fork of this process has: the broker ends when none is open."""
        # Another thread may have held it.
        self._lock = threading.Lock()
        self.close_stdin()

    def close(self) -> None:
        """Closes all descriptors. No thread may use this object then: it could get another file's descriptor."""
        self.close_stdin()
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)
        self._channel.close()

    def __del__(self) -> None:
        # The descriptors are closed here and not earlier, as another thread may wait for one of them.
        self.close()
