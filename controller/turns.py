"""Runs long work in trio so that other tasks have their turns."""

from __future__ import annotations

from typing import TypeVar

import trio

from pykbroker.protocol.steps import Steps

R = TypeVar("R")

TURN_S = 0.0005
"""Time in seconds of a turn, after which other tasks run; it is also that of a long request (`requests/turn.py`)."""


async def in_turns(steps: Steps[R]) -> R:
    """Result of the work, during which other tasks run each time that a turn is over.

    Any state may change meanwhile: the generator looks at it again after each `yield`.
    """
    ends = trio.current_time() + TURN_S
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result
        if trio.current_time() > ends:
            await trio.lowlevel.checkpoint()
            ends = trio.current_time() + TURN_S
