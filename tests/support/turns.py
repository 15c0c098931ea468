"""The turns that other tasks get while a piece of work goes on."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

import trio


class TaskSteps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


class Turns:
    """A task that counts its turns, and has an effect in one of them."""

    def __init__(self, effect: Any = None, at: int = 3) -> None:
        self.count = 0
        self._effect = effect
        self._at = at

    async def run(self) -> None:
        while True:
            self.count += 1
            if self.count == self._at and self._effect is not None:
                made = self._effect()
                if inspect.isawaitable(made):
                    await made
            await trio.lowlevel.checkpoint()


async def with_turns(work: Awaitable[Any], effect: Any = None, at: int = 3) -> tuple[Any, int]:
    """Result of the work, and the number of turns of another task, which has an effect in one of them.

    The effect is a function, which may be async.
    """
    turns = Turns(effect, at)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        result = await work
        nursery.cancel_scope.cancel()
    return result, turns.count
