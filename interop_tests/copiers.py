"""Processes that copy a topic in transactions (`copier.py`), started again whenever they end; and what they copy."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from interop_tests.kill_load import ConfluentProducing

CHECKOUT = Path(__file__).resolve().parent.parent
Command = list[str]


class Copiers:
    """Processes that copy; whoever of them ends is started again."""

    def __init__(self, commands: list[Command], log_path: Path) -> None:
        self._commands = commands
        self._log_path = log_path
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(commands)
        self.starts = 0

    def keep_up(self) -> None:
        """Starts what does not run."""
        for number, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                with self._log_path.open("ab") as log:
                    self._processes[number] = subprocess.Popen(
                        self._commands[number], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=CHECKOUT
                    )
                self.starts += 1

    def kill(self, number: int) -> None:
        """kill -9."""
        process = self._processes[number % len(self._processes)]
        if process is not None:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)


class SteadyProducing(ConfluentProducing):
    """Some three hundred records a second, which every copier can follow."""

    def work(self) -> None:
        super().work()
        time.sleep(0.1)
