"""DescribeGroups (key 15), versions 0 to 6: classic groups.

v3 authorized operations (KIP-430). v4 group.instance.id. v6 a missing group is GROUP_ID_NOT_FOUND with a message
(KIP-1043); before v6 it has the state Dead. Needs DESCRIBE on each group.
"""

from __future__ import annotations

from pykbroker.controller.turns import Turn
from pykbroker.groups.administration import describe_group, in_described_order
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pykbroker.requests.context import BrokerContext


async def handle_describe_groups(context: BrokerContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describes the state, members and assignments of each group; those that the client may not see first (P-106)."""
    refused = await context.refused_in_turns(DESCRIBE, GROUP, request.groups)
    groups = [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for group_id in request.groups
        if group_id in refused
    ]
    turn = Turn()
    allowed = [group_id for group_id in request.groups if group_id not in refused]
    for group_id in await in_described_order(context.services.groups, allowed):
        group = describe_group(context.services.groups, group_id, context.api_version)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(GROUP, group.group_id)
        groups.append(group)
        await turn.end_if_over()
    return DescribeGroupsResponse(groups=groups)
