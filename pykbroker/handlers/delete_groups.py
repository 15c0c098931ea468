"""DeleteGroups (key 42), versions 0 to 2.

The versions differ in encoding only. Needs DELETE on each group.
"""

from __future__ import annotations

from pykbroker.protocol.acl_codes import DELETE, GROUP
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pykbroker.request_context import RequestContext


async def handle_delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Deletes Empty groups with their offsets; a group that is named twice is answered once (P-107)."""
    refused = context.refused(DELETE, GROUP, request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=group_id,
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
                if group_id in refused
                else context.services.groups.delete_group(group_id),
            )
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
