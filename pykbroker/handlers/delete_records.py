"""DeleteRecords (key 21): advance the start of logs (KIP-107).

Versions 0-2. v2 flexible. Whole segments before the new start are deleted at once, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.metadata_cache import INTERNAL_TOPICS
from pykbroker.protocol.acl_codes import DELETE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.delete_records import DeleteRecordsRequest
    from pykbroker.request_context import RequestContext

HIGH_WATERMARK = -1
INVALID_LOW_WATERMARK = -1


async def handle_delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Moves each log's start to the offset asked for (P-150)."""
    refused = context.refused(DELETE, TOPIC, (topic.name for topic in request.topics))
    # Of a partition that is named twice the last offset counts.
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _failure(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if name in refused
                    else _delete(context, name, index, offset)
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
    )


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _advance(context, topic, index, offset)
    except (KafkaError, LogError) as error:
        return _failure(index, error_code_for(error))
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK, error_code=code)


def _advance(context: RequestContext, topic: str, index: int, offset: int) -> int:
    partition = context.services.partitions.get(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic} cannot be deleted")
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not contain delete")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0 or target > partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {partition.high_watermark}"
        )
    partition.advance_log_start(target)
    return partition.log_start_offset
