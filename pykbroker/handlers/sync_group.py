"""SyncGroup (key 14), versions 0 to 5.

v3 group.instance.id (KIP-345). v5 protocol type and name in request and answer; the request must have both. Needs
READ on the group.

Differs from Kafka: a sync that is superseded by a later one of the same member gets REBALANCE_IN_PROGRESS, and a sync
whose member leaves meanwhile gets UNKNOWN_MEMBER_ID; Kafka answers neither.
"""

from __future__ import annotations

from pykbroker.errors import KafkaError
from pykbroker.groups.member_requests import sync_group
from pykbroker.protocol.acl_codes import GROUP, READ
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.requests.context import BrokerContext

PROTOCOL_REQUIRED_VERSION = 5


async def handle_sync_group(context: BrokerContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Returns the member's assignment; waits until the group's leader has sent it; P-100, P-101."""
    is_incomplete = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= PROTOCOL_REQUIRED_VERSION and is_incomplete:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.require(READ, GROUP, request.group_id)
    return await sync_group(context.services.groups, request)
