"""JoinGroup: admits a client to a group at once, after a rebalance, or not at all (P-91 to P-99, P-103, P-105)."""

from __future__ import annotations

from pykbroker.groups.classic.group import COMPLETING, DEAD, PREPARING, STABLE, Group
from pykbroker.groups.classic.members import Member, Protocols, Waiter
from pykbroker.groups.result import GroupResult, Requester, StaticMemberStored
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member whose first join is parked is removed after this, whatever its timeouts are (P-95); not configurable."""

KNOWN_MEMBER_ID_VERSION = 4
"""From this version on a new dynamic member first gets an id and joins again with it (KIP-394)."""

SKIP_ASSIGNMENT_VERSION = 9
"""From this version on the response can make a member the leader and have it skip the assignment (KIP-814)."""


def refused_join(waiter: Waiter, error: ErrorCode, member_id: str = "") -> GroupResult:
    """The result of a JoinGroup request that gets an error and changes nothing."""
    return GroupResult(replies=[(waiter, JoinGroupResponse(error_code=error, member_id=member_id))])


class Join:
    """One JoinGroup request being handled: the request, its sender, its waiter, and the result so far."""

    __slots__ = ("group", "now_ms", "protocols", "request", "requester", "result", "waiter")

    def __init__(
        self, group: Group, request: JoinGroupRequest, requester: Requester, waiter: Waiter, now_ms: int
    ) -> None:
        self.group = group
        self.request = request
        self.requester = requester
        self.waiter = waiter
        self.now_ms = now_ms
        self.result = GroupResult()
        self.protocols: Protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)

    def refuse(self, error: ErrorCode, member_id: str) -> None:
        """Answers with an error."""
        self.result.reply(self.waiter, JoinGroupResponse(error_code=error, member_id=member_id))

    @property
    def reason(self) -> str:
        """Reason of the JoinGroup request (KIP-800); "not provided" when the client gives none."""
        return self.request.reason or "not provided"


def join(group: Group, request: JoinGroupRequest, requester: Requester, waiter: Waiter, now_ms: int) -> GroupResult:
    """Handles JoinGroup.

    The request's group id and session timeout have been checked; in version 0 its rebalance timeout has been set to
    the session timeout. `waiter` is answered in this result or in a later one.
    """
    joining = Join(group, request, requester, waiter, now_ms)
    member_id = request.member_id
    if not _has_room_for(group, member_id):
        if member_id in group.members:
            group.dismiss(member_id, ErrorCode.GROUP_MAX_SIZE_REACHED, joining.result)
        group.members.remove(member_id)
        joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif group.state is DEAD:
        joining.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not group.supports(request.protocol_type, [name for name, _ in joining.protocols]):
        joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id == "":
        _join_new(joining)
    elif member_id in group.members.pending_joins:
        _join_pending(joining)
    else:
        _join_existing(joining)
    return joining.result


def _has_room_for(group: Group, member_id: str) -> bool:
    """True if the group's maximum size admits the member.

    In the join phase only members that have joined count, so that a lowered limit removes those that come last (P-105).
    """
    limit = group.settings.max_size
    if group.state is PREPARING:
        member = group.members.by_id.get(member_id)
        return (member is not None and member.join_waiter is not None) or group.members.awaiting_join_count < limit
    if group.state in (COMPLETING, STABLE):
        return member_id in group.members or len(group.members) < limit
    return True


def _join_new(joining: Join) -> None:
    group, request = joining.group, joining.request
    instance_id = request.group_instance_id
    new_member_id = (
        f"{joining.requester.client_id if instance_id is None else instance_id}-{joining.requester.fresh_id}"
    )
    if instance_id is not None:
        old_member_id = group.members.static_ids.get(instance_id)
        if old_member_id is None:
            _add_member(joining, new_member_id)
        else:
            _replace_static(joining, instance_id, old_member_id, new_member_id)
    elif joining.requester.api_version >= KNOWN_MEMBER_ID_VERSION:
        group.schedule_pending_join(new_member_id, joining.now_ms, request.session_timeout_ms)
        joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
    else:
        _add_member(joining, new_member_id)


def _join_pending(joining: Join) -> None:
    if joining.request.group_instance_id is not None:
        # Pending ids are given to dynamic members only; Kafka takes this for a bug of the client, too.
        joining.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        return
    _add_member(joining, joining.request.member_id)


def _join_existing(joining: Join) -> None:
    group, request = joining.group, joining.request
    member_id = request.member_id
    error = group.validate_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        joining.refuse(error, member_id)
        return
    member = group.members.by_id[member_id]
    is_unchanged = member.protocols == joining.protocols
    if group.state is COMPLETING and is_unchanged:
        # The first response may have been lost.
        joining.result.reply(joining.waiter, group.join_response(member_id))
    elif group.state is STABLE and is_unchanged and member_id != group.members.leader_id:
        joining.result.reply(joining.waiter, group.join_response(member_id))
    else:
        # The leader of a stable group joins for a new assignment, as topics have changed; its metadata stay the same.
        _update_member(joining, member)
        reason = f"member {member_id} joins again in {group.state.value}; client reason: {joining.reason}"
        group.rebalance_or_complete_join(reason, joining.now_ms, joining.result)


def _update_member(joining: Join, member: Member) -> None:
    request = joining.request
    joining.group.members.update(member, joining.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    joining.group.park_join(member, joining.waiter, joining.result)


def _add_member(joining: Join, member_id: str) -> None:
    group, request = joining.group, joining.request
    member = Member(
        member_id,
        request.group_instance_id,
        client_id=joining.requester.client_id,
        client_host=joining.requester.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=joining.protocols,
    )
    member.is_new = True
    group.add_member(member, joining.waiter)
    # The session timeout is of no use yet: the member cannot heartbeat, and its parked request does not show if the
    # client is still there. Without this limit clients that time out and retry would fill the group.
    group.schedule_session(member, joining.now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
    reason = f"adding new member {member_id}; client reason: {joining.reason}"
    group.rebalance_or_complete_join(reason, joining.now_ms, joining.result)


def _replace_static(joining: Join, instance_id: str, old_member_id: str, new_member_id: str) -> None:
    """Gives a static member that joins without a member id a new one, in place of its old one (P-103)."""
    group, result, now_ms = joining.group, joining.result, joining.now_ms
    old = group.members.by_id[old_member_id]
    leader_before = group.members.leader_id
    group.answer_with_error(old, ErrorCode.FENCED_INSTANCE_ID, result)
    member = group.members.replace_static(instance_id, old_member_id, new_member_id)
    group.schedule_session(member, now_ms)
    _update_member(joining, member)
    reason = f"static member {instance_id} came back as {new_member_id}; client reason: {joining.reason}"
    if group.state is STABLE and group.members.select_protocol() == group.protocol_name:
        result.records.append(group.metadata_record({m.member_id: m.assignment for m in group.members}))
        result.stored = StaticMemberStored(
            group.group_id,
            instance_id,
            old_member_id,
            new_member_id,
            old.protocols,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            leader_before,
            joining.requester.api_version >= SKIP_ASSIGNMENT_VERSION,
            joining.waiter,
        )
    elif group.state is STABLE:
        group.rebalance_or_complete_join(reason, now_ms, result)
    elif group.state is COMPLETING:
        # The leader may be computing an assignment for the old id, in which the new one would get nothing.
        group.prepare_rebalance(reason, now_ms, result)
    else:
        group.maybe_complete_join(now_ms, result)


def static_member_stored(group: Group, event: StaticMemberStored, error: ErrorCode, now_ms: int) -> GroupResult:
    """Answers the join of a static member once its new id is stored; it keeps its assignment.

    With an `error` the old member id is restored.
    """
    result = GroupResult()
    member = group.members.by_id.get(event.new_member_id)
    if member is None or member.join_waiter is not event.waiter:
        return result
    if error is not ErrorCode.NONE:
        group.members.update(member, event.old_protocols, event.old_rebalance_timeout_ms, event.old_session_timeout_ms)
        old = group.members.replace_static(event.group_instance_id, event.new_member_id, event.old_member_id)
        group.schedule_session(old, now_ms)
        result.reply(event.waiter, _without_members(group, event, "", error))
    elif event.skip_assignment_known:
        response = group.join_response(event.new_member_id)
        response.skip_assignment = event.new_member_id == group.members.leader_id
        group.answer_join(member, response, result)
    else:
        # An old client would assign again if it were the leader. The response has its former id as the leader's, so
        # that it syncs as a follower and gets the assignment that exists.
        response = _without_members(group, event, event.new_member_id, ErrorCode.NONE)
        group.answer_join(member, response, result)
    return result


def _without_members(group: Group, event: StaticMemberStored, member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=event.leader_before or "",
        member_id=member_id,
    )
