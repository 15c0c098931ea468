"""Polling for a moment before sleeping, while the waits of a loop are short.

A client that sends one request at a time leaves the loop idle for some tens of microseconds after each response. To
sleep and be woken takes a processor longer than that. So the loop polls first, as adaptive mutexes and the kernel's
`haltpoll` do: only while most of its last waits were short, at most for `POLL_S`, which costs about as much processor
time as going to sleep. Between two polls it yields its processor to any other thread that is ready to run.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S: Final = 0.0001
"""Longest time to poll before sleeping, in seconds."""

SHORT_S: Final = 1.5 * POLL_S
"""A sleep up to this long, in seconds, counts as a short wait: with polling it would mostly not have been needed."""

CREDIT_MAX: Final = 8
CREDIT_NEEDED: Final = 4
"""Credit from which on the loop polls. A short wait adds 1, a long one subtracts 1, a poll without a result 2."""


def usable_processors() -> int:
    """Number of processors on which this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


class ShortWaits:
    """Decides from the last waits whether to poll before the next one, and polls.

    On a single processor it never polls, as the client could not run meanwhile.

    Args:
        clock: time in seconds.
        give_way: lets other threads run on this processor.
        processors: number of processors on which the process may run.
    """

    __slots__ = ("_clock", "_credit", "_give_way", "_is_useful")

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], None] = os.sched_yield,
        processors: int | None = None,
    ) -> None:
        self._clock = clock
        self._give_way = give_way
        self._is_useful = (usable_processors() if processors is None else processors) > 1
        self._credit = 0

    def poll(self, find: Callable[[], bool]) -> bool:
        """True as soon as `find` returns True; False after `POLL_S`, or at once while waits are not short."""
        if self._credit < CREDIT_NEEDED:
            return False
        ends = self._clock() + POLL_S
        while True:
            if find():
                self._credit = min(self._credit + 1, CREDIT_MAX)
                return True
            if self._clock() >= ends:
                self._credit -= 2
                return False
            self._give_way()

    def slept(self, seconds: float) -> None:
        """Counts a wait in which the loop slept for so many seconds."""
        if seconds > SHORT_S:
            self._credit = max(self._credit - 1, 0)
        elif self._is_useful:
            self._credit = min(self._credit + 1, CREDIT_MAX)
