"""The plan of kills."""

from __future__ import annotations

import pytest
from pipeline.chaos import BROKER, DATABASE, JOB, plan


@pytest.mark.parametrize("seed", range(50))
def test_each_target_is_killed_within_the_time(seed: int) -> None:
    kills = plan(seed, [JOB, BROKER, DATABASE], 20.0)
    assert {kill.target for kill in kills} == {JOB, BROKER, DATABASE}
    assert 3 <= len(kills) <= 5
    assert kills == sorted(kills)
    assert all(0 < kill.at_s <= 20 for kill in kills)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(3, [JOB, BROKER], 20.0) == plan(3, [JOB, BROKER], 20.0)
    assert len({tuple(plan(seed, [JOB, BROKER], 20.0)) for seed in range(20)}) == 20
