"""StreamsGroupHeartbeat (key 88): membership of Streams groups, their topology and their tasks (KIP-1071).

Version 0. The client makes its member id by itself. Needs READ on the group and DESCRIBE on the topics of the topology,
and CREATE on internal topics that are missing, which the broker creates.
"""

from __future__ import annotations

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.security.client_address import java_address


async def handle_streams_group_heartbeat(
    context: BrokerContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Keeps a member in its group; the response, with its tasks, is sent when its state is stored."""
    if not context.services.groups.serves_streams_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    context.require(READ, GROUP, request.group_id)
    if request.topology is not None:
        from pykbroker.groups.streams.checks import check_names, named_topics

        names = named_topics(request.topology)
        check_names(names)
        if context.refused(DESCRIBE, TOPIC, names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    streams = context.services.groups.streams
    response, missing = await streams.heartbeat(
        request, context.client_id, java_address(context.connection.client_host)
    )
    if missing:
        from pykbroker.requests.streams_topics import create_missing

        create_missing(context, request.group_id, response, missing)
    return response
