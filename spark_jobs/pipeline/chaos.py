"""Kills at random moments: the plan comes from a seed, so that a run can be repeated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

JOB, BROKER, DATABASE = "job", "broker", "database"
MORE_KILLS = (0, 2)
DOWN_S = (0.5, 3.0, 12.0)
"""The controller misses a node after 9 s: in the longest of these times others become leaders of its partitions."""


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """A kill -9 that is due.

    Attributes:
        at_s: seconds in which the job was live, which means that it had finished a trigger since its start; infinite
            for a kill in the batch that ends the pipeline.
        target: job, broker or database.
        choice: chooses one of several nodes or databases: a number to be taken modulo how many there are.
        down_s: seconds until a broker or a database is started again.
    """

    at_s: float
    target: str
    choice: int
    down_s: float = 0.5


def plan(seed: int, targets: Sequence[str], seconds: float, ends_with_batch: bool = False) -> list[Kill]:
    """Kills within so many seconds, in their order: each target at least once, and up to two more.

    A pipeline that ends with a batch gets one more, for the batch.
    """
    rng = random.Random(f"chaos {seed}")  # noqa: S311
    down = random.Random(f"down {seed}")  # noqa: S311
    chosen = [*targets, *rng.choices(list(targets), k=rng.randint(*MORE_KILLS))]
    kills = sorted(Kill(round(rng.uniform(0.2, seconds), 2), target, rng.randrange(1 << 16)) for target in chosen)
    if ends_with_batch:
        kills.append(Kill(math.inf, rng.choice(list(targets)), rng.randrange(1 << 16)))
    return [replace(kill, down_s=down.choice(DOWN_S)) for kill in kills]


class Schedule:
    """The kills of a run that are left, and the time in which its job was live, on a clock that the caller reads.

    Moments of kills count the seconds in which the job is live. Counted from its start, most kills would meet a job
    that is still starting.

    Attributes:
        left: kills that were not carried out yet, in their order.
        live_s: seconds in which the job was live until now.
    """

    def __init__(self, kills: Sequence[Kill], now_s: float) -> None:
        self.left = list(kills)
        self.live_s = 0.0
        self._looked_at_s = now_s

    def look(self, now_s: float, is_live: bool) -> None:
        """Note that the job is live now, or is not; what is noted counts for the time since the last look."""
        if is_live:
            self.live_s += now_s - self._looked_at_s
        self._looked_at_s = now_s

    def take_due(self, is_live: bool, in_last_batch: bool) -> Kill | None:
        """Take the next kill if it is due; in the batch at the end, which is over soon, whatever is left is due."""
        if self.left and (in_last_batch or (is_live and self.live_s >= self.left[0].at_s)):
            return self.left.pop(0)
        return None

    @property
    def holds_streams(self) -> bool:
        """True as long as the last stage with streams must go on: a plan is carried out whole."""
        return any(kill.at_s < math.inf for kill in self.left)
