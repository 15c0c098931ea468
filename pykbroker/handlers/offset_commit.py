"""OffsetCommit (key 8), versions 2 to 10.

v2-4 retention_time_ms. v6 leader epoch (KIP-320). v7 group.instance.id (KIP-345). v9 a missing group is
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION. v10 topics by id (KIP-848).
"""

from __future__ import annotations

from pykbroker.protocol.acl_codes import GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.requests.context import BrokerContext

TOPIC_IDS_VERSION = 10


async def handle_offset_commit(context: BrokerContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commits offsets of existing partitions (P-111); the others get an error, P-108 to P-110, P-115."""
    if not context.authorize(READ, GROUP, request.group_id):
        return OffsetCommitResponse(
            topics=[_failed(topic, ErrorCode.GROUP_AUTHORIZATION_FAILED) for topic in request.topics]
        )
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        _sort_out(context, topic, accepted, refused)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    response = await context.services.groups.commit_offsets(request, context.api_version)
    response.topics = _merge(refused, response.topics)
    return response


def _sort_out(
    context: BrokerContext,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> None:
    """Splits a topic into partitions that exist and partitions that do not, and fills in its name or id."""
    image = context.services.metadata.image
    if context.api_version >= TOPIC_IDS_VERSION:
        found = image.topics_by_id.get(topic.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = image.topics_by_name.get(topic.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if found is None else found.name
    if name and not context.authorize(READ, TOPIC, name):
        refused.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    existing = {} if found is None else found.partitions
    unknown = [
        OffsetCommitResponsePartition(
            partition_index=partition.partition_index,
            error_code=error if found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        for partition in topic.partitions
        if partition.partition_index not in existing
    ]
    topic_id = topic.topic_id if found is None else found.topic_id
    if unknown or found is None:
        refused.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id or ZERO_UUID, partitions=unknown))
    known = [partition for partition in topic.partitions if partition.partition_index in existing]
    if known:
        accepted.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=known))


def _failed(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
        for partition in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _merge(
    refused: list[OffsetCommitResponseTopic], answered: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry per topic, with the refused partitions first, as Kafka answers."""
    if not refused:
        return answered
    by_topic = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in answered:
        existing = by_topic.get((topic.name, topic.topic_id))
        if existing is None:
            refused.append(topic)
        else:
            existing.partitions += topic.partitions
    return refused
