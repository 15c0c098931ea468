"""OffsetDelete (key 47), version 0: delete committed offsets of topics that a group no longer consumes (KIP-496)."""

from __future__ import annotations

from pykbroker.controller.turns import EachInTurns
from pykbroker.groups.offset_delete import delete_offsets
from pykbroker.protocol.acl_codes import DELETE, GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykbroker.requests.context import BrokerContext


async def handle_offset_delete(context: BrokerContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes offsets of existing partitions; an error of the group is returned without topics (P-107)."""
    context.require(DELETE, GROUP, request.group_id)
    hidden = await context.refused_in_turns(READ, TOPIC, (topic.name for topic in request.topics))
    topics_by_name = context.services.metadata.image.topics_by_name
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted: list[OffsetDeleteRequestTopic] = []
    async for topic in EachInTurns(request.topics):
        found = None if topic.name in hidden else topics_by_name.get(topic.name)
        existing = {} if found is None else found.partitions
        unknown = [p for p in topic.partitions if p.partition_index not in existing]
        if unknown or found is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.name in hidden:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions = [
                OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=error) for p in unknown
            ]
            named = refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
            named.partitions += partitions
        known = [p for p in topic.partitions if p.partition_index in existing]
        if known:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=known))
    accepted_request = OffsetDeleteRequest(group_id=request.group_id, topics=accepted)
    response = await delete_offsets(context.services.groups, accepted_request)
    if response.error_code != ErrorCode.NONE or not refused:
        return response
    async for topic_response in EachInTurns(response.topics):
        if topic_response.name in refused:
            refused[topic_response.name].partitions += topic_response.partitions
        else:
            refused[topic_response.name] = topic_response
    response.topics = list(refused.values())
    return response
