"""LeaveGroup (key 13), versions 0 to 5.

v0-2 one member, whose error is the response's. v3 several, by member id or group.instance.id, each with its error
(KIP-345). v5 reason (KIP-800), which goes to the broker's log. Needs READ on the group.
"""

from __future__ import annotations

from pykbroker.groups.member_requests import leave_group
from pykbroker.protocol.acl_codes import GROUP, READ
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pykbroker.requests.context import BrokerContext

SEVERAL_MEMBERS_VERSION = 3


async def handle_leave_group(context: BrokerContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Removes members from a group; P-104."""
    context.require(READ, GROUP, request.group_id)
    groups = context.services.groups
    if context.api_version >= SEVERAL_MEMBERS_VERSION:
        return await leave_group(groups, request)
    members = [MemberIdentity(member_id=request.member_id)]
    response = await leave_group(groups, LeaveGroupRequest(group_id=request.group_id, members=members))
    return LeaveGroupResponse(error_code=response.members[0].error_code)
