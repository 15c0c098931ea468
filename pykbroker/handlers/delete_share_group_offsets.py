"""DeleteShareGroupOffsets (key 92): deletes the offsets that an empty share group has of topics (KIP-932).

Version 0. Needs DELETE on the group and READ on the topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DELETE, GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext


async def handle_delete_share_group_offsets(
    context: BrokerContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Deletes the offsets of topics (P-191)."""
    if not share_groups_enabled(context.services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    context.require(DELETE, GROUP, request.group_id)
    refused = await context.refused_in_turns(READ, TOPIC, (topic.topic_name for topic in request.topics))
    names = [topic.topic_name for topic in request.topics if topic.topic_name not in refused]
    deleted, failed, without_offsets = await context.services.groups.share.delete_offsets(request.group_id, names)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=code, error_message=TEXTS.get(code)
        )
        for topic in request.topics
        if topic.topic_name in refused
    ]
    topics += [_topic(context, topic_id, ErrorCode.NONE) for topic_id in deleted]
    topics += [
        DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=code, error_message=message or TEXTS.get(code))
        for name, code, message in without_offsets
    ]
    topics += [_topic(context, topic_id, code) for topic_id, code in failed.items()]
    return DeleteShareGroupOffsetsResponse(responses=topics)


def _topic(context: BrokerContext, topic_id: bytes, code: ErrorCode) -> DeleteShareGroupOffsetsResponseTopic:
    topic = context.services.metadata.topic_by_id(topic_id)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name="" if topic is None else topic.name,
        topic_id=topic_id,
        error_code=code,
        error_message=TEXTS.get(code),
    )
