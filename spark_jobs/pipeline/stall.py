"""A run in which nothing moves any more, or whose input fails: ended with what is needed to find the cause.

The job prints the stacks of its Python threads when it gets SIGUSR1, and its JVM its own when it gets SIGQUIT; both go
to the job's log.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Hashable, Sequence
from pathlib import Path

from processes import ManagedProcess

from pipeline.history import History

STALL_TIMEOUT_S = 150.0
"""Longer than the time limits of the clients (60 s), after which they try again, and of the feeder (120 s)."""
STACKS_TIMEOUT_S = 5.0
QUIET_S = 0.5
"""Stacks are complete when nothing was printed for so long."""
TAIL_LINES = 20
STREAM_THREAD = '"stream execution thread'
LOG_LINE_BYTES = 2000


class StallWatch:
    """Notes when a run has last got further, on a clock that the caller reads."""

    def __init__(self, now_s: float, limit_s: float = STALL_TIMEOUT_S) -> None:
        self._limit_s = limit_s
        self._state: Hashable = None
        self._moved_at_s = now_s

    def is_stalled(self, state: Hashable, now_s: float) -> bool:
        """Note a state; True if the state has been the same for longer than the limit."""
        if state != self._state:
            self._state, self._moved_at_s = state, now_s
        return now_s - self._moved_at_s > self._limit_s


def account_of(history: History, job: ManagedProcess | None, folder: Path) -> str:
    """All that can be seen from outside of a run that is about to be given up.

    That is how far its queries have read, what has happened in which second, where the job stands, and the ends of all
    logs in the folder of the run. Takes up to ten seconds, in which the job prints its stacks.
    """
    read = ", ".join(f"{query} {offsets}" for query, offsets in history.read_to.items())
    lines = [
        f"Queries have read: {read or 'nothing'}.",
        f"Now it is {history.now_s():.0f} s. Before:",
        *(f"    {moment.at_s:.0f} s: {moment.text}" for moment in history.moments),
    ]
    if job is not None:
        lines.append(f"The job (pid {job.pid}, exit code {job.exit_code()}) stands at:")
        lines += [f"    {line}" for line in stacks_of(job)]
    return "\n".join(lines + ends_of_logs(folder))


def print_stacks_on_signal() -> None:
    """From now on SIGUSR1 makes this process print the stacks of all its Python threads on stderr."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def stacks_of(process: ManagedProcess) -> list[str]:
    """Stacks of the Python threads of a job, and of those threads of its JVM that run a query; all is in its log."""
    if process.exit_code() is not None:
        return []
    python = _printed_after(process, {process.pid: signal.SIGUSR1})
    java = _printed_after(process, dict.fromkeys(java_processes(process.pid), signal.SIGQUIT))
    return python + threads_of_queries(java)


def java_processes(group: int) -> list[int]:
    """Ids of the JVMs in a process group; none on a system without /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended
        if name == "java" and int(fields.split()[2]) == group:
            found.append(int(folder.name))
    return found


def threads_of_queries(dump: Sequence[str]) -> list[str]:
    """The part of a JVM's thread dump that is about streaming queries."""
    threads = re.split(r"\n\s*\n", "\n".join(dump))
    return [line for thread in threads if STREAM_THREAD in thread for line in thread.strip().split("\n")]


def ends_of_logs(folder: Path) -> list[str]:
    """The last lines of each log of a run."""
    lines = []
    for log in sorted(folder.rglob("*.log")):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_LINES * LOG_LINE_BYTES))
            text = file.read().decode(errors="replace")
        lines += [f"The end of {log}:", *(f"    {line}" for line in text.splitlines()[-TAIL_LINES:])]
    return lines


def _printed_after(process: ManagedProcess, signals: dict[int, signal.Signals]) -> list[str]:
    """Lines that a process prints after signals to itself or its children, until it is quiet."""
    before = len(process.lines())
    for pid, number in signals.items():
        os.kill(pid, number)
    deadline = time.monotonic() + STACKS_TIMEOUT_S
    count, changed_at = before, time.monotonic()
    while signals and time.monotonic() < deadline and (count == before or time.monotonic() < changed_at + QUIET_S):
        time.sleep(0.05)
        if len(process.lines()) != count:
            count, changed_at = len(process.lines()), time.monotonic()
    return process.lines()[before:]
