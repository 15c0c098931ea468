"""Processes of a run: each with a log file of its own, ended in order or by kill -9, whole trees at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# For a minute on a small machine the JVM's second compiler costs more than it brings.
JVM_FOR_A_MINUTE = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class ProcessFailedError(Exception):
    """A process ended that should not have; the message has the end of what it said."""


class ManagedProcess:
    """One process with all it starts (a Spark job is a Python process and a JVM), in a process group of its own."""

    def __init__(self, name: str, argv: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        """Start it. It works in the folder of its log: Spark leaves an empty folder `artifacts` where it runs."""
        self.name = name
        self.log = log
        self._log_begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            # Standard input is a pipe that we hold: the broker is told to stop when it closes, even if we are killed.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=log.parent,
                env=os.environ | (environment or {}),
            )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def lines(self) -> list[str]:
        """Lines of the log since this start of the process; an unfinished last line is left out."""
        with self.log.open("rb") as file:
            file.seek(self._log_begin)
            return file.read().decode(errors="replace").split("\n")[:-1]

    def require_running(self) -> None:
        """Raise ProcessFailedError if it has ended."""
        code = self.exit_code()
        if code is not None:
            raise self.failure(f"ended with code {code}")

    def failure(self, what: str) -> ProcessFailedError:
        """An exception that says what happened and shows the last lines of the log."""
        tail = "\n".join(f"    {line}" for line in self.lines()[-25:])
        return ProcessFailedError(f"{self.name} (pid {self.pid}) {what}. The end of {self.log}:\n{tail}")

    def kill(self) -> None:
        """kill -9 to the whole group, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then kill -9 to what is left of the group. Raises ProcessFailedError if it was not in time."""
        if self.exit_code() is None:
            self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {timeout_s:.0f} s of SIGTERM") from None
        finally:
            self.kill()
