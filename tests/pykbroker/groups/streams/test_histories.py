"""Streams groups under random histories: owners of tasks, targets, and what another coordinator reads from the log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import Endpoint
from tests.pykbroker.groups.histories import run_to_the_end
from tests.pykbroker.groups.shard_rig import GROUP
from tests.pykbroker.groups.streams.rig import ROLES, StreamsRig, Thread, settle
from tests.pykbroker.groups.streams.topologies import word_count

NUM_STANDBY_REPLICAS = "streams.num.standby.replicas"


def owners(group: StreamsGroup) -> None:
    """P-212: an active task has one owner; a process has one copy of a task at most, in whichever role."""
    active: dict[tuple[str, int], str] = {}
    copies: set[tuple[str, str, int]] = set()
    for member_id, member in group.members.items():
        for tasks in (member.assigned, member.pending_revocation):
            for key, epochs in tasks.active.items():
                for number, epoch in epochs.items():
                    assert active.setdefault((key, number), member_id) == member_id
                    assert group.active_process(key, number) == member.process_id
                    assert epoch <= group.epoch
            for role in tasks:
                for key, numbers in role.items():
                    for number in numbers:
                        assert (member.process_id, key, number) not in copies
                        copies.add((member.process_id, key, number))


def stored_state(shard: GroupShard) -> Any:
    """All that must be the same for another coordinator."""
    return {
        group_id: (
            group.epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            group.members,
            group.targets,
            group.topology,
            group.validated_topology_epoch,
            group.assignment_configs,
            group.state_name,
        )
        for group_id, group in shard.streams.by_id.items()
    }


class History:
    """Threads of one application that join, leave, stop, are busy and miss responses by chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = StreamsRig(
            {"in": self.random.randrange(1, 5)},
            is_replicated=self.random.random() < 0.3,
            assignment_interval_ms=self.random.choice((0, 1_000)),
            initial_rebalance_delay_ms=self.random.choice((0, 3_000)),
        )
        self.topology = word_count("g", "in")
        self.members: list[Thread] = []
        self.count = 0

    def step(self) -> None:
        choice = self.random.random()
        rig, threads = self.rig, self.members
        if choice < 0.1 and len(threads) < 6:
            self.count += 1
            endpoint = Endpoint(host=f"host-{self.count}", port=1) if self.random.random() < 0.3 else None
            process = f"process-{self.random.randrange(3)}"
            thread = Thread(rig, f"member-{self.count}", self.topology, process, user_endpoint=endpoint)
            threads.append(thread)
            thread.join()
        elif choice < 0.13 and threads:
            threads.pop(self.random.randrange(len(threads))).leave()
        elif choice < 0.15 and threads:
            threads.pop(self.random.randrange(len(threads)))  # it stops without a word
        elif choice < 0.17:
            self.grow()
        elif choice < 0.2:
            rig.configs[GROUP] = {NUM_STANDBY_REPLICAS: str(self.random.randrange(3))}
        elif choice < 0.28 and threads:
            thread = self.random.choice(threads)
            thread.holds = not thread.holds
        elif choice < 0.38:
            rig.advance(self.random.choice((100, 1_000, 5_000, 20_000)))
        elif choice < 0.44:
            rig.create_missing()
            rig.replicate()
        elif choice < 0.46 and threads:
            rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.random.choice(threads).beat()
            rig.append_error = ErrorCode.NONE
        elif threads:
            thread = self.random.choice(threads)
            epoch, owned = thread.epoch, thread.owned
            thread.beat(endpoint_information_epoch=self.random.randrange(-1, 3))
            if self.random.random() < 0.05:
                thread.epoch, thread.owned = epoch, owned  # the response was lost
        if GROUP in rig.shard.streams.by_id:
            owners(rig.group)
            self.check_threads()

    def grow(self) -> None:
        """The source and the internal topics get more partitions, as an administrator does it."""
        count = max(self.rig.topics.values()) + 1
        self.rig.set_topics(**{name.replace("-", "_"): count for name in self.rig.topics})

    def settle(self) -> None:
        settle(*self.members, rounds=2)
        self.rig.create_missing()

    def check_threads(self) -> None:
        """Two threads that the coordinator still knows never work on the same active task."""
        seen: dict[tuple[str, int], str] = {}
        for thread in self.members:
            if thread.member_id in self.rig.group.members and thread.epoch > 0:
                for task in thread.tasks():
                    assert seen.setdefault(task, thread.member_id) == thread.member_id


@pytest.mark.parametrize("seed", range(150))
def test_every_history_ends_in_its_target(seed: int) -> None:
    """P-210 to P-219."""
    history = History(seed)
    live = run_to_the_end(history, lambda shard: shard.streams.by_id, stored_state)
    if not live:
        return
    rig = history.rig
    wanted = [(key, number) for key in "01" for number in range(rig.topics["in"])]
    assert sorted(task for thread in live for task in thread.tasks()) == wanted
    for thread in live:
        target = rig.group.target_of(thread.member_id)
        for role, numbers in zip(ROLES, target, strict=True):
            assert thread.owned[role] == {key: set(found) for key, found in numbers.items()}
