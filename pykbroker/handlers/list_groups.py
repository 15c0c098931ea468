"""ListGroups (key 16), versions 0 to 5.

v4 filter by state, states in the answer (KIP-518). v5 filter by type, types in the answer (KIP-848).
Without DESCRIBE on the cluster, a client sees the groups that it may DESCRIBE.
"""

from __future__ import annotations

from pykbroker.groups.administration import list_groups
from pykbroker.java_order import trim
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP
from pykbroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykbroker.requests.context import BrokerContext


async def handle_list_groups(context: BrokerContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """Lists the groups that this broker coordinates; the filters ignore case, that of states also blanks (P-106)."""
    states = {trim(name.lower()) for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    response = await list_groups(context.services.groups, states, types)
    if not context.authorize_cluster(DESCRIBE):
        hidden = await context.refused_in_turns(DESCRIBE, GROUP, (group.group_id for group in response.groups))
        response.groups = [group for group in response.groups if group.group_id not in hidden]
    return response
