"""WriteShareGroupState (key 85): stores what has changed of share partitions (KIP-932).

Versions 0-1. v1 delivery complete count. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.messages.initialize_share_group_state import PartitionResult
from pykbroker.protocol.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import for_each_partition
from pykbroker.share_state.state import SharePartitionKey, WriteState, batches_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pykbroker.share_state.coordinator import ShareCoordinator
    from pykbroker.share_state.state import Refusal


async def handle_write_share_group_state(
    context: BrokerContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Stores the batches and the start offset of each share partition."""
    results = await for_each_partition(context, request, _write, WriteStateResult, PartitionResult)
    return WriteShareGroupStateResponse(results=results)


def _write(coordinator: ShareCoordinator, key: SharePartitionKey, asked: PartitionData) -> Awaitable[Refusal | None]:
    count = asked.delivery_complete_count
    write = WriteState(asked.state_epoch, asked.leader_epoch, asked.start_offset, count, batches_of(asked))
    return coordinator.write(key, write)
