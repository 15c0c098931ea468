"""Long work in steps.

The work is a generator: as synchronous and pure as other code, but it yields where other tasks may have their turn.
`turns.in_turns` runs it in trio; `finished` runs it in one piece, where no other task is running.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

R = TypeVar("R")

Steps = Generator[None, None, R]
"""Work that yields where others may have their turn, and returns its result."""

PIECE = 32
"""Number of small things, each of some microseconds, that are done between two yields."""


def finished(steps: Steps[R]) -> R:
    """Result of the work, done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result


def list_in_steps(items: Iterable[R]) -> Steps[list[R]]:
    """list(items), with a step after each `PIECE` items; `items` is a generator expression that computes them."""
    found: list[R] = []
    for item in items:
        found.append(item)
        if not len(found) % PIECE:
            yield
    return found
