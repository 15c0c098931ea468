"""Tasks of Streams groups. A task is a subtopology id and a number; each role has its own set of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from pykbroker.named_tuple import NamedTuple

TaskMap = Mapping[str, frozenset[int]]
"""Subtopology id -> numbers of tasks; subtopologies without tasks are left out of assignments."""

ActiveTasks = Mapping[str, Mapping[int, int]]
"""Subtopology id -> number of a task -> epoch at which the member got it."""

NO_TASKS: TaskMap = {}
NO_ACTIVE_TASKS: ActiveTasks = {}


class TaskIds(Protocol):
    """A list of tasks of one subtopology in a message."""

    subtopology_id: str
    partitions: list[int]


class Tasks(NamedTuple):
    """Active, standby and warm-up tasks, of a target assignment or as a member reports them."""

    active: TaskMap = NO_TASKS
    standby: TaskMap = NO_TASKS
    warmup: TaskMap = NO_TASKS


class MemberTasks(NamedTuple):
    """Tasks that a member has, or has to give up; the active ones with the epochs of their assignment."""

    active: ActiveTasks = NO_ACTIVE_TASKS
    standby: TaskMap = NO_TASKS
    warmup: TaskMap = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True if there are no tasks of any role."""
        return not (self.active or self.standby or self.warmup)

    def merged(self, other: MemberTasks) -> MemberTasks:
        """These tasks and others."""
        active = {subtopology_id: dict(epochs) for subtopology_id, epochs in self.active.items()}
        for subtopology_id, epochs in other.active.items():
            active.setdefault(subtopology_id, {}).update(epochs)
        return MemberTasks(active, _merged(self.standby, other.standby), _merged(self.warmup, other.warmup))

    def has_any_of(self, owned: Tasks) -> bool:
        """True if one of these tasks is among those that a member reports in the same role."""
        return (
            any(not owned.active.get(key, frozenset()).isdisjoint(epochs) for key, epochs in self.active.items())
            or _have_common_tasks(self.standby, owned.standby)
            or _have_common_tasks(self.warmup, owned.warmup)
        )


EMPTY_TASKS = Tasks()
NO_MEMBER_TASKS = MemberTasks()


def task_map(listed: Iterable[TaskIds]) -> dict[str, frozenset[int]]:
    """Tasks as a message lists them."""
    return {ids.subtopology_id: frozenset(ids.partitions) for ids in listed}


def _merged(first: TaskMap, second: TaskMap) -> TaskMap:
    merged = dict(first)
    for subtopology_id, numbers in second.items():
        merged[subtopology_id] = merged.get(subtopology_id, frozenset()) | numbers
    return merged


def _have_common_tasks(first: TaskMap, second: TaskMap) -> bool:
    return any(not numbers.isdisjoint(second.get(key, frozenset())) for key, numbers in first.items())
