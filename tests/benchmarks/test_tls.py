"""The rate of a consumer behind its first third, from the reports of ConsumerPerformance."""

from __future__ import annotations

import pytest

from benchmarks.throughput import ToolFailedError
from benchmarks.tls import steady_rate


def report(time: str, records: int) -> str:
    return f"2026-11-25 {time}, 0, 1.0, 9.9, {records}, 99.9, 0, 100, 9.9, 99.9"


def test_the_first_third_does_not_count() -> None:
    reports = [("07:59:59:900", 10), ("08:00:00:000", 40), ("08:00:00:500", 60), ("08:00:01:000", 100)]
    assert steady_rate("\n".join(report(*one) for one in reports) + "\n", 100) == 60


@pytest.mark.parametrize(
    "output",
    [
        "",
        report("08:00:00:000", 100),
        "\n".join([report("08:00:00:000", 40), report("08:00:01:000", 60), "WARNING: Exiting before consuming all"]),
    ],
)
def test_a_run_that_did_not_read_all_has_no_rate(output: str) -> None:
    with pytest.raises(ToolFailedError):
        steady_rate(output, 100)
