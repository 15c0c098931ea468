"""RunningClock: trio's clock without the time in which this process did not run."""

from __future__ import annotations

import logging

import trio

from pykbroker.controller.running_time import RunningTime

log = logging.getLogger(__name__)

LOGGED_STALL_MS = 500
"""Length in ms from which a stall is logged."""


class RunningClock:
    """Clock of running time, see `running_time`; `run` must run in a nursery.

    Args:
        tick_ms: interval in ms of the checks that this process runs. 0, for a node without others: no checks, and the
            clock is trio's.
    """

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._time = RunningTime(tick_ms)

    def now_ms(self) -> int:
        """Milliseconds of running time."""
        stall_ms = self._time.lost_ms
        now_ms = self._time.at(_now_ms())
        self._log_stall(self._time.lost_ms - stall_ms)
        return now_ms

    def now_s(self) -> float:
        """Seconds of running time."""
        return self.now_ms() / 1000

    def trio_time(self, running_ms: int) -> float:
        """Time on trio's clock, in seconds, of a running time in ms. A later stall moves it further."""
        return (running_ms + self._time.lost_ms) / 1000

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        while self._tick_ms:
            self._log_stall(self._time.tick(_now_ms()))
            await trio.sleep(self._tick_ms / 1000)

    def _log_stall(self, stall_ms: int) -> None:
        if stall_ms >= LOGGED_STALL_MS:
            log.warning(
                "this process did not run for %d ms; this time does not count in the timeouts of other nodes", stall_ms
            )


def _now_ms() -> int:
    # The product with 1000 may be slightly too small: 8.19 s become 8189.999 ms.
    return int(trio.current_time() * 1000 + 0.01)
