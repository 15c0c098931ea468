"""Rates of all clients under one quota, with their limits. Pure: time comes as an argument.

Only clients that have a limit are measured. The rates of clients that have been idle for all windows are dropped.
"""

from __future__ import annotations

from pykbroker.quotas.limits import ClientLimits, Place
from pykbroker.quotas.rates import QuotaWindows, TokenBucket, WindowedRate

UNLIMITED_BYTES = 2**31 - 1


class MeasuredRates:
    """Rates of users and client ids: bytes of produce or fetch per second, or the percentage of time.

    Attributes:
        limits: replaced when quotas change; the rates stay.

    Args:
        windows: windows of the rates.
        throttle_max_ms: longest throttle time; None without a limit.
    """

    __slots__ = ("_purge_at_ms", "_rates", "_throttle_max_ms", "_windows", "limits")

    def __init__(self, windows: QuotaWindows, throttle_max_ms: int | None = None) -> None:
        self.limits = ClientLimits()
        self._windows = windows
        self._throttle_max_ms = throttle_max_ms
        self._rates: dict[Place, WindowedRate] = {}
        self._purge_at_ms = 0

    def __len__(self) -> int:
        return len(self._rates)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Counts a value; returns the throttle time in ms, 0 for none."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        place, limit = found
        rate = self._rate(place, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return throttle_ms if self._throttle_max_ms is None else min(throttle_ms, self._throttle_max_ms)

    def count(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Counts a value for the throttle times of later requests; a negative one takes back what was counted."""
        found = self.limits.find(user, client_id)
        if found is not None:
            self._rate(found[0], now_ms).record(value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> int:
        """The largest value that is certainly not throttled: the limit for all whole windows together."""
        found = self.limits.find(user, client_id)
        if found is None:
            return UNLIMITED_BYTES
        number, size_ms = self._windows
        return min(UNLIMITED_BYTES, int(found[1] * (number - 1) * (size_ms // 1000)))

    def _rate(self, place: Place, now_ms: int) -> WindowedRate:
        rate = self._rates.get(place)
        if rate is None:
            self._purge(now_ms)
            rate = self._rates[place] = WindowedRate(self._windows)
        return rate

    def _purge(self, now_ms: int) -> None:
        if now_ms >= self._purge_at_ms:
            self._purge_at_ms = now_ms + self._windows.span_ms
            for place in [place for place, rate in self._rates.items() if rate.is_idle(now_ms)]:
                del self._rates[place]


class MutationQuotas:
    """Tokens of users and client ids for creating and deleting partitions (KIP-599).

    Attributes:
        limits: replaced when quotas change; the buckets stay.
    """

    __slots__ = ("_buckets", "_purge_at_ms", "_windows", "limits")

    def __init__(self, windows: QuotaWindows) -> None:
        self.limits = ClientLimits()
        self._windows = windows
        self._buckets: dict[Place, TokenBucket] = {}
        self._purge_at_ms = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool) -> int:
        """Takes tokens for `count` partitions; returns the throttle time in ms, 0 for none.

        A strict charge takes nothing if the number of tokens is negative already; the operation must then be refused.
        Any other charge always takes them, and the client is throttled after the operation.
        """
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        place, limit = found
        bucket = self._bucket(place, now_ms)
        if is_strict:
            throttle_ms = bucket.throttle_ms(limit, now_ms)
            if bucket.tokens(limit, now_ms) >= 0:
                bucket.take(count, limit, now_ms)
            return throttle_ms
        bucket.take(count, limit, now_ms)
        return bucket.throttle_ms(limit, now_ms)

    def _bucket(self, place: Place, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(place)
        if bucket is None:
            if now_ms >= self._purge_at_ms:
                self._purge_at_ms = now_ms + self._windows.span_ms
                self._drop_full(now_ms)
            bucket = self._buckets[place] = TokenBucket(self._windows)
        return bucket

    def _drop_full(self, now_ms: int) -> None:
        for place, bucket in list(self._buckets.items()):
            limit = self.limits.limit_of(place)
            if limit is None or bucket.is_full(limit, now_ms):
                del self._buckets[place]
