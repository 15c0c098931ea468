"""Time in which this process ran, which is what the silence of other nodes is measured in: pure.

A process may not run for a second and more: the machine is busy or suspended, or a step of its own was long. It hears
nobody meanwhile. What the others sent waits in the buffers of its sockets, and what they would have sent after an
answer waits for that answer. A controller that counted such a time against sessions would fence brokers that live, and
a voter would stand for election against a leader that is there.

So a stall is cut out of the time: whoever looks at the clock calls `at`, and somebody calls `tick` at least each
`tick_ms`. A look that comes later than a tick was due tells of a stall, and whatever was due is later by it. Nodes that
are silent while this process runs are noticed as soon as before. What is not noticed is a stall that begins and ends
between two ticks; it is shorter than `tick_ms`.
"""

from __future__ import annotations

LATE_MIN_MS = 20
"""A tick that is late by no more is as much on time as an event loop is."""


class RunningTime:
    """A clock that stands still when its process does. Times are in milliseconds; those it gives never go backwards.

    Attributes:
        lost_ms: how long the process did not run in all.
    """

    __slots__ = ("_due_ms", "_seen_ms", "_tick_ms", "lost_ms")

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._due_ms: int | None = None
        self._seen_ms = 0
        self.lost_ms = 0

    def tick(self, now_ms: int) -> int:
        """The process runs. Returns the length of the stall that ends with this, 0 for none."""
        lost_before_ms = self.lost_ms
        self.at(now_ms)
        self._due_ms = now_ms + self._tick_ms
        return self.lost_ms - lost_before_ms

    def at(self, now_ms: int) -> int:
        """The running time at a moment of the clock that goes on. Without ticks both are the same."""
        if self._due_ms is not None and now_ms > self._due_ms + LATE_MIN_MS:
            # Nothing before the last look is taken back: that time was given out.
            self.lost_ms += now_ms - max(self._due_ms, self._seen_ms)
            self._due_ms = now_ms
        self._seen_ms = max(self._seen_ms, now_ms)
        return now_ms - self.lost_ms
