"""Turns of long work: other tasks run each time that one is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Any, Self

R = TypeVar("R")

TURN_S = 0.0005
"""Time in seconds of a turn. Work that cannot be divided comes on top: one step, and sending of a response, about 1 ms
for 10,000 partitions. trio runs ready tasks in random order, so that another request may have to wait for two turns: 3
to 4.5 ms in all (5 to 6 with turns of 1 ms)."""


TASKS_PER_TURN = 4
"""Tasks that are started in one turn. All of them run before a task that was ready already has its next turn, each for
a tenth of a millisecond if it appends a record."""


class Turn:
    """A share of time on trio's clock, which begins when the object is created."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = trio.current_time() + TURN_S

    @property
    def is_over(self) -> bool:
        """True if others should be served now. Cheaper than a call of `end_if_over`, for short steps."""
        return trio.current_time() > self._ends

    async def end_if_over(self) -> None:
        """Lets other tasks run if the turn is over, and begins the next one.

        Any state may change during a call: take values that must stay the same, such as the image, beforehand.
        """
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self._ends = trio.current_time() + TURN_S


class EachInTurns(Generic[R]):
    """Iterates over a collection by `async for`; other tasks run between two elements each time that a turn is over.

    Any state may change meanwhile, but not the collection: pass a copy of one that others may change. Put an outer loop
    over it as well: each `EachInTurns` begins a turn of its own, which a short inner loop does not end.
    """

    __slots__ = ("_elements", "_turn")

    def __init__(self, elements: Iterable[R]) -> None:
        self._elements = iter(elements)
        self._turn = Turn()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        if self._turn.is_over:
            await self._turn.end_if_over()
        for element in self._elements:
            return element
        raise StopAsyncIteration


async def start_in_turns(
    nursery: trio.Nursery, function: Callable[..., Awaitable[object]], calls: Iterable[tuple[Any, ...]]
) -> None:
    """Starts a task for each of thousands of calls, given as arguments of `function`, in turns with other tasks."""
    for count, arguments in enumerate(calls, 1):
        nursery.start_soon(function, *arguments)
        if not count % TASKS_PER_TURN:
            await trio.lowlevel.checkpoint()


async def in_turns(steps: Steps[R]) -> R:
    """Result of the work, during which other tasks run each time that a turn is over.

    Any state may change meanwhile: the generator looks at it again after each `yield`. It is closed if the caller is
    cancelled, so that what it holds is released at once.
    """
    turn = Turn()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result
        if turn.is_over:
            try:
                await turn.end_if_over()
            except trio.Cancelled:
                # The traceback keeps the generator until the garbage is collected.
                steps.close()
                raise
