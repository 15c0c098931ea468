"""OffsetForLeaderEpoch (key 23): end offset of a leader epoch (KIP-101, KIP-320).

Versions 2-4. v2 current_leader_epoch; v3 replica_id; v4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION, DESCRIBE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pykbroker.requests.missing_partition import missing_partition_error

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from pykbroker.requests.context import BrokerContext


async def handle_offset_for_leader_epoch(
    context: BrokerContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Returns the largest epoch that is not above the requested one, with its end offset (P-87)."""
    refused: Collection[str] = ()
    if not context.authorize_cluster(CLUSTER_ACTION):
        refused = await context.refused_in_turns(DESCRIBE, TOPIC, (topic.topic for topic in request.topics))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if topic.topic in refused
                    else _answer(context, topic.topic, asked)
                    async for asked in EachInTurns(topic.partitions)
                ],
            )
            async for topic in EachInTurns(request.topics)
        ]
    )


def _answer(context: BrokerContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.services.partitions.get(topic, asked.partition)
    if partition is None:
        code = missing_partition_error(context, topic, asked.partition)
        return EpochEndOffset(partition=asked.partition, error_code=code)
    try:
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_leader()
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.error_code)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
