"""Clock of a coordinator, and its wait for the next deadline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pykbroker.wall_clock import WallClock


class CoordinatorTimer:
    """Time of day, read from `clock` once, at the first call, and advanced by trio's clock from then on.

    So a step of the wall clock neither expires a session nor aborts a transaction.
    """

    __slots__ = ("_anchor", "_clock", "_planned")

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._anchor: tuple[int, float] | None = None
        self._planned = trio.Event()

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        elapsed = trio.current_time()
        if self._anchor is None:
            self._anchor = (self._clock.now_ms(), elapsed)
        anchor_ms, anchor = self._anchor
        return anchor_ms + round((elapsed - anchor) * 1000)

    def wake(self) -> None:
        """Ends `wait_until`, because a deadline was planned that may be earlier than those it waits for."""
        self._planned.set()

    async def wait_until(self, deadlines_ms: Iterable[int | None]) -> None:
        """Sleeps until the first of the deadlines or `wake`; without a deadline until `wake` alone."""
        self._planned = trio.Event()
        first_ms = min((at for at in deadlines_ms if at is not None), default=None)
        if first_ms is None:
            await self._planned.wait()
            return
        with trio.move_on_after(max(first_ms - self.now_ms(), 0) / 1000):
            await self._planned.wait()
