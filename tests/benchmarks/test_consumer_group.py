"""The benchmark of a large consumer group: when it is stable."""

from __future__ import annotations

import random

from benchmarks.consumer_group import Ownership

MEMBERS, PARTITIONS, SHARE = 3, 5, 2

State = tuple[int, list[int]]


def is_stable(states: list[State]) -> bool:
    """The same by a look at all members."""
    owned = [number for _, partitions in states for number in partitions]
    epochs = {epoch for epoch, _ in states}
    is_fair = all(len(partitions) <= SHARE for _, partitions in states)
    return len(epochs) == 1 and 0 not in epochs and is_fair and sorted(owned) == list(range(PARTITIONS))


def test_a_group_is_stable_when_each_partition_has_one_owner() -> None:
    chance = random.Random(1)
    ownership = Ownership(MEMBERS, PARTITIONS)
    states: list[State] = [(0, [])] * MEMBERS
    outcomes = set()
    for _ in range(20_000):
        member = chance.randrange(MEMBERS)
        part = [number for number in range(PARTITIONS) if chance.random() < 0.4]
        after = chance.choice([0, 1, 1, 1]), part
        ownership.change(states[member], after)
        states[member] = after
        outcomes.add(is_stable(states))
        assert ownership.is_stable == is_stable(states), states
    assert outcomes == {False, True}
