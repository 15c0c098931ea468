"""ShareGroupHeartbeat (key 76): membership of share groups and their assignments (KIP-932).

Version 1. Needs READ on the group and DESCRIBE on the topics that it names.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker.protocol.steps import PIECE
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_requests import MEMBER_ID_LENGTH_MAX
from pykbroker.security.client_address import java_address


async def handle_share_group_heartbeat(
    context: BrokerContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Keeps a member in its group; the response, with its partitions, is sent when its state is stored."""
    if not share_groups_enabled(context.services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    context.require(READ, GROUP, request.group_id)
    if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if await context.refused_in_turns(DESCRIBE, TOPIC, request.subscribed_topic_names or ()):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    client = context.client_id, java_address(context.connection.client_host)
    response = await context.services.groups.share.heartbeat(request, *client)
    context.has_long_response = response.assignment is not None and len(response.assignment.topic_partitions) > PIECE
    return response
