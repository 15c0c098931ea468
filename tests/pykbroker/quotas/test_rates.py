"""Kafka's windows and token buckets, with figures that were computed by hand."""

from __future__ import annotations

import copy

import pytest

from pykbroker.quotas.rates import THROTTLE_MAX_MS, QuotaWindows, SimpleWindowedRate, TokenBucket, WindowedRate, rounded

WINDOWS = QuotaWindows(11, 1000)
START_MS = 1_000_000


def test_the_first_value_counts_over_all_whole_windows() -> None:
    """P-267: 11 windows of a second are ten whole ones and the one in progress."""
    rate = WindowedRate(WINDOWS)
    rate.record(10_000, START_MS)
    assert rate.window_ms(START_MS) == 10_000
    assert rate.measure(START_MS) == 1000
    assert rate.window_ms(START_MS + 500) == 10_500


def test_throttle_time_is_until_the_average_is_at_the_limit() -> None:
    """P-267: (observed - limit) / limit * window."""
    rate = WindowedRate(WINDOWS)
    rate.record(15_000, START_MS)
    assert rate.throttle_ms(1000, START_MS) == 5000
    assert rate.throttle_ms(1500, START_MS) == 0
    assert rate.throttle_ms(0, START_MS) == THROTTLE_MAX_MS


def test_a_window_is_dropped_when_its_last_value_is_outside() -> None:
    """P-267."""
    rate = WindowedRate(WINDOWS)
    rate.record(100, START_MS)
    rate.record(100, START_MS + 900)
    rate.record(10, START_MS + 5000)
    assert rate.measure(START_MS + 11_800) == 210 * 1000 / 11_800
    # The windows begin at 5000 now: 6.9 s, of which six are whole, and four more.
    assert rate.measure(START_MS + 11_900) == 10 * 1000 / 10_900
    assert not rate.is_idle(START_MS + 11_900)
    assert rate.is_idle(START_MS + 16_000)


def test_windows_before_the_span_do_not_count() -> None:
    rate = WindowedRate(QuotaWindows(2, 1000))
    for second in range(10):
        rate.record(1, START_MS + second * 1000)
    # The windows of the seconds 8 and 9; that of second 7 is just outside.
    assert rate.measure(START_MS + 9000) == 2 * 1000 / 1000


def test_p340_the_rate_of_replication_begins_with_one_window() -> None:
    """P-340."""
    rate = SimpleWindowedRate(WINDOWS)
    rate.record(10_000, START_MS)
    assert rate.measure(START_MS) == rate.measure(START_MS + 1000) == 10_000
    assert rate.measure(START_MS + 4000) == 2500
    rate.record(10_000, START_MS + 4000)
    assert rate.measure(START_MS + 10_000) == 2000
    # The first window is dropped, and the second is the oldest.
    assert rate.measure(START_MS + 11_000) == 10_000 * 1000 / 7000


@pytest.mark.parametrize("limit", [0, 40, 150, 900, 999, 1000, 3000, 20_000, 1e9])
def test_p340_the_time_at_which_a_rate_is_not_above_the_limit(limit: float) -> None:
    """P-340: it is the first such time, also when windows are dropped before it and the rate rises with that."""
    rate = SimpleWindowedRate(QuotaWindows(4, 1000))
    assert rate.falls_to(limit, START_MS) == START_MS
    for at_ms, value in ((0, 3000), (700, 500), (1500, 100), (2600, 9000), (3000, 10)):
        rate.record(value, START_MS + at_ms)
        now_ms = START_MS + at_ms
        falls_ms = copy.deepcopy(rate).falls_to(limit, now_ms)
        seen = copy.deepcopy(rate)
        while seen.measure(now_ms) > limit:
            now_ms += 1
        assert falls_ms == now_ms


def test_a_value_can_be_taken_back() -> None:
    rate = WindowedRate(WINDOWS)
    rate.record(500, START_MS)
    before = rate.measure(START_MS)
    rate.record(9000, START_MS)
    rate.record(-9000, START_MS)
    assert rate.measure(START_MS) == before


def test_a_bucket_is_full_at_first_and_may_be_overdrawn() -> None:
    """P-272: the burst is all windows; the next operation waits until no token is missing."""
    bucket = TokenBucket(QuotaWindows(10, 1000))
    assert bucket.tokens(2.0, START_MS) == 20
    bucket.take(25, 2.0, START_MS)
    assert bucket.throttle_ms(2.0, START_MS) == 2500
    assert bucket.throttle_ms(2.0, START_MS + 2400) == 100
    assert bucket.throttle_ms(2.0, START_MS + 2500) == 0
    assert not bucket.is_full(2.0, START_MS + 2500)
    assert bucket.is_full(2.0, START_MS + 60_000)


def test_a_lower_limit_lowers_the_burst() -> None:
    bucket = TokenBucket(QuotaWindows(10, 1000))
    assert bucket.tokens(2.0, START_MS) == 20
    assert bucket.tokens(0.5, START_MS) == 5


@pytest.mark.parametrize(("time_ms", "shown"), [(0.4, 0), (0.5, 1), (2.5, 3), (1e300, THROTTLE_MAX_MS)])
def test_times_are_rounded_as_java_does(time_ms: float, shown: int) -> None:
    assert rounded(time_ms) == shown
