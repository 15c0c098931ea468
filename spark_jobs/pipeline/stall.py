"""A run in which nothing moves any more, or whose input fails: ended with what is needed to find the cause.

The job prints the stacks of its Python threads when it gets SIGUSR1, and its JVM its own when it gets SIGQUIT; both go
to the job's log. A broker prints its stacks when SIGABRT ends it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from collections.abc import Hashable, Mapping, Sequence
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
TASK = "org.apache.spark.executor.Executor$TaskRunner.run"
FATAL_STACKS = {"PYTHONFAULTHANDLER": "1"}
"""Environment of a Python process that is to print the stacks of all its threads when SIGABRT ends it."""
STATES = {"R": "runs", "S": "sleeps", "D": "waits for a disk", "T": "stopped", "t": "traced", "Z": "dead"}
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


def account_of(
    history: History, job: ManagedProcess | None, brokers: Mapping[ManagedProcess, Sequence[int]], folder: Path
) -> str:
    """All that can be seen from outside of a run that is about to be given up.

    That is how far its queries have read, what has happened in which second, the ends of the logs, and the stacks of
    the job and of the brokers: process ids of nodes by the process in whose log they write. The brokers are ended by
    it. Takes up to five seconds for each process.
    """
    read = ", ".join(f"{query} {offsets}" for query, offsets in history.read_to.items())
    lines = [
        f"Queries have read: {read or 'nothing'}.",
        f"Now it is {history.now_s():.0f} s. Before:",
        *(f"    {moment.at_s:.0f} s: {moment.text}" for moment in history.moments),
        *ends_of_logs(folder),  # before the stacks are there, too
    ]
    if job is not None:
        lines += [f"The job (pid {job.pid}, exit code {job.exit_code()}) stands at:", *_indented(stacks_of(job))]
    for process, pids in brokers.items():
        states = ", ".join(f"pid {pid}: {state_of(pid)}" for pid in pids)
        lines += [f"Of {process.name} ({states}) Python stands at:", *_indented(last_stacks_of(process, pids))]
    return "\n".join(lines)


def print_stacks_on_signal() -> None:
    """From now on SIGUSR1 makes this process print the stacks of all its Python threads on stderr."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def stacks_of(process: ManagedProcess) -> list[str]:
    """Stacks of the Python threads of a job, and of those threads of its JVM that run a query; all is in its log."""
    if process.exit_code() is not None:
        return []
    python = _printed_after(process, [(process.pid, signal.SIGUSR1)])
    java = _printed_after(process, [(pid, signal.SIGQUIT) for pid in java_processes(process.pid)])
    return python + threads_of_queries(java)


def last_stacks_of(process: ManagedProcess, pids: Sequence[int]) -> list[str]:
    """Stacks of Python processes that were started with FATAL_STACKS and write to a process's log; it ends them."""
    # One that is stopped prints nothing before it goes on.
    return _printed_after(process, [(pid, number) for pid in pids for number in (signal.SIGABRT, signal.SIGCONT)])


def state_of(pid: int) -> str:
    """The state of a process in a word, as the system has it; "gone" if there is none."""
    with contextlib.suppress(OSError):
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return STATES.get(letter, letter)
    return "gone"


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
    """The part of a JVM's thread dump that is about streaming queries and the tasks that they wait for."""
    threads = re.split(r"\n\s*\n", "\n".join(dump))
    shown = [thread for thread in threads if STREAM_THREAD in thread or TASK in thread]
    return [line for thread in shown for line in thread.strip().split("\n")]


def ends_of_logs(folder: Path) -> list[str]:
    """The last lines that each process of a run has written; the brokers' data, in other files *.log, is not meant."""
    lines = []
    for log in sorted(folder.glob("*.log")):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_LINES * LOG_LINE_BYTES))
            text = file.read().decode(errors="replace")
        lines += [f"The end of {log}:", *(f"    {line}" for line in text.splitlines()[-TAIL_LINES:])]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _printed_after(process: ManagedProcess, signals: Sequence[tuple[int, signal.Signals]]) -> list[str]:
    """Lines that come into a process's log after signals to itself or its children, until it is quiet."""
    before = len(process.lines())
    for pid, number in signals:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + STACKS_TIMEOUT_S
    count, changed_at = before, time.monotonic()
    while signals and time.monotonic() < deadline and (count == before or time.monotonic() < changed_at + QUIET_S):
        time.sleep(0.05)
        if len(process.lines()) != count:
            count, changed_at = len(process.lines()), time.monotonic()
    return process.lines()[before:]
