"""The sticky assignor of tasks: balance first, then as few moves of tasks as that allows.

Active tasks go, in this order, to the member that had the task, to one that had it as a standby, to the least loaded
process; a member gets no more than its share in the first two steps. Standby tasks of stateful subtopologies then go to
the member that had the task active, to one that had it as a standby, to the least loaded process that does not have
the task. A task has fewer standbys than "num.standby.replicas" where there are too few processes. No task is a warm-up
task: Kafka 4.3.1 assigns none.

The result is Kafka's, choices among equals too. They follow the order of members and processes in its hash tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from pykbroker.groups.assignors.streams.process import Process
from pykbroker.groups.assignors.streams.spec import GroupSpec, SubtopologySpec, TaskAssignorError, TaskId
from pykbroker.groups.streams.tasks import TaskMap, Tasks
from pykbroker.java_order import PriorityQueue, hash_order, string_order, table_size_for
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.steps import PIECE, Steps

STANDBY_REPLICAS = "num.standby.replicas"

_log = logging.getLogger(__name__)


def assign(group: GroupSpec, topology: Mapping[str, SubtopologySpec]) -> Steps[dict[str, Tasks]]:
    """Target assignments by member id, one for every member; `topology` has the subtopologies by id.

    The arguments must not change between the steps.

    Raises:
        TaskAssignorError: there are tasks and no members, or the number of standby replicas is missing or no number.
    """
    assignment = _Assignment(group)
    yield from assignment.read(group, topology)
    yield from assignment.assign_active()
    if assignment.standby_replicas > 0:
        yield from assignment.assign_standby()
    return (yield from assignment.targets(group))


class _Member(NamedTuple):
    process: Process
    member_id: str

    @property
    def task_count(self) -> int:
        return self.process.task_counts[self.member_id]


class _Quota:
    """The number of tasks that a member may have at most, for one kind of tasks; it shrinks as members reach it."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._task_count = task_count
        self._member_count = member_count
        self.per_member = 0
        self._compute()

    def given(self, task_count: int) -> None:
        """Notes how many tasks a member has now; once that is its share, the other members divide the rest."""
        if task_count == self.per_member:
            self._member_count -= 1
            self._task_count -= task_count
            self._compute()

    def _compute(self) -> None:
        # The rest is below 0 if members got more than their share; as in Java it is rounded up, towards 0.
        self.per_member = -(-self._task_count // self._member_count) if self._member_count else 0


class _Assignment:
    """The state of one computation."""

    def __init__(self, group: GroupSpec) -> None:
        self.standby_replicas = _standby_replicas(group.configs)
        self._rank: dict[str, int] = {}
        """Places of the subtopologies in the order of their ids."""
        self._active_tasks: list[TaskId] = []
        """Tasks in the order of `_rank`, each subtopology's by partition."""
        self._stateful_tasks: list[TaskId] = []
        self._processes: dict[str, Process] = {}
        self._previous_active: dict[TaskId, _Member] = {}
        self._previous_standby: dict[TaskId, list[_Member]] = {}

    def read(self, group: GroupSpec, topology: Mapping[str, SubtopologySpec]) -> Steps[None]:
        """Takes the tasks, the members and what these have."""
        for rank, subtopology_id in enumerate(sorted(topology, key=string_order)):
            subtopology = topology[subtopology_id]
            self._rank[subtopology_id] = rank
            tasks = [TaskId(subtopology_id, partition) for partition in range(subtopology.task_count)]
            self._active_tasks += tasks
            if subtopology.is_stateful:
                self._stateful_tasks += tasks
            if not rank % PIECE:
                yield
        active_count = len(self._active_tasks)
        total_count = active_count + len(self._stateful_tasks) * self.standby_replicas
        self._active_quota = _Quota(active_count, len(group.members))
        self._total_quota = _Quota(total_count, len(group.members))
        for member_id in hash_order(group.members):
            yield
            self._add_member(group, member_id)
        table_size = table_size_for(len(group.members))
        self._ordered_processes = [self._processes[name] for name in hash_order(self._processes, table_size)]

    def _add_member(self, group: GroupSpec, member_id: str) -> None:
        spec = group.members[member_id]
        process = self._processes.setdefault(spec.process_id, Process())
        process.add_member(member_id)
        member = _Member(process, member_id)
        for task in _tasks_of(spec.tasks.active):
            self._previous_active[task] = member
        for task in _tasks_of(spec.tasks.standby):
            self._previous_standby.setdefault(task, []).append(member)

    def assign_active(self) -> Steps[None]:
        """Gives every active task to a member."""
        # By partition first: copartitioned tasks of the same number are with one member, and should stay so.
        tasks = sorted(self._active_tasks, key=_partition)
        for previous in (self._previous_active.get, self._previous_standby_member):
            remaining = []
            for count, task in enumerate(tasks):
                if not count % PIECE:
                    yield
                if not self._give_active(task, previous(task)):
                    remaining.append(task)
            tasks = remaining
        tasks.sort(key=self._rank_of)
        processes = PriorityQueue(self._ordered_processes, _load)
        for count, task in enumerate(tasks):
            if not count % PIECE:
                yield
            process = processes.poll()
            if process is None:
                raise TaskAssignorError(f"No process available to assign active task {task}.")
            task_count = process.add_task_to_least_loaded_member(task, is_active=True)
            self._active_quota.given(task_count)
            self._total_quota.given(task_count)
            processes.add(process)

    def _give_active(self, task: TaskId, member: _Member | None) -> bool:
        """Gives an active task to a member; False if it has no room, or it is None."""
        if member is None or member.task_count >= self._active_quota.per_member:
            return False
        task_count = member.process.add_task(member.member_id, task, is_active=True)
        self._active_quota.given(task_count)
        self._total_quota.given(task_count)
        return True

    def assign_standby(self) -> Steps[None]:
        """Gives standbys of every stateful task to members of processes that do not have the task."""
        remaining: list[tuple[TaskId, int]] = []
        tasks = sorted(self._stateful_tasks, key=_partition)
        tasks.reverse()
        for count, task in enumerate(tasks):
            if not count % PIECE:
                yield
            if missing := self._give_previous_standbys(task):
                remaining.append((task, missing))
        remaining.sort(key=lambda item: self._rank_of(item[0]), reverse=True)
        processes = PriorityQueue(self._ordered_processes, _load)
        for count, (task, missing) in enumerate(remaining):
            if not count % PIECE:
                yield
            for given in range(missing):
                if not self._give_standby_to_least_loaded(processes, task):
                    _log.warning(
                        "Unable to assign %d of %d standby tasks for task [%s]: there are too few processes",
                        self.standby_replicas - given,
                        self.standby_replicas,
                        task,
                    )
                    break

    def _give_previous_standbys(self, task: TaskId) -> int:
        """Gives the task to members that have its state; returns the number of standbys that are missing then."""
        for given in range(self.standby_replicas):
            if not (
                self._give_standby(task, self._previous_active.get(task))
                or self._give_standby(task, self._previous_standby_member(task, is_standby=True))
            ):
                return self.standby_replicas - given
        return 0

    def _give_standby(self, task: TaskId, member: _Member | None) -> bool:
        """Gives a standby task to a member; False if it has no room, its process has the task, or it is None."""
        if member is None or member.process.has_task(task) or member.task_count >= self._total_quota.per_member:
            return False
        self._total_quota.given(member.process.add_task(member.member_id, task, is_active=False))
        return True

    def _give_standby_to_least_loaded(self, processes: PriorityQueue[Process], task: TaskId) -> bool:
        """Gives a standby task to the least loaded process without the task; False if every process has it.

        The processes that were looked at return to the queue in reverse order.
        """
        passed: list[Process] = []
        is_given = False
        while not is_given and (process := processes.poll()) is not None:
            passed.append(process)
            if not process.has_task(task):
                self._total_quota.given(process.add_task_to_least_loaded_member(task, is_active=False))
                is_given = True
        for process in reversed(passed):
            processes.add(process)
        return is_given

    def _previous_standby_member(self, task: TaskId, *, is_standby: bool = False) -> _Member | None:
        """The least loaded member that had the task as a standby; for a standby only if its process lacks the task."""
        members = self._previous_standby.get(task)
        if members is None:
            return None
        candidate = first = members[0]
        process_load, task_count = first.process.load, first.task_count
        for member in members[1:]:
            is_possible = not is_standby or not member.process.has_task(task)
            # Both loads must be smaller: the process's and the member's.
            if is_possible and member.process.load < process_load and member.task_count < task_count:
                candidate, process_load, task_count = member, member.process.load, member.task_count
        # Kafka looks at the first member's process here, not at the candidate's, so in some cases it finds no member.
        if is_standby and first.process.has_task(task):
            return None
        return candidate

    def _rank_of(self, task: TaskId) -> int:
        return self._rank[task.subtopology_id]

    def targets(self, group: GroupSpec) -> Steps[dict[str, Tasks]]:
        """Assignments by member id, in the order of the group's members."""
        active: dict[str, set[TaskId]] = {}
        standby: dict[str, set[TaskId]] = {}
        for process in self._processes.values():
            active.update(process.assigned(is_active=True))
            standby.update(process.assigned(is_active=False))
        found = {}
        for member_id in group.members:
            yield
            found[member_id] = Tasks(
                _by_subtopology_id(active.get(member_id, ())), _by_subtopology_id(standby.get(member_id, ()))
            )
        return found


def _standby_replicas(configs: Mapping[str, str]) -> int:
    if not configs:
        return 0
    try:
        return int(configs[STANDBY_REPLICAS])
    except (KeyError, ValueError) as trouble:
        raise TaskAssignorError(f"{STANDBY_REPLICAS} is no number: {configs.get(STANDBY_REPLICAS)}") from trouble


def _tasks_of(tasks: TaskMap) -> Iterator[TaskId]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology_id, partition)


def _by_subtopology_id(tasks: Iterable[TaskId]) -> TaskMap:
    found: dict[str, set[int]] = {}
    for subtopology_id, partition in tasks:
        found.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in found.items()}


_partition = itemgetter(1)


def _load(process: Process) -> float:
    return process.load
