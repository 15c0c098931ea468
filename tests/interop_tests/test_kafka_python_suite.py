"""Reading the output of kafka-python's own tests: the counts of a run, and the counts of a good run."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.kafka_python_suite import CHECKOUT, PASSED_MIN, Outcome, outcome_of, requirement


@pytest.mark.parametrize(
    ("counts", "expected", "is_good"),
    [
        ('tests="65" failures="0" errors="0" skipped="10"', Outcome(55, 0, 10), True),
        ('tests="66" failures="0" errors="0" skipped="10"', Outcome(56, 0, 10), True),
        ('tests="66" failures="1" errors="0" skipped="10"', Outcome(55, 1, 10), False),
        ('tests="67" failures="1" errors="1" skipped="10"', Outcome(55, 2, 10), False),
        ('tests="65" failures="0" errors="0" skipped="65"', Outcome(0, 0, 65), False),
        ('tests="0"', Outcome(0, 0, 0), False),
    ],
)
def test_a_good_run_passes_all_that_passes_against_kafka(
    tmp_path: Path, counts: str, expected: Outcome, is_good: bool
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f'<?xml version="1.0"?><testsuites><testsuite name="pytest" {counts}/></testsuites>')
    outcome = outcome_of(report)
    assert (outcome, outcome.is_good) == (expected, is_good)
    assert ("should pass" in str(outcome)) == (expected.passed < PASSED_MIN)


def test_a_run_without_a_report_is_a_failure(tmp_path: Path) -> None:
    assert not outcome_of(tmp_path / "none.xml").is_good


def test_the_tests_are_of_the_version_that_is_installed() -> None:
    pins = (CHECKOUT / "requirements" / "development.txt").read_text().splitlines()
    assert requirement() in pins
