"""ShareAcknowledge (key 79): acknowledges records that a member of a share group has acquired (KIP-932).

Versions 1 and 2. v2 renewal of acquisition locks (KIP-1222). Needs READ on the group and on the topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from pykbroker.protocol.messages.share_fetch import LeaderIdAndEpoch, NodeEndpoint
from pykbroker.protocol.steps import PIECE
from pykbroker.requests.share_requests import (
    Acknowledgements,
    check_member,
    member_of,
    name_leader,
    release_if_final,
)

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext


async def handle_share_acknowledge(
    context: BrokerContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Acknowledges records; the response comes when the share coordinator has stored it (P-187)."""
    check_member(context, request)
    shares = context.services.shares.get()
    member = member_of(request)
    shares.sessions.acknowledge(member, request.share_session_epoch)
    with Acknowledgements(context, shares, request) as acknowledgements:
        await acknowledgements.begin(request.topics)
        await acknowledgements.store()
        outcomes = await acknowledgements.outcomes()
    if len(outcomes) > PIECE:
        context.has_long_response = True
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.settings_of(member.group_id).record_lock_duration_ms
    )
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    async for topic_partition, outcome in EachInTurns(outcomes.items()):
        data = PartitionData(
            partition_index=topic_partition.partition, error_code=outcome.error, error_message=outcome.message
        )
        name_leader(context, response, data, topic_partition, LeaderIdAndEpoch, NodeEndpoint)
        topic = topics.get(topic_partition.topic_id)
        if topic is None:
            topic = topics[topic_partition.topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_partition.topic_id)
            response.responses.append(topic)
        topic.partitions.append(data)
    release_if_final(shares, request)
    return response
