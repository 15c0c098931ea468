"""RunningTime: the time without the stalls of this process. Timeouts of other nodes are measured in it. Pure.

A process may not run for a second and more: the machine is busy or suspended, or a step of its own was long. Meanwhile
it receives nothing: requests wait in the buffers of its sockets, and later ones wait for the responses. A controller
that counted this time against sessions would fence brokers that live, and a voter would become prospective against a
leader that is there.

So stalls are cut out of the time. `tick` is called at least every `tick_ms`, and `at` gives the time. A call that comes
later than a tick was due shows a stall, and every deadline moves by it. A node that is silent while this process runs
is noticed as soon as before. A stall that begins and ends between two ticks, and so is shorter than `tick_ms`, is not
seen.
"""

from __future__ import annotations

LATE_MIN_MS = 20
"""A tick that is late by so much is no stall: an event loop is no more exact."""


class RunningTime:
    """See the module's text. Times are in milliseconds; `at` never goes backwards.

    Attributes:
        lost_ms: sum of all stalls.
    """

    __slots__ = ("_due_ms", "_seen_ms", "_tick_ms", "lost_ms")

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._due_ms: int | None = None
        self._seen_ms = 0
        self.lost_ms = 0

    def tick(self, now_ms: int) -> int:
        """The process runs. Returns the length of the stall that ends now, 0 for none."""
        lost_before_ms = self.lost_ms
        self.at(now_ms)
        self._due_ms = now_ms + self._tick_ms
        return self.lost_ms - lost_before_ms

    def at(self, now_ms: int) -> int:
        """The running time at a time of the clock; without ticks both are the same."""
        if self._due_ms is not None and now_ms > self._due_ms + LATE_MIN_MS:
            # Times that were returned are not taken back.
            self.lost_ms += now_ms - max(self._due_ms, self._seen_ms)
            self._due_ms = now_ms
        self._seen_ms = max(self._seen_ms, now_ms)
        return now_ms - self.lost_ms
