"""DescribeProducers (key 61), version 0: producers of a partition and where their transactions start (KIP-664).

Used to find hanging transactions: those that are open in a partition while the coordinator has no transaction of the
producer in it. Any replica answers, a follower from its own log (kafka-transactions.sh describe-producers --broker-id).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.controller.turns import Turn
from pykbroker.errors import error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.acl_codes import READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pykbroker.requests.missing_partition import missing_partition_error
from pykbroker.security.authorization import AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest
    from pykbroker.requests.context import BrokerContext


async def handle_describe_producers(
    context: BrokerContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describes each partition independently of the others."""
    response, turn = DescribeProducersResponse(), Turn()
    for topic in request.topics:
        described = TopicResponse(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            described.partitions.append(_describe(context, topic.name, index))
            if turn.is_over:
                await turn.end_if_over()
    return response


def _describe(context: BrokerContext, topic: str, index: int) -> PartitionResponse:
    reason = reason_invalid(topic)
    if reason is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=code, error_message=reason)
    if not context.authorize(READ, TOPIC, topic):
        code, message = AUTHORIZATION_FAILED[TOPIC]
        return PartitionResponse(partition_index=index, error_code=code, error_message=message)
    partition = context.services.partitions.get(topic, index)
    if partition is None:
        image = context.services.metadata.topic(topic)
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionResponse(partition_index=index, error_code=code, error_message=TEXTS[code])
        return PartitionResponse(partition_index=index, error_code=missing_partition_error(context, topic, index))
    try:
        producers = partition.log.producers.producers
    except LogError as error:
        return PartitionResponse(partition_index=index, error_code=error_code_for(error))
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for producer_id, entry in producers.items()
        ],
    )
