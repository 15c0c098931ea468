"""Heartbeat (key 12), versions 0 to 4.

v3 group.instance.id (KIP-345). Needs READ on the group.
"""

from __future__ import annotations

from pykbroker.groups.member_requests import heartbeat
from pykbroker.protocol.acl_codes import GROUP, READ
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.requests.context import BrokerContext


async def handle_heartbeat(context: BrokerContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extends a member's session; an error code reports a rebalance to it; P-90, P-101, P-102, P-392."""
    context.require(READ, GROUP, request.group_id)
    return HeartbeatResponse(error_code=await heartbeat(context.services.groups, request))
