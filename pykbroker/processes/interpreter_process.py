"""`python -m pykbroker start`: a broker in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

_POLL_S = 0.005


class InterpreterProcess:
    """`python -m pykbroker start` in an interpreter of its own, which writes a file when it is ready."""

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

    def wait_for_output(self, timeout_s: float) -> None:
        """Waits at most 5 ms: there is no event for the file of the address."""
        time.sleep(min(_POLL_S, timeout_s))

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits until the process ends; returns its exit code. Raises TimeoutError."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal; no effect when the process has ended."""
        self._popen.send_signal(number)

    def close_stdin(self) -> None:
        """Closes its standard input: the broker stops, and one that is stopping no longer waits for the controller."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
