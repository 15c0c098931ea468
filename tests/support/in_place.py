"""In place of a thread: work that a broker would run in one, under a clock that does not wait for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

R = TypeVar("R")


async def run_in_place(work: Callable[[], R]) -> R:
    """Runs work in this task, after other tasks had their turn; for `Host.run_in_thread`."""
    await trio.lowlevel.checkpoint()
    return work()
