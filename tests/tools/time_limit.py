"""A pytest plugin with the option `--minutes`: after that time no test begins, and the last line says how many did not.

A test that has begun runs to its end. Tests that did not run count as skipped in pytest's own summary.
"""

from __future__ import annotations

import time

import pytest

NOT_RUN = "not run for want of time"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, metavar="M", help="begin no test after M minutes")


def pytest_configure(config: pytest.Config) -> None:
    minutes: float | None = config.getoption("--minutes")
    if minutes is not None:
        config.pluginmanager.register(TimeLimit(time.monotonic() + minutes * 60))


class TimeLimit:
    """Skips the tests that would begin after a time.

    Args:
        end: the time, of the monotonic clock in seconds.
    """

    def __init__(self, end: float) -> None:
        self._end = end
        self._not_run = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Before the fixtures of the test, which may start a broker."""
        if time.monotonic() >= self._end:
            self._not_run += 1
            pytest.skip(NOT_RUN)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """After pytest's own summary, so that fewer tests are never taken for all."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if self._not_run and reporter is not None:
            counts = {outcome: len(reports) for outcome, reports in reporter.stats.items()}
            failed = counts.get("failed", 0) + counts.get("error", 0)
            print(f"{counts.get('passed', 0)} passed, {failed} failed, {self._not_run} {NOT_RUN}")
