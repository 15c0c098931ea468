"""Properties of the sticky assignor (P-230) over random histories of groups; results become the present assignment."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.groups.assignors.streams.spec import AssignmentMember, TaskId
from pykbroker.groups.streams.tasks import Tasks
from tests.pykbroker.groups.assignors.streams.groups import (
    Topology,
    after,
    assign,
    group,
    member,
    random_topology,
    some_members,
    task_ids,
)

SEEDS = st.integers(0, 2**32)
STEPS = 4


def active(targets: Mapping[str, Tasks]) -> dict[str, set[TaskId]]:
    return {member_id: set(task_ids(target.active)) for member_id, target in targets.items()}


def processes_with(members: Mapping[str, AssignmentMember], targets: Mapping[str, Tasks]) -> dict[TaskId, list[str]]:
    """Process ids of each task's members, active and standby, one entry for each."""
    found = defaultdict(list)
    for member_id, target in targets.items():
        for task in [*task_ids(target.active), *task_ids(target.standby)]:
            found[task].append(members[member_id].process_id)
    return found


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_each_task_is_assigned_once_with_its_standbys_on_other_processes(seed: int) -> None:
    chooser = random.Random(seed)
    topology, standbys = random_topology(chooser), chooser.randint(0, 3)
    members: dict[str, AssignmentMember] = {}
    for _ in range(STEPS):
        members = some_members(chooser, members)
        targets = assign(group(members, standbys), topology)
        assert targets.keys() == members.keys()
        given_tasks = Counter(task for tasks in active(targets).values() for task in tasks)
        assert given_tasks == Counter(topology.tasks())
        process_count = len({spec.process_id for spec in members.values()})
        stateful = set(topology.tasks(only_stateful=True))
        for task, processes in processes_with(members, targets).items():
            assert len(set(processes)) == len(processes)
            assert len(processes) == (min(1 + standbys, process_count) if task in stateful else 1)
        members = after(members, targets)


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_active_tasks_of_a_new_group_are_balanced(seed: int) -> None:
    """Among the members of a process exactly, among processes by their loads."""
    chooser = random.Random(seed)
    topology = random_topology(chooser)
    members = some_members(chooser, {})
    targets = assign(group(members), topology)
    counts: dict[str, list[int]] = defaultdict(list)
    for member_id, tasks in active(targets).items():
        counts[members[member_id].process_id].append(len(tasks))
    assert all(max(of_process) - min(of_process) <= 1 for of_process in counts.values())
    loads = [sum(of_process) / len(of_process) for of_process in counts.values()]
    assert max(loads) - min(loads) <= 1


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_no_active_task_moves_in_an_unchanged_group(seed: int) -> None:
    chooser = random.Random(seed)
    topology = random_topology(chooser)
    members = some_members(chooser, {})
    first = assign(group(members), topology)
    assert assign(group(after(members, first)), topology) == first


@given(task_count=st.integers(1, 40), member_count=st.integers(2, 8), leaver=st.integers(0, 7))
@settings(max_examples=200, deadline=None)
def test_no_task_of_the_others_moves_when_a_member_leaves(task_count: int, member_count: int, leaver: int) -> None:
    topology = Topology({"0": task_count})
    members = {f"m{number}": member(f"p{number}") for number in range(member_count)}
    before = assign(group(members), topology)
    left = after(members, before)
    del left[f"m{leaver % member_count}"]
    now = active(assign(group(left), topology))
    assert all(active(before)[member_id] <= now[member_id] for member_id in left)


@given(task_count=st.integers(1, 40), member_count=st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_tasks_move_only_to_a_new_member(task_count: int, member_count: int) -> None:
    topology = Topology({"0": task_count})
    members = {f"m{number}": member(f"p{number}") for number in range(member_count)}
    before = assign(group(members), topology)
    now = active(assign(group({**after(members, before), "new": member("new")}), topology))
    assert all(now[member_id] <= active(before)[member_id] for member_id in members)
    counts = [len(tasks) for tasks in now.values()]
    assert max(counts) - min(counts) <= 1


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_task_with_standbys_moves_to_a_process_with_its_state(seed: int) -> None:
    """Unless that process has its share of tasks already."""
    chooser = random.Random(seed)
    topology = Topology({"0": chooser.randint(1, 20)}, frozenset("0"))
    members = {f"m{number}": member(f"p{number}") for number in range(chooser.randint(3, 8))}
    before = assign(group(members, 1), topology)
    present = after(members, before)
    gone = present.pop(chooser.choice(list(present)))
    now = assign(group(present, 1), topology)
    had = processes_with(members, before)
    share = topology["0"].task_count // len(present)
    for task in task_ids(gone.tasks.active):
        owner = next(member_id for member_id, tasks in active(now).items() if task in tasks)
        (heir,) = set(had[task]) - {gone.process_id}
        of_heir = next(tasks for member_id, tasks in active(now).items() if members[member_id].process_id == heir)
        assert members[owner].process_id == heir or len(of_heir) >= share
