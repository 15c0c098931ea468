"""Streams groups for tests of their assignor: topologies, members, groups by chance."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykbroker.groups.assignors.streams.spec import AssignmentMember, GroupSpec, MemberAssignment, TaskId

Tasks = Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Topology:
    """Numbers of tasks by subtopology id, and the stateful subtopologies."""

    task_counts: Mapping[str, int]
    stateful: frozenset[str] = frozenset()

    def subtopologies(self) -> Sequence[str]:
        return list(self.task_counts)

    def max_num_input_partitions(self, subtopology_id: str) -> int:
        return self.task_counts[subtopology_id]

    def is_stateful(self, subtopology_id: str) -> bool:
        return subtopology_id in self.stateful

    def tasks(self, *, only_stateful: bool = False) -> list[TaskId]:
        return [
            TaskId(name, partition)
            for name, count in self.task_counts.items()
            if not only_stateful or name in self.stateful
            for partition in range(count)
        ]


def member(process_id: str, active: Tasks | None = None, standby: Tasks | None = None) -> AssignmentMember:
    """A member with a present assignment; without one, a new member."""
    return AssignmentMember(None, None, active or {}, standby or {}, {}, process_id, {}, {})


def group(members: Mapping[str, AssignmentMember], standby_replicas: int = 0) -> GroupSpec:
    return GroupSpec(members, {"num.standby.replicas": str(standby_replicas)})


def after(
    members: Mapping[str, AssignmentMember], targets: Mapping[str, MemberAssignment]
) -> dict[str, AssignmentMember]:
    """The members with their targets as present assignment; one without a target is new."""
    return {
        member_id: spec._replace(
            active_tasks=targets[member_id].active_tasks, standby_tasks=targets[member_id].standby_tasks
        )
        if member_id in targets
        else spec
        for member_id, spec in members.items()
    }


def task_ids(tasks: Tasks) -> list[TaskId]:
    return [TaskId(name, partition) for name, partitions in tasks.items() for partition in sorted(partitions)]


def random_topology(chooser: random.Random) -> Topology:
    names = chooser.sample(["0", "1", "2", "10", "words", "täglich", "𝄞", "ﬀ"], chooser.randint(1, 4))
    counts = {name: chooser.choice([1, 2, 3, 5, 8, 13]) for name in names}
    return Topology(counts, frozenset(name for name in names if chooser.random() < 0.6))


def some_members(
    chooser: random.Random, present: Mapping[str, AssignmentMember], most: int = 8
) -> dict[str, AssignmentMember]:
    """Some of the present members and some new ones, in present processes and new ones."""
    members = {member_id: spec for member_id, spec in present.items() if chooser.random() < 0.8}
    processes = [spec.process_id for spec in members.values()]
    for _ in range(chooser.randint(0 if members else 1, most)):
        is_new = not processes or chooser.random() < 0.5
        processes.append(_uuid(chooser) if is_new else chooser.choice(processes))
        members[_uuid(chooser)] = member(processes[-1])
    return members


def _uuid(chooser: random.Random) -> str:
    return str(uuid.UUID(int=chooser.getrandbits(128), version=4))
