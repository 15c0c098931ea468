"""DescribeGroups (key 15), versions 0 to 6: classic groups.

v3 authorized operations (KIP-430). v4 group.instance.id. v6 a missing group is GROUP_ID_NOT_FOUND with a message
(KIP-1043); before it is shown as Dead.

There is no authorizer: whoever asks for authorized operations may do all of them, as in Kafka without one.
"""

from __future__ import annotations

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykbroker.request_context import RequestContext

GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Bits of AclOperation: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""


async def handle_describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """States, members and assignments; P-106."""
    groups = [context.services.groups.describe_group(group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)
