"""Polling before sleeping: when it is done, for how long, and when it is given up."""

from __future__ import annotations

import os
import time

import pytest

from pykbroker.network.short_waits import CREDIT_MAX, CREDIT_NEEDED, POLL_S, SHORT_S, ShortWaits, usable_processors

STEP_S = POLL_S / 10


class Loop:
    """A virtual clock that moves with each poll, and something that is found after `found_after` polls of a wait."""

    def __init__(self, processors: int = 2) -> None:
        self.time = 0.0
        self.polls = 0
        self.given_way = 0
        self.found_after = 0
        self.waits = ShortWaits(lambda: self.time, self._give_way, processors)

    def _give_way(self) -> None:
        self.given_way += 1

    def _find(self) -> bool:
        self.polls += 1
        self.time += STEP_S
        return self.polls >= self.found_after

    def polls_of_wait(self, found_after: int) -> tuple[bool, int]:
        """Waits once; the outcome and the number of polls."""
        self.polls, self.found_after = 0, found_after
        return self.waits.poll(self._find), self.polls

    def sleep(self, seconds: float, times: int = 1) -> None:
        for _ in range(times):
            self.waits.slept(seconds)


def test_it_sleeps_at_once_before_waits_were_short() -> None:
    loop = Loop()
    assert loop.polls_of_wait(1) == (False, 0)
    loop.sleep(SHORT_S, CREDIT_NEEDED - 1)
    assert loop.polls_of_wait(1) == (False, 0)
    loop.sleep(SHORT_S)
    assert loop.polls_of_wait(3) == (True, 3)
    assert loop.given_way == 2, "between two polls"


def test_a_poll_in_vain_ends_after_its_time_and_two_in_a_row_are_the_last() -> None:
    loop = Loop()
    loop.sleep(SHORT_S, CREDIT_NEEDED + 2)
    for _ in range(2):
        found, polls = loop.polls_of_wait(1000)
        assert not found
        assert 9 <= polls <= 11
    assert loop.polls_of_wait(1) == (False, 0)


def test_long_waits_end_polling() -> None:
    loop = Loop()
    loop.sleep(SHORT_S, 100)
    loop.sleep(2 * SHORT_S, CREDIT_MAX - CREDIT_NEEDED)
    assert loop.polls_of_wait(1) == (True, 1)
    loop.sleep(2 * SHORT_S, 2)
    assert loop.polls_of_wait(1) == (False, 0)
    loop.sleep(2 * SHORT_S, 100)
    loop.sleep(SHORT_S, CREDIT_NEEDED)
    assert loop.polls_of_wait(1) == (True, 1), "a long idle time is forgotten as fast as a short one"


def test_it_never_polls_on_a_single_processor() -> None:
    loop = Loop(processors=1)
    loop.sleep(SHORT_S, 100)
    assert loop.polls_of_wait(1) == (False, 0)


def test_processors_are_those_on_which_the_process_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= usable_processors() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_processors() == (os.cpu_count() or 1)
    ShortWaits(time.perf_counter).slept(1.0)
