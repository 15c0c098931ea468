"""LeaveGroup: members that leave by themselves or are removed by an administrator (P-104)."""

from __future__ import annotations

from pykbroker.groups.classic.group import COMPLETING, PREPARING, STABLE, Group
from pykbroker.groups.result import GroupResult
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.leave_group import MemberIdentity, MemberResponse


def leave(group: Group, identities: list[MemberIdentity], now_ms: int) -> tuple[list[MemberResponse], GroupResult]:
    """Removes members one by one and then rebalances once.

    An identity with an instance id and an empty member id removes the static member, whatever its member id.
    """
    result = GroupResult()
    responses = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_remove_member(group, identity, result),
        )
        for identity in identities
    ]
    if all(response.error_code for response in responses):
        return responses, result
    if group.state in (STABLE, COMPLETING):
        reasons = ", ".join(f"{i.member_id or i.group_instance_id}: {i.reason or 'not provided'}" for i in identities)
        group.rebalance_or_complete_join(f"members left; client reasons: {reasons}", now_ms, result)
    elif group.state is PREPARING:
        group.maybe_complete_join(now_ms, result)
    return responses, result


def _remove_member(group: Group, identity: MemberIdentity, result: GroupResult) -> ErrorCode:
    member_id = identity.member_id
    if member_id == "":
        owner_id = group.members.static_ids.get(identity.group_instance_id or "")
        if identity.group_instance_id is None or owner_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = owner_id
    elif member_id in group.members.pending_joins:
        group.members.remove(member_id)
        return ErrorCode.NONE
    else:
        error = group.validate_member(member_id, identity.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    group.dismiss(member_id, ErrorCode.UNKNOWN_MEMBER_ID, result)
    return ErrorCode.NONE
