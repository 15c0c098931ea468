"""Arguments and results of an assignor of tasks.

Tasks of one kind are a mapping, subtopology id -> partitions, as in Kafka's records and responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pykbroker.named_tuple import NamedTuple


class TaskId(NamedTuple):
    """A task: one partition of the input topics of a subtopology."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


class AssignmentMember(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        active_tasks, standby_tasks, warmup_tasks: the member's present target assignment.
        process_id: of the process that the member is a thread of; members of one process share its disk.
        task_offsets: the end of the changelogs that the member has on its disk; may be empty.
    """

    instance_id: str | None
    rack_id: str | None
    active_tasks: Mapping[str, frozenset[int]]
    standby_tasks: Mapping[str, frozenset[int]]
    warmup_tasks: Mapping[str, frozenset[int]]
    process_id: str
    client_tags: Mapping[str, str]
    task_offsets: Mapping[TaskId, int]


class GroupSpec(NamedTuple):
    """A group as an assignor sees it: members by member id, and settings such as "num.standby.replicas"."""

    members: Mapping[str, AssignmentMember]
    configs: Mapping[str, str]


class TopologyDescriber(Protocol):
    """The topology whose tasks are assigned."""

    def subtopologies(self) -> Sequence[str]:
        """The ids of the subtopologies."""
        ...

    def max_num_input_partitions(self, subtopology_id: str) -> int:
        """The number of tasks of a subtopology: the most partitions that one of its source topics has."""
        ...

    def is_stateful(self, subtopology_id: str) -> bool:
        """True if the subtopology has a changelog topic; other tasks need no standbys."""
        ...


class MemberAssignment(NamedTuple):
    """The target assignment of a member."""

    active_tasks: Mapping[str, frozenset[int]]
    standby_tasks: Mapping[str, frozenset[int]]
    warmup_tasks: Mapping[str, frozenset[int]]


class TaskAssignorError(Exception):
    """An assignor could not compute an assignment."""
