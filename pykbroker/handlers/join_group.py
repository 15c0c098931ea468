"""JoinGroup (key 11), versions 0 to 9.

v1 rebalance timeout (before: the session timeout). v4 a new dynamic member is first given an id (KIP-394).
v5 group.instance.id (KIP-345). v7 protocol type in the answer, protocol name nullable. v8 reason (KIP-800), which goes
to the broker's log. v9 skip_assignment (KIP-814). Needs READ on the group.

Differs from Kafka: a join that is superseded by a later one of the same member gets REBALANCE_IN_PROGRESS; Kafka never
answers it.
"""

from __future__ import annotations

from pykbroker.groups.member_requests import join_group
from pykbroker.protocol.acl_codes import GROUP, READ
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker.requests.context import BrokerContext
from pykbroker.security.client_address import java_address

REBALANCE_TIMEOUT_VERSION = 1
PROTOCOL_NAME_NULLABLE_VERSION = 7


async def handle_join_group(context: BrokerContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Joins a member to a group, and waits for the other members; P-91 to P-99, P-103, P-105."""
    version = context.api_version
    if version < REBALANCE_TIMEOUT_VERSION:
        request.rebalance_timeout_ms = request.session_timeout_ms
    if context.authorize(READ, GROUP, request.group_id):
        host = java_address(context.connection.client_host)
        response = await join_group(
            context.services.groups, request, context.client_id, host, version, context.may_describe_topic
        )
    else:
        response = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if version < PROTOCOL_NAME_NULLABLE_VERSION:
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response
