"""SyncGroup: the leader sends the assignments, every other member waits for its own (P-100)."""

from __future__ import annotations

from pykbroker.groups.classic.group import COMPLETING, PREPARING, STABLE, Group
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.result import AssignmentStored, GroupResult
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(group: Group, request: SyncGroupRequest, waiter: Waiter) -> GroupResult:
    """Answers a sync in this result or parks it; the leader's sync gives a record with the assignments."""
    result = GroupResult()
    error = _check_sync(group, request)
    if error is not ErrorCode.NONE:
        result.reply(waiter, SyncGroupResponse(error_code=error))
        return result
    member = group.members.by_id[request.member_id]
    group.members.pending_syncs.discard(member.member_id)
    group.end_sync_wait()
    if group.state is STABLE:
        result.reply(waiter, _assignment_response(group, member.assignment))
        return result
    group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), result)
    member.sync_waiter = waiter
    if member.member_id == group.members.leader_id:
        given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        assignments = given | {m.member_id: b"" for m in group.members if m.member_id not in given}
        result.records.append(group.metadata_record(assignments))
        result.size_min = group.size_of_metadata(assignments)
        result.stored = AssignmentStored(group.group_id, group.generation_id, assignments)
        result.details.append(f"group {group.group_id}: assignment received from leader {member.member_id}")
    return result


def _check_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state in (COMPLETING, STABLE), group.state
    return ErrorCode.NONE


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


def assignment_stored(group: Group, event: AssignmentStored, error: ErrorCode, now_ms: int) -> GroupResult:
    """Answers parked syncs with their assignments, which are stored, and makes the group Stable.

    With an `error` the group rebalances again.
    """
    result = GroupResult()
    if group.state is not COMPLETING or group.generation_id != event.generation_id:
        return result
    if error is not ErrorCode.NONE:
        group.reset_assignments(error, now_ms, result)
        group.rebalance_or_complete_join(f"{error.name} when storing the assignment", now_ms, result)
        return result
    for member in group.members:
        member.assignment = event.assignments.get(member.member_id, b"")
        if group.answer_sync(member, _assignment_response(group, member.assignment), result):
            # Its session may have expired without effect while the sync was parked.
            group.schedule_session(member, now_ms)
    group.transition(STABLE, now_ms)
    return result


def _assignment_response(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
