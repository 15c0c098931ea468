"""ReadShareGroupStateSummary (key 87): start offsets of share partitions, for the group coordinator (KIP-932).

Versions 0-1. v1 delivery complete count. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import error_of, for_each_partition
from pykbroker.share_state.state import PartitionState


async def handle_read_share_group_state_summary(
    context: BrokerContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Gives the state of each share partition without its batches; start offset -1 where there is none."""
    coordinator = context.services.share_state
    found = await for_each_partition(
        context, request.group_id, request.topics, lambda key, asked: coordinator.read_summary(key)
    )
    results = []
    for topic_id, outcomes in found:
        partitions = []
        for partition, outcome in outcomes:
            result = PartitionResult(partition=partition)
            if isinstance(outcome, PartitionState):
                result.state_epoch, result.leader_epoch = outcome.state_epoch, outcome.leader_epoch
                result.start_offset = outcome.start_offset
                result.delivery_complete_count = outcome.delivery_complete_count
            else:
                result.error_code, result.error_message = error_of(outcome, "read share group state summary")
            partitions.append(result)
        results.append(ReadStateSummaryResult(topic_id=topic_id, partitions=partitions))
    return ReadShareGroupStateSummaryResponse(results=results)
