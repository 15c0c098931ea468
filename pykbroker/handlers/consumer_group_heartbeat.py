"""ConsumerGroupHeartbeat (key 68): membership of consumer groups and their assignments (KIP-848).

Versions 0-1. v1 regular expressions (`subscribed_topic_regex`); the client makes its member id by itself. Needs READ on
the group and DESCRIBE on the topics that it names; topics that a regular expression matches are left out without it.
"""

from __future__ import annotations

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.requests.context import BrokerContext
from pykbroker.security.client_address import java_address


async def handle_consumer_group_heartbeat(
    context: BrokerContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Keeps a member in its group; the response, with its partitions, is sent when its state is stored."""
    if not context.services.groups.serves_consumer_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    context.require(READ, GROUP, request.group_id)
    if await context.refused_in_turns(DESCRIBE, TOPIC, request.subscribed_topic_names or ()):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response = await context.services.groups.consumer.heartbeat(
        request,
        context.api_version,
        context.client_id,
        java_address(context.connection.client_host),
        context.may_describe_topic,
    )
    context.has_long_response = response.assignment is not None and len(response.assignment.topic_partitions) > PIECE
    return response
