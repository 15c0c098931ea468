"""Kafka's two measures of a rate: a sum over windows, and a bucket of tokens. Pure: time comes as an argument.

Times are whole milliseconds of any clock that does not go backwards.
"""

from __future__ import annotations

import math

from pykbroker.named_tuple import NamedTuple

THROTTLE_MAX_MS = 2**31 - 1
"""Largest throttle time that a response can have."""


class QuotaWindows(NamedTuple):
    """Number and length of the windows of a rate (`quota.window.num`, `quota.window.size.seconds`)."""

    number: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.number * self.size_ms


class WindowedRate:
    """Units per second over the last windows; the newest window is the one in progress.

    A window begins with the first value after the end of the one before, so windows may be apart. One that lies partly
    outside the span counts completely, until its last value is outside.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        # [start, time of the last value, sum] of each window, oldest first.
        self._samples: list[list[float]] = []

    def record(self, value: float, now_ms: int) -> None:
        """Counts a value; a negative one takes back what was counted."""
        samples, (number, size_ms) = self._samples, self._windows
        if not samples or now_ms - samples[-1][0] >= size_ms:
            # One more window than the span has is kept: the oldest may overlap the beginning of the span.
            if len(samples) > number:
                del samples[0]
            samples.append([now_ms, now_ms, value])
            return
        samples[-1][1] = now_ms
        samples[-1][2] += value

    def measure(self, now_ms: int) -> float:
        """The rate in units per second."""
        return self._total(now_ms) * 1000 / self.window_ms(now_ms)

    def window_ms(self, now_ms: int) -> int:
        """Length in ms of the time over which the rate is computed.

        It is at least that of all windows but one, so that the first values do not count as an enormous rate.
        """
        self._drop_old(now_ms)
        number, size_ms = self._windows
        elapsed_ms = int(now_ms - self._samples[0][0]) if self._samples else 0
        whole = elapsed_ms // size_ms
        if whole < number - 1:
            elapsed_ms += (number - 1 - whole) * size_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Time in ms after which the rate falls to the limit if nothing is added; 0 if it is not above."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return rounded((rate - limit) / limit * self.window_ms(now_ms)) if limit > 0 else THROTTLE_MAX_MS

    def is_idle(self, now_ms: int) -> bool:
        """True if no value is in any window."""
        self._drop_old(now_ms)
        return not self._samples

    def _total(self, now_ms: int) -> float:
        self._drop_old(now_ms)
        return math.fsum(sample[2] for sample in self._samples)

    def _drop_old(self, now_ms: int) -> None:
        samples, span_ms = self._samples, self._windows.span_ms
        while samples and now_ms - samples[0][1] >= span_ms:
            del samples[0]


class SimpleWindowedRate(WindowedRate):
    """The rate of replication throttles: over the time since the beginning of the oldest window, at least one window.

    So the first bytes of a reassignment pass at the rate of one window, while a client's may be those of all windows.
    """

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        """Length in ms of the time over which the rate is computed."""
        self._drop_old(now_ms)
        return max(int(now_ms - self._samples[0][0]) if self._samples else 0, self._windows.size_ms)

    def falls_to(self, limit: float, now_ms: int) -> float:
        """The time in ms, now or later, at which the rate is not above the limit if nothing is added."""
        self._drop_old(now_ms)
        size_ms, span_ms = self._windows.size_ms, self._windows.span_ms
        at_ms: float = now_ms
        total = self._total(now_ms)
        for start_ms, last_ms, value in self._samples:
            needed_ms = total * 1000 / limit if limit > 0 else math.inf
            if total <= 0 or needed_ms <= size_ms:
                return at_ms
            reached_ms = max(at_ms, start_ms + needed_ms)
            if reached_ms < last_ms + span_ms:
                return math.ceil(reached_ms)
            # The oldest window is dropped before that. The rate may rise then, as it is taken over a shorter time.
            at_ms = max(at_ms, last_ms + span_ms)
            total -= value
        return at_ms


class TokenBucket:
    """Tokens that are refilled at the limit's rate, up to the sum of all windows (KIP-599).

    The number may become negative: a single operation may take more than there is, and the next one then waits.
    """

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        # None for a full bucket: its number of tokens depends on the limit, which each call gives.
        self._tokens: float | None = None
        self._at_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Tokens at a time; negative if more were taken than there were."""
        self._tokens = self._refilled(limit, now_ms)
        self._at_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Takes tokens, also if there are too few."""
        self._tokens = min(self._burst(limit), self.tokens(limit, now_ms) - count)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Time in ms until the number of tokens is not negative; 0 if it is not."""
        tokens = self.tokens(limit, now_ms)
        return rounded(-tokens / limit * 1000) if tokens < 0 else 0

    def is_full(self, limit: float, now_ms: int) -> bool:
        """True if no tokens are missing. Changes nothing."""
        return self._refilled(limit, now_ms) >= self._burst(limit)

    def _refilled(self, limit: float, now_ms: int) -> float:
        burst = self._burst(limit)
        return burst if self._tokens is None else min(burst, self._tokens + limit * (now_ms - self._at_ms) / 1000)

    def _burst(self, limit: float) -> float:
        return self._windows.span_ms / 1000 * limit


def rounded(time_ms: float) -> int:
    """A time in whole ms, rounded as Java rounds, and at most what a response can have."""
    return math.floor(min(time_ms, THROTTLE_MAX_MS) + 0.5) if time_ms < THROTTLE_MAX_MS else THROTTLE_MAX_MS
