"""Arguments of the assignor of tasks. Its result is the `Tasks` of each member."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.streams.tasks import Tasks
from pykbroker.named_tuple import NamedTuple


class TaskId(NamedTuple):
    """A task: one partition of the input topics of a subtopology."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


class AssignmentMember(NamedTuple):
    """A member as the assignor sees it.

    Attributes:
        process_id: of the process that the member is a thread of; members of one process share its disk.
        tasks: the member's present target assignment.
    """

    process_id: str
    tasks: Tasks


class GroupSpec(NamedTuple):
    """A group as the assignor sees it: members by member id, and settings such as "num.standby.replicas"."""

    members: Mapping[str, AssignmentMember]
    configs: Mapping[str, str]


class SubtopologySpec(NamedTuple):
    """A subtopology as the assignor sees it.

    Attributes:
        task_count: the most partitions that one of its source topics has.
        is_stateful: True if it has a changelog topic; other tasks need no standbys.
    """

    task_count: int
    is_stateful: bool


class TaskAssignorError(Exception):
    """An assignor could not compute an assignment."""
