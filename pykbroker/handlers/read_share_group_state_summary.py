"""ReadShareGroupStateSummary (key 87): start offsets of share partitions, for the group coordinator (KIP-932).

Versions 0-1. v1 delivery complete count. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any

from pykbroker.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import for_each_partition
from pykbroker.share_state.state import PartitionState


async def handle_read_share_group_state_summary(
    context: BrokerContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Returns the state of each share partition without its batches; start offset -1 where there is none."""
    results = await for_each_partition(
        context,
        request,
        lambda coordinator, key, asked: coordinator.read_summary(key),
        ReadStateSummaryResult,
        PartitionResult,
        values_of=_values,
    )
    return ReadShareGroupStateSummaryResponse(results=results)


def _values(state: PartitionState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }
