"""A process with the tasks that its members have been given so far."""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.groups.assignors.streams.spec import TaskId
from pykbroker.java_order import PriorityQueue, hash_order


class Process:
    """A process of an application; its load is the number of its tasks per member.

    Attributes:
        task_counts: the number of tasks of each member.
    """

    def __init__(self) -> None:
        self.task_counts: dict[str, int] = {}
        self._tasks: set[TaskId] = set()
        self._task_count = 0
        self._active: dict[str, set[TaskId]] = {}
        self._standby: dict[str, set[TaskId]] = {}
        # None after a task was given without the queue, whose order is wrong then.
        self._members_by_load: PriorityQueue[_MemberLoad] | None = None

    @property
    def load(self) -> float:
        return self._task_count / len(self.task_counts)

    def add_member(self, member_id: str) -> None:
        self.task_counts[member_id] = 0

    def has_task(self, task: TaskId) -> bool:
        """True if a member has the task, active or as a standby."""
        return task in self._tasks

    def add_task(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Gives a member a task; returns the number of tasks that it has now."""
        self._members_by_load = None
        return self._add(member_id, task, is_active)

    def add_task_to_least_loaded_member(self, task: TaskId, *, is_active: bool) -> int:
        """As add_task, with the member that has the fewest tasks."""
        if len(self.task_counts) == 1:
            return self._add(next(iter(self.task_counts)), task, is_active)
        if self._members_by_load is None:
            loads = (_MemberLoad(member_id, self.task_counts[member_id]) for member_id in hash_order(self.task_counts))
            self._members_by_load = PriorityQueue(loads, _MemberLoad.weight)
        member = self._members_by_load.poll()
        assert member is not None, "a process has a member"
        member.task_count = self._add(member.member_id, task, is_active)
        self._members_by_load.add(member)
        return member.task_count

    def assigned(self, *, is_active: bool) -> Iterator[tuple[str, set[TaskId]]]:
        """Members with their active tasks or their standby tasks; none without tasks."""
        yield from (self._active if is_active else self._standby).items()

    def _add(self, member_id: str, task: TaskId, is_active: bool) -> int:
        self._tasks.add(task)
        self._task_count += 1
        (self._active if is_active else self._standby).setdefault(member_id, set()).add(task)
        self.task_counts[member_id] += 1
        return self.task_counts[member_id]


class _MemberLoad:
    """A member in the queue of its process, with the tasks by which the queue has ordered it."""

    def __init__(self, member_id: str, task_count: int) -> None:
        self.member_id = member_id
        self.task_count = task_count

    def weight(self) -> float:
        return self.task_count
