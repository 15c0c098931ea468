"""Kills at random moments: the plan comes from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

JOB, BROKER, DATABASE = "job", "broker", "database"
MORE_KILLS = (0, 2)


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """A kill -9 that is due.

    Attributes:
        at_s: seconds in which the job was live, which means that it had finished a trigger since its start.
        target: job, broker or database.
        choice: chooses one of several nodes or databases: a number to be taken modulo how many there are.
    """

    at_s: float
    target: str
    choice: int


def plan(seed: int, targets: Sequence[str], seconds: float) -> list[Kill]:
    """Kills within so many seconds, in their order: each target at least once, and up to two more."""
    rng = random.Random(f"chaos {seed}")  # noqa: S311
    chosen = [*targets, *rng.choices(list(targets), k=rng.randint(*MORE_KILLS))]
    return sorted(Kill(round(rng.uniform(0.2, seconds), 2), target, rng.randrange(1 << 16)) for target in chosen)
