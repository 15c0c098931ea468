"""A Java program that goes on until it is stopped or killed, and tells what it does in lines of JSON."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 60.0


class JavaProcess:
    """A running program.

    Attributes:
        events: objects of JSON that it printed, each on a line of its own.
        process: the process; its standard input is open.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._log = folder / "output.log"
        folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def output(self) -> str:
        """The end of what it said beside its events, for people."""
        return self._log.read_text(errors="replace")[-3000:]

    def stop(self) -> int:
        """SIGTERM; returns the exit code. A program that does not end is killed, and that is an AssertionError."""
        self.process.terminate()
        return self._end()

    def finish(self) -> int:
        """Closes its standard input and waits for its end, as stop."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._end()

    def kill(self) -> None:
        """kill -9; nothing happens if it has ended."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _end(self) -> int:
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end within {STOP_TIMEOUT_S:.0f} s\n{self.output()}") from None
        self._close()
        return code

    def _close(self) -> None:
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            # What was still to be written can no longer be.
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A killed program may leave the beginning of an event, which is no JSON.
            if line.startswith("{") and line.endswith("\n"):
                self.events.append(json.loads(line))
            else:
                with self._log.open("a") as log:
                    log.write(line)
