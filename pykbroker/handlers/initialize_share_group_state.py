"""InitializeShareGroupState (key 83): creates the state of share partitions (KIP-932).

Version 0. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import error_of, for_each_partition


async def handle_initialize_share_group_state(
    context: BrokerContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Creates the state of each share partition, or replaces it."""
    coordinator = context.services.share_state
    found = await for_each_partition(
        context,
        request.group_id,
        request.topics,
        lambda key, asked: coordinator.initialize(key, asked.state_epoch, asked.start_offset),
        leaves_out_empty_topics=True,
    )
    results = []
    for topic_id, outcomes in found:
        partitions = []
        for partition, outcome in outcomes:
            code, message = error_of(outcome, "initialize share group state")
            partitions.append(PartitionResult(partition=partition, error_code=code, error_message=message))
        results.append(InitializeStateResult(topic_id=topic_id, partitions=partitions))
    return InitializeShareGroupStateResponse(results=results)
