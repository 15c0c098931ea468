"""A broker that notes what holds up its clients: long steps of tasks, garbage collections, calls that write files.

    python -m benchmarks.long_steps --port 9092 --data-dir DIRECTORY      # the options of `pykbroker start`

Put load on it, for instance `make bench-small`'s, and stop it with Ctrl-C: then it prints a line for each kind. Own CPU
below the duration means that the system gave the core to another program, or that a disk was waited for.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections import defaultdict
from functools import partial
from typing import Any

import trio

from pykbroker.cli import main

STEP_S = 0.001
"""Steps of a task from this duration on are noted. The loop of connections gives way after 1 ms."""
CALL_S = 0.0005
"""Collections and calls to the file system from this duration on are noted."""
CALLS = ("fsync", "fdatasync", "ftruncate", "posix_fallocate", "sendfile")


class LongSteps(trio.abc.Instrument):
    """Notes of everything that took long, in seconds, with its CPU time."""

    def __init__(self) -> None:
        self.noted: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.steps = 0
        self._began = self._cpu_began = self._collection_began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        took = time.perf_counter() - self._began
        if took >= STEP_S:
            self.noted[f"step of {task.name}"].append((took, time.thread_time() - self._cpu_began))

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """A callback of `gc.callbacks`."""
        if phase == "start":
            self._collection_began = time.perf_counter()
            return
        took = time.perf_counter() - self._collection_began
        if took >= CALL_S:
            self.noted[f"collection of generation {info['generation']}"].append((took, took))

    def call(self, function: Any, *arguments: Any) -> Any:
        """Call a function of `os`, and note it if it takes long."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments)
        finally:
            took = time.perf_counter() - began
            if took >= CALL_S:
                where = "the loop" if threading.current_thread() is threading.main_thread() else "another thread"
                self.noted[f"{function.__name__} in {where}"].append((took, time.thread_time() - cpu_began))

    def show(self) -> None:
        """Print a line for each kind."""
        print(f"{self.steps} steps", file=sys.stderr)
        for name, noted in sorted(self.noted.items(), key=lambda item: -len(item[1])):
            longest, median = max(noted), sorted(noted)[len(noted) // 2]
            print(
                f"{len(noted):6} x {name}: median {median[0] * 1e3:.1f} ms, longest {longest[0] * 1e3:.1f} ms "
                f"(own CPU {longest[1] * 1e3:.1f} ms)",
                file=sys.stderr,
            )


def start() -> int:
    """Run `pykbroker start` with the notes."""
    notes = LongSteps()
    gc.callbacks.append(notes.on_collection)
    for name in CALLS:
        setattr(os, name, partial(notes.call, getattr(os, name)))
    trio.run = partial(trio.run, instruments=[notes])  # type: ignore[assignment]  # the command line calls it
    atexit.register(notes.show)
    return main(["start", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(start())
