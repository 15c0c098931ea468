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
from pykbroker.requests.share_state_calls import for_each_partition


async def handle_initialize_share_group_state(
    context: BrokerContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Creates the state of each share partition, or replaces it."""
    results = await for_each_partition(
        context,
        request,
        lambda coordinator, key, asked: coordinator.initialize(key, asked.state_epoch, asked.start_offset),
        InitializeStateResult,
        PartitionResult,
        leaves_out_empty_topics=True,
    )
    return InitializeShareGroupStateResponse(results=results)
