"""Streams groups for tests of their assignor: topologies, members, groups by chance."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping

from pykbroker.groups.assignors.streams import sticky
from pykbroker.groups.assignors.streams.spec import AssignmentMember, GroupSpec, SubtopologySpec, TaskId
from pykbroker.groups.streams.tasks import TaskMap, Tasks
from pykbroker.protocol.steps import finished


class Topology(dict[str, SubtopologySpec]):
    """Subtopologies by id, made of their numbers of tasks and the ids of the stateful ones."""

    def __init__(self, task_counts: Mapping[str, int], stateful: frozenset[str] = frozenset()) -> None:
        super().__init__((name, SubtopologySpec(count, name in stateful)) for name, count in task_counts.items())

    def tasks(self, *, only_stateful: bool = False) -> list[TaskId]:
        return [
            TaskId(name, partition)
            for name, subtopology in self.items()
            if not only_stateful or subtopology.is_stateful
            for partition in range(subtopology.task_count)
        ]


def assign(spec: GroupSpec, topology: Mapping[str, SubtopologySpec]) -> dict[str, Tasks]:
    return finished(sticky.assign(spec, topology))


def member(process_id: str, active: TaskMap | None = None, standby: TaskMap | None = None) -> AssignmentMember:
    """A member with a present assignment; without one, a new member."""
    return AssignmentMember(process_id, Tasks(active or {}, standby or {}))


def group(members: Mapping[str, AssignmentMember], standby_replicas: int = 0) -> GroupSpec:
    return GroupSpec(members, {"num.standby.replicas": str(standby_replicas)})


def after(members: Mapping[str, AssignmentMember], targets: Mapping[str, Tasks]) -> dict[str, AssignmentMember]:
    """The members with their targets as present assignment; one without a target is new."""
    return {
        member_id: spec._replace(tasks=targets[member_id]) if member_id in targets else spec
        for member_id, spec in members.items()
    }


def task_ids(tasks: TaskMap) -> list[TaskId]:
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
