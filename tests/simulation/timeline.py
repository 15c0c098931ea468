"""Virtual time and the order of things: trio under a clock that jumps, with every choice made by a seed.

Three places of trio are replaced while a simulation runs; each is used by trio itself for the same purpose.

* The clock is trio's MockClock. When nothing can run it jumps to the next deadline, or to the next call of `Timeline`:
  network and disk work by such calls, which cost much less than a task that sleeps.
* The order of tasks that can run at the same moment: trio shuffles them by a Random of its module, after sorting them
  by age when deterministic scheduling is allowed, as its plugin for Hypothesis does.
* That shuffling sees every task before it runs: tasks of a node that stands still are kept back there.

A third of a run was spent in trio. `quick_trio.py` replaces more of it, by parts that do the same in less time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import trio
from trio._core import _run

from tests.simulation.quick_trio import jumping_clock, quick_scopes

NODE: ContextVar[str] = ContextVar("NODE", default="")
"""The machine that a task belongs to; its tasks inherit it."""

NEVER = float("inf")


class Stuck(Exception):
    """Nothing can run and nothing is due."""


class Timeline:
    """Calls at times to come, and which machines stand still.

    Attributes:
        calls_made: how many calls were made, a measure of the work done.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(f"{seed} order of tasks")
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self._clock = jumping_clock(lambda: self.now, self._jump)
        self._held: dict[str, list[_run.Task]] = {}
        self.calls_made = 0
        self.now = 0.0

    def call_at(self, time_s: float, call: Callable[..., object], *arguments: Any) -> None:
        """Calls back at a time of trio's clock, in the order of times and then of these requests."""
        self._number += 1
        heapq.heappush(self._heap, (time_s, self._number, call, arguments))

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> None:
        self.call_at(self.now + delay_s, call, *arguments)

    def hold(self, machine: str) -> None:
        """From now on no task of this machine runs, whatever becomes due."""
        self._held.setdefault(machine, [])

    def release(self, machine: str) -> None:
        """Run the tasks of this machine that became due since `hold`."""
        tasks = self._held.pop(machine, [])
        _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(tasks)

    def is_held(self, machine: str) -> bool:
        return machine in self._held

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Runs a coroutine function from time 0 to its end."""
        with self._in_charge(), quick_scopes():
            trio.run(main, clock=self._clock)

    # What trio calls

    def shuffle(self, batch: list[_run.Task]) -> None:
        if self._held:
            kept = []
            for task in batch:
                held = self._held.get(task.context.get(NODE, ""))
                if held is None:
                    kept.append(task)
                else:
                    held.append(task)
            batch[:] = kept
        if len(batch) > 1:
            self._random.shuffle(batch)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def _jump(self) -> None:
        deadline: float = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        heap = self._heap
        due = heap[0][0] if heap else NEVER
        if due > deadline:
            self.now = deadline
            return
        if due == NEVER:
            raise Stuck
        now = self.now = max(due, self.now)
        while heap and heap[0][0] <= now:
            _, _, call, arguments = heapq.heappop(heap)
            self.calls_made += 1
            call(*arguments)

    @contextmanager
    def _in_charge(self) -> Iterator[None]:
        before = _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING
        _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = self, True  # type: ignore[assignment, misc]
        try:
            yield
        finally:
            _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
