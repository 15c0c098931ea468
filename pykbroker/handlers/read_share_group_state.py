"""ReadShareGroupState (key 84): the state of share partitions, for their leaders (KIP-932).

Version 0. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any

from pykbroker.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import for_each_partition
from pykbroker.share_state.state import PartitionState


async def handle_read_share_group_state(
    context: BrokerContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Returns the state of each share partition; requests of older leaders are refused from now on."""
    results = await for_each_partition(
        context,
        request,
        lambda coordinator, key, asked: coordinator.read(key, asked.leader_epoch),
        ReadStateResult,
        PartitionResult,
        values_of=_values,
    )
    return ReadShareGroupStateResponse(results=results)


def _values(state: PartitionState) -> dict[str, Any]:
    batches = [StateBatch(**batch._asdict()) for batch in state.batches]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}
