"""WriteShareGroupState (key 85): stores what has changed of share partitions (KIP-932).

Versions 0-1. v1 delivery complete count. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import for_each_partition
from pykbroker.share_state.state import StateBatch, WriteState


async def handle_write_share_group_state(
    context: BrokerContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Stores the batches and the start offset of each share partition."""
    coordinator = context.services.share_state
    results = await for_each_partition(
        context,
        request,
        "write share group state",
        lambda key, asked: coordinator.write(key, _write_of(asked)),
        WriteStateResult,
        PartitionResult,
    )
    return WriteShareGroupStateResponse(results=results)


def _write_of(asked: PartitionData) -> WriteState:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in asked.state_batches
    ]
    return WriteState(asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches)
