"""DeleteGroups (key 42), versions 0 to 2.

The versions differ in encoding only. Needs DELETE on each group.
"""

from __future__ import annotations

from pykbroker.groups.administration import delete_groups
from pykbroker.protocol.acl_codes import DELETE, GROUP
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pykbroker.requests.context import BrokerContext


async def handle_delete_groups(context: BrokerContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Deletes Empty groups with their offsets; a group that is named twice is answered once (P-107).

    Groups that the client may not delete are the last of the response.
    """
    group_ids = dict.fromkeys(request.groups_names)
    refused = await context.refused_in_turns(DELETE, GROUP, group_ids)
    allowed = [group_id for group_id in group_ids if group_id not in refused]
    results = await delete_groups(context.services.groups, allowed)
    results.update((g, ErrorCode.GROUP_AUTHORIZATION_FAILED) for g in group_ids if g in refused)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in results.items()]
    )
