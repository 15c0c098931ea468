"""Computation of a Streams group's target assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pykbroker.groups.assignors.streams.spec import (
    AssignmentMember,
    GroupSpec,
    MemberAssignment,
    TaskAssignorError,
    TopologyDescriber,
)
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import assignor_order
from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.configured import ConfiguredSubtopology, ConfiguredTopology
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.records import target_record
from pykbroker.groups.streams.tasks import EMPTY_TASKS, TaskMap, Tasks
from pykbroker.protocol.error_codes import ErrorCode

ASSIGNOR = "sticky"

Assign = Callable[[GroupSpec, TopologyDescriber], Mapping[str, MemberAssignment]]
"""Target assignments by member id."""


class _Described:
    """A configured topology as assignors ask for it."""

    def __init__(self, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
        self._subtopologies = subtopologies

    def subtopologies(self) -> Sequence[str]:
        return list(self._subtopologies)

    def max_num_input_partitions(self, subtopology_id: str) -> int:
        return self._subtopologies[subtopology_id].task_count

    def is_stateful(self, subtopology_id: str) -> bool:
        return bool(self._subtopologies[subtopology_id].changelog_topics)


def compute_target(
    group: StreamsGroup,
    epoch: int,
    joining: StreamsMember | None,
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    assign: Assign,
    now_ms: int,
) -> tuple[list[LogRecord], Tasks]:
    """Records of the new target assignments that differ from the old ones, and the new one of a member.

    Nothing is assigned as long as the topology is not ready.

    Args:
        group: the group as its records say.
        epoch: the group epoch for which the assignment is.
        joining: the member whose request this is, in the place of its old value; None if no request caused it.
        configured: the topology.
        configs: the assignment configs.
        assign: the assignor.
        now_ms: time, stored with the assignment.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR: the assignor failed.
    """
    members = dict(group.members)
    if joining is not None:
        members[joining.member_id] = joining
    # The assignor looks at the members in this order where it has a choice.
    ordered = assignor_order(group.members, None if joining is None else joining.member_id)
    specs = {member_id: _spec(members[member_id], group.target_of(member_id)) for member_id in ordered}
    targets: Mapping[str, MemberAssignment] = {}
    if configured.is_ready and configured.subtopologies is not None:
        try:
            targets = assign(GroupSpec(specs, configs), _Described(configured.subtopologies))
        except TaskAssignorError as error:
            message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR) from RuntimeError(message)
    new = {member_id: _tasks(targets.get(member_id)) for member_id in specs}
    own = EMPTY_TASKS if joining is None else new[joining.member_id]
    return group.target_records(epoch, now_ms, new, target_record), own


def _spec(member: StreamsMember, target: Tasks) -> AssignmentMember:
    return AssignmentMember(
        member.instance_id,
        member.rack_id,
        target.active,
        target.standby,
        target.warmup,
        member.process_id,
        member.client_tags,
        {},
    )


def _tasks(assignment: MemberAssignment | None) -> Tasks:
    if assignment is None:
        return EMPTY_TASKS
    roles = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    active, standby, warmup = map(_without_empty, roles)
    return Tasks(active, standby, warmup)


def _without_empty(tasks: TaskMap) -> TaskMap:
    return {key: frozenset(numbers) for key, numbers in tasks.items() if numbers}
