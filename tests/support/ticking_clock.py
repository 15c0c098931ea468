"""A clock for trio by which time passes whenever somebody looks at it: every look finds a request's turn over."""

from __future__ import annotations

import trio

from pykbroker.controller.turns import TURN_S


class TickingClock(trio.abc.Clock):
    """For `trio.run`."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def start_clock(self) -> None:
        """Nothing has to be begun."""

    def current_time(self) -> float:
        self._now_s += 2 * TURN_S
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return max(0.0, deadline - self._now_s)
