"""Computation of a Streams group's target assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykbroker.groups.assignors.streams.spec import AssignmentMember, GroupSpec, SubtopologySpec, TaskAssignorError
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import assignor_order
from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.configured import ConfiguredTopology
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.records import target_record
from pykbroker.groups.streams.tasks import EMPTY_TASKS, Tasks
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps

ASSIGNOR = "sticky"

Assign = Callable[[GroupSpec, Mapping[str, SubtopologySpec]], Steps[Mapping[str, Tasks]]]
"""Target assignments by member id."""


def compute_target(
    group: StreamsGroup,
    epoch: int,
    joining: StreamsMember | None,
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    assign: Assign,
    now_ms: int,
) -> Steps[tuple[list[LogRecord], Tasks]]:
    """Records of the new target assignments that differ from the old ones, and the new one of a member.

    Nothing is assigned as long as the topology is not ready.

    Args:
        group: the group as its records say; it does not change between the steps.
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
    specs = {
        member_id: AssignmentMember(members[member_id].process_id, group.target_of(member_id)) for member_id in ordered
    }
    targets: Mapping[str, Tasks] = {}
    if configured.is_ready and configured.subtopologies is not None:
        topology = {
            subtopology_id: SubtopologySpec(subtopology.task_count, bool(subtopology.changelog_topics))
            for subtopology_id, subtopology in configured.subtopologies.items()
        }
        try:
            targets = yield from assign(GroupSpec(specs, configs), topology)
        except TaskAssignorError as error:
            message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR) from RuntimeError(message)
    new = {member_id: targets.get(member_id, EMPTY_TASKS) for member_id in specs}
    own = EMPTY_TASKS if joining is None else new[joining.member_id]
    return (yield from group.target_records(epoch, now_ms, new, target_record)), own
