"""DeleteRecords (key 21): advance the start of logs (KIP-107).

Versions 0-2. v2 flexible. Whole segments before the new start are deleted at once, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.acl_codes import DELETE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pykbroker.requests.missing_partition import missing_partition_error

if TYPE_CHECKING:
    from pykbroker.protocol.messages.delete_records import DeleteRecordsRequest
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext

HIGH_WATERMARK = -1
INVALID_LOW_WATERMARK = -1


async def handle_delete_records(context: BrokerContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Advances log start offsets as requested (P-150), and waits until the live followers have advanced theirs."""
    refused = await context.refused_in_turns(DELETE, TOPIC, (topic.name for topic in request.topics))
    # For a partition that is named twice the last offset counts.
    offsets: dict[str, dict[int, int]] = {}
    async for topic in EachInTurns(request.topics):
        async for asked in EachInTurns(topic.partitions):
            offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    response = DeleteRecordsResponse()
    moved: list[tuple[Partition, int, DeleteRecordsPartitionResult]] = []
    async for name, partitions in EachInTurns(offsets.items()):
        results = []
        async for index, offset in EachInTurns(partitions.items()):
            if name in refused:
                results.append(_failure(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            try:
                partition, target = _advance(context, name, index, offset)
            except (KafkaError, LogError) as error:
                results.append(_failure(index, error_code_for(error)))
                continue
            results.append(DeleteRecordsPartitionResult(partition_index=index))
            moved.append((partition, target, results[-1]))
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    deadline = trio.current_time() + max(request.timeout_ms, 0) / 1000
    async for partition, target, result in EachInTurns(moved):
        result.error_code, result.low_watermark = await partition.wait_deleted(target, deadline)
    return response


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK, error_code=code)


def _advance(context: BrokerContext, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Advances the log start offset; returns the partition and the new offset. Raises KafkaError, LogError."""
    partition = context.services.partitions.get(topic, index)
    missing = missing_partition_error(context, topic, index) if partition is None else ErrorCode.NONE
    if topic in INTERNAL_TOPICS and missing is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic} cannot be deleted")
    if partition is None:
        raise KafkaError(missing, f"{topic}-{index} has no replica here that works")
    partition.check_leader()
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not contain delete")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0 or target > partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {partition.high_watermark}"
        )
    partition.advance_log_start(target)
    return partition, target
