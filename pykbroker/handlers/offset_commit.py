"""OffsetCommit (key 8), versions 2 to 10.

v2-4 retention_time_ms. v6 leader epoch (KIP-320). v7 group.instance.id (KIP-345). v9 a missing group is
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION. v10 topics by id (KIP-848).
"""

from __future__ import annotations

from pykbroker.controller.turns import Turn
from pykbroker.groups.offset_commit import commit_offsets, refused_commit, refused_topic
from pykbroker.protocol.acl_codes import GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.requests.context import BrokerContext

TOPIC_IDS_VERSION = 10

Refused = dict[str | bytes, OffsetCommitResponseTopic]
"""Topics of a response with their refused partitions, by name or, from v10 on, by id."""


async def handle_offset_commit(context: BrokerContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commits offsets of existing partitions (P-111); the others get an error, P-108 to P-110, P-115."""
    if not context.authorize(READ, GROUP, request.group_id):
        return refused_commit(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    # In the order in which Kafka answers: one entry for each topic, also for one that the request names twice.
    refused: Refused = {}
    accepted: list[OffsetCommitRequestTopic] = []
    turn = Turn() if len(request.topics) > PIECE else None
    for topic in request.topics:
        _split_by_existence(context, topic, accepted, refused)
        if turn is not None and turn.is_over:
            await turn.end_if_over()
    if not accepted:
        return OffsetCommitResponse(topics=list(refused.values()))
    request.topics = accepted
    response = await commit_offsets(context.services.groups, request, context.api_version)
    response.topics = _merge(context, refused, response.topics)
    return response


def _split_by_existence(
    context: BrokerContext,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    refused: Refused,
) -> None:
    """Splits a topic into partitions that exist and partitions that do not, and fills in its name or id."""
    image = context.services.metadata.image
    by_id = context.api_version >= TOPIC_IDS_VERSION
    if by_id:
        found = image.topics_by_id.get(topic.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = image.topics_by_name.get(topic.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if found is None else found.name
    if (found is not None or not by_id) and not context.authorize(READ, TOPIC, name):
        _add(context, refused, refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
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
        missing = OffsetCommitResponseTopic(name=name, topic_id=topic_id or ZERO_UUID, partitions=unknown)
        _add(context, refused, missing)
    known = [partition for partition in topic.partitions if partition.partition_index in existing]
    if known:
        accepted.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=known))


def _add(context: BrokerContext, topics: Refused, topic: OffsetCommitResponseTopic) -> None:
    """Adds the partitions to the entry of their topic."""
    key = topic.topic_id if context.api_version >= TOPIC_IDS_VERSION else topic.name
    known = topics.setdefault(key, topic)
    if known is not topic:
        known.partitions += topic.partitions


def _merge(
    context: BrokerContext, refused: Refused, answered: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry per topic, with the refused partitions first; without refused ones the coordinator's own entries."""
    if not refused:
        return answered
    for topic in answered:
        _add(context, refused, topic)
    return list(refused.values())
