"""The turns that other tasks get while a piece of work goes on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import trio


async def with_turns(work: Awaitable[Any], effect: Any = None, at: int = 3) -> tuple[Any, int]:
    """Result of the work, and the number of turns of another task, which has an effect in one of them."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == at and effect is not None:
                effect()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        result = await work
        nursery.cancel_scope.cancel()
    return result, turns
