"""The expectations of the quota benchmark, in virtual time."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from benchmarks.quotas import CLIENTS, LIMIT, SECONDS, Client, Seen, burst_ends, expected, rate_between_bursts, row_of

PRODUCER, SMALL, MIDDLE, LARGE = CLIENTS


def of_the_limit(seen: list[Seen], begin_s: float) -> float:
    """Rate from a time on, between two responses with bytes, in percent of the limit."""
    late = [request for request in seen if request.at_s >= begin_s and request.size]
    return 100 * sum(request.size for request in late[1:]) / (late[-1].at_s - late[0].at_s) / LIMIT


@pytest.mark.parametrize("request_ms", [1, 2, 5])
@pytest.mark.parametrize(
    ("client", "percent"), [(PRODUCER, 99), (SMALL, 99), (MIDDLE, 95.5), (LARGE, 82.5)], ids=lambda value: str(value)
)
def test_the_rate_of_ten_minutes_by_the_size_of_responses(client: Client, percent: float, request_ms: int) -> None:
    """P-271: a response that does not fit is not sent, and what is left of the window is lost."""
    assert of_the_limit(expected(client, request_ms, 600), 60) == pytest.approx(percent, abs=1.5)


@pytest.mark.parametrize("client", [PRODUCER, SMALL])
def test_the_rate_between_the_first_bursts_is_that_of_eleven_seconds_in_twelve(client: Client) -> None:
    """P-267: the window of a burst ends a second after the last bytes of that burst have come."""
    seen = expected(client, 2, SECONDS)
    assert [round(seen[end].at_s) for end in burst_ends(seen)] in ([1, 13, 25, 37], [1, 13, 24, 36])
    rate = rate_between_bursts(seen)
    assert rate is not None
    assert 100 * rate / LIMIT == pytest.approx(93, abs=3)


def test_a_row_compares_with_what_the_windows_allow() -> None:
    seen = expected(SMALL, 2, SECONDS)
    row = row_of("ours", SMALL, seen, SECONDS)
    assert row[:2] == ["ours", "consumer, 20 kB"]
    assert row[3] == "100.0 %"
    slower = [request._replace(size=request.size // 2) for request in seen]
    assert row_of("ours", SMALL, slower, SECONDS)[3] == "50.0 %"
