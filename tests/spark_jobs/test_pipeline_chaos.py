"""The plan of kills."""

from __future__ import annotations

from math import inf

import pytest
from pipeline.chaos import BROKER, DATABASE, DOWN_S, JOB, Kill, Schedule, plan


@pytest.mark.parametrize("seed", range(50))
def test_each_target_is_killed_within_the_time(seed: int) -> None:
    kills = plan(seed, [JOB, BROKER, DATABASE], 20.0)
    assert {kill.target for kill in kills} == {JOB, BROKER, DATABASE}
    assert 3 <= len(kills) <= 5
    assert kills == sorted(kills)
    assert all(0 < kill.at_s <= 20 for kill in kills)
    assert {kill.down_s for kill in kills} <= set(DOWN_S)


def test_brokers_are_away_for_moments_and_for_longer_than_the_controller_bears() -> None:
    away = {kill.down_s for seed in range(20) for kill in plan(seed, [JOB, BROKER], 20.0) if kill.target == BROKER}
    assert away == set(DOWN_S)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(3, [JOB, BROKER], 20.0) == plan(3, [JOB, BROKER], 20.0)
    assert len({tuple(plan(seed, [JOB, BROKER], 20.0)) for seed in range(20)}) == 20


def test_a_batch_at_the_end_has_a_kill_of_its_own_and_the_others_stay_as_they_are() -> None:
    for seed in range(20):
        with_batch = plan(seed, [JOB, BROKER], 20.0, ends_with_batch=True)
        assert with_batch[:-1] == plan(seed, [JOB, BROKER], 20.0)
        assert with_batch[-1].at_s == inf
    assert {plan(seed, [JOB, BROKER], 20.0, True)[-1].target for seed in range(20)} == {JOB, BROKER}


def test_a_kill_is_due_when_the_job_was_live_for_so_long() -> None:
    schedule = Schedule([Kill(2.0, JOB, 0), Kill(3.0, BROKER, 0), Kill(inf, JOB, 0)], now_s=100.0)
    schedule.look(110.0, is_live=False)
    schedule.look(111.5, is_live=True)
    assert schedule.take_due(is_live=True, in_last_batch=False) is None
    schedule.look(112.0, is_live=True)
    assert schedule.take_due(is_live=False, in_last_batch=False) is None
    assert schedule.take_due(is_live=True, in_last_batch=False) == Kill(2.0, JOB, 0)
    assert schedule.take_due(is_live=True, in_last_batch=False) is None


def test_streams_go_on_for_all_kills_but_that_of_the_batch() -> None:
    schedule = Schedule([Kill(2.0, BROKER, 0), Kill(inf, JOB, 0)], now_s=0.0)
    assert schedule.holds_streams
    schedule.look(1000.0, is_live=True)
    assert schedule.take_due(is_live=True, in_last_batch=False) == Kill(2.0, BROKER, 0)
    assert schedule.take_due(is_live=True, in_last_batch=False) is None
    assert not schedule.holds_streams
    assert schedule.take_due(is_live=False, in_last_batch=True) == Kill(inf, JOB, 0)
    assert schedule.take_due(is_live=True, in_last_batch=True) is None
