"""RunningTime: time without the stalls of this process, for timeouts of other nodes. Pure.

A process may stall for a second or more, because the machine is busy or suspended, or because a step of the process
takes long. It then reads no requests, and clients send no further ones before they have a response. If this time
counted, a controller would fence live brokers, and a voter would become prospective under a live leader.

So the time of a stall does not count. `tick` is called every `tick_ms`, and `at` returns the time. A call after the
next tick was due shows a stall, and every deadline moves by its length. Timeouts of other nodes that end while this
process runs are not delayed. A stall between two ticks, which is shorter than `tick_ms`, is not noticed.
"""

from __future__ import annotations

LATE_MIN_MS = 20
"""Milliseconds by which a tick may be late without being a stall: an event loop is not more exact."""


class RunningTime:
    """Time in milliseconds without stalls; `at` never goes backwards.

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
        """Notes that the process runs. Returns the length of the stall that ends now, in ms, 0 for none."""
        lost_before_ms = self.lost_ms
        self.at(now_ms)
        self._due_ms = now_ms + self._tick_ms
        return self.lost_ms - lost_before_ms

    def at(self, now_ms: int) -> int:
        """Running time at a time of the clock; without ticks they are equal."""
        if self._due_ms is not None and now_ms > self._due_ms + LATE_MIN_MS:
            # Only the time after the last returned one counts as lost, so that `at` never goes backwards.
            self.lost_ms += now_ms - max(self._due_ms, self._seen_ms)
            self._due_ms = now_ms
        self._seen_ms = max(self._seen_ms, now_ms)
        return now_ms - self.lost_ms
