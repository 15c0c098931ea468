"""Waits of requests that another request ends: a fetch at the end of a log, acks=all, a join of a group.

Apache Kafka keeps such requests in a purgatory of delayed operations. Here a request is a coroutine, and awaits a
`Completion`. In a task that has called `suspend_in_this_task` the coroutine yields the `Completion` to whatever drives
it, which keeps the suspended coroutine, goes on with other work, and continues it after `complete`. So a request that
waits has no task, and it is answered in the turn of the request that completed it. In any other task the wait is an
ordinary one of trio.
"""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_suspending_tasks: set[trio.lowlevel.Task] = set()


def suspend_in_this_task() -> None:
    """Makes waits of the current task yield their `Completion` to the task's driver, until `wait_in_this_task`."""
    _suspending_tasks.add(trio.lowlevel.current_task())


def wait_in_this_task() -> None:
    """Makes waits of the current task put it to sleep again, as in all tasks at first."""
    _suspending_tasks.discard(trio.lowlevel.current_task())


def is_suspended_here() -> bool:
    """True if waits of the current task yield their `Completion` to its driver."""
    return trio.lowlevel.current_task() in _suspending_tasks


class Completion:
    """Something that happens once, and the request that waits for it.

    Attributes:
        is_complete: True after `complete`.
        deadline: end of the wait on trio's clock in seconds, infinite if it has none.
        when_complete: called by `complete`, at most once; set by the one that waits.
    """

    __slots__ = ("deadline", "is_complete", "when_complete")

    def __init__(self) -> None:
        self.is_complete = False
        self.deadline = math.inf
        self.when_complete: Callable[[], object] | None = None

    def complete(self) -> None:
        """Ends the wait. More calls have no effect."""
        if not self.is_complete:
            self.is_complete = True
            if self.when_complete is not None:
                self.when_complete()

    async def wait(self, deadline: float = math.inf) -> None:
        """Waits until it is complete, at most until a deadline on trio's clock; `is_complete` says which.

        Only one request may wait. It must not hold a cancel scope, a nursery or a lock of trio's meanwhile, because
        another task may continue it.
        """
        if is_suspended_here():
            if not self.is_complete:
                self.deadline = deadline
                await _suspended(self)
            return
        event = trio.Event()
        if self.is_complete:
            event.set()
        self.when_complete = event.set
        if deadline == math.inf:
            await event.wait()
            return
        with trio.move_on_at(deadline):
            await event.wait()


@types.coroutine
def _suspended(completion: Completion) -> Generator[Completion, None, None]:
    yield completion
