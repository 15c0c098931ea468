"""AlterShareGroupOffsets (key 91): sets start offsets of an empty share group (KIP-932).

Version 0. Needs READ on the group and on the topics. The group is created if it does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from pykbroker.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext


async def handle_alter_share_group_offsets(
    context: BrokerContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Sets the offsets of partitions that exist; those that the client may not read come first, as in Kafka (P-191)."""
    if not share_groups_enabled(context.services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    context.require(READ, GROUP, request.group_id)
    metadata = context.services.metadata
    refused = await context.refused_in_turns(READ, TOPIC, (topic.topic_name for topic in request.topics))
    wanted = [
        (topic.topic_name, {asked.partition_index: asked.start_offset for asked in topic.partitions})
        for topic in request.topics
        if topic.topic_name not in refused and metadata.topic(topic.topic_name) is not None
    ]
    errors = await context.services.groups.share.alter_offsets(request.group_id, wanted)
    response = AlterShareGroupOffsetsResponse()
    existing = {name for name, _ in wanted}
    altered: list[AlterShareGroupOffsetsResponseTopic] = []
    for topic in request.topics:
        image = metadata.topic(topic.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=ZERO_UUID if image is None else image.topic_id
        )
        for asked in topic.partitions:
            code, message = ErrorCode.NONE, None
            if topic.topic_name in refused:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None or asked.partition_index not in image.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif (error := errors.get((image.topic_id, asked.partition_index))) is not None:
                code, message = error.error_code, error.message
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=asked.partition_index, error_code=code, error_message=message or TEXTS.get(code)
                )
            )
        if topic.topic_name in existing:
            altered.append(answer)
        elif answer.partitions:
            response.responses.append(answer)
    response.responses += altered
    return response
