"""BrokerProcess: interface of a broker's process for the process that uses it, however it was started."""

from __future__ import annotations

import signal
import sys
from typing import Protocol

CAN_FORK = sys.platform == "linux"
"""True where brokers can be forks of a prepared process: SOCK_SEQPACKET between processes and pidfds are Linux's."""


class ProcessError(Exception):
    """A process could not be started; the text says why."""


class BrokerProcess(Protocol):
    """A broker's process. `poll` and `wait` give the exit code, negative after a signal, as in subprocess."""

    pid: int

    def address(self) -> str | None:
        """host:port once the broker is ready, None before."""

    def wait_for_output(self, timeout_s: float) -> None:
        """Waits until the broker may be ready or may have ended, at most `timeout_s` seconds."""

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits until the process ends; returns its exit code. Raises TimeoutError."""

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal; no effect when the process has ended."""

    def close_stdin(self) -> None:
        """Closes its standard input: the broker stops, and one that is stopping no longer waits for the controller."""
