"""The end of a random history of a modern group: the members that are left settle in the group's target."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker.groups.shard import GroupShard
from tests.pykbroker.groups.shard_rig import ShardRig

STEPS = 120
ROUNDS = 14
ROUND_MS = 5_000
"""Time between two rounds at the end; all rounds together are longer than a session."""


class History(Protocol):
    """Clients of one group, and what they do by chance."""

    random: random.Random
    rig: Any

    @property
    def members(self) -> list[Any]:
        """Clients that have not stopped; one that `holds` keeps what it was told to give up."""

    def step(self) -> None:
        """One thing happens, and what always holds is checked."""

    def settle(self) -> None:
        """The clients send heartbeats, and take what they are given."""


def run_to_the_end(
    history: History, groups: Callable[[GroupShard], dict[str, Any]], stored_state: Callable[[GroupShard], Any]
) -> list[Any]:
    """Runs a history, and its end, at which the clients follow the coordinator.

    Another coordinator must read the same state from the log at any time. Returns the clients that the group has at the
    end, which are all of its members; none if there is no group any more.
    """
    rig: ShardRig = history.rig
    for _ in range(STEPS):
        history.step()
        if history.random.random() < 0.1:
            rig.replicate()
            assert stored_state(rig.loaded_shard()) == stored_state(rig.shard)
    for member in history.members:
        member.holds = False
    for _ in range(ROUNDS):
        rig.advance(ROUND_MS)
        history.settle()
        rig.replicate()
    history.settle()
    assert stored_state(rig.loaded_shard()) == stored_state(rig.shard)
    group = next(iter(groups(rig.shard).values()), None)
    if group is None:
        return []
    live = [member for member in history.members if member.member_id in group.members]
    assert set(group.members) == {member.member_id for member in live}, "those that stopped are gone"
    if live:
        assert group.state_name == "Stable"
    return live
