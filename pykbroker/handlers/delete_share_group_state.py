"""DeleteShareGroupState (key 86): deletes the state of share partitions (KIP-932).

Version 0. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
)
from pykbroker.protocol.messages.initialize_share_group_state import PartitionResult
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import for_each_partition


async def handle_delete_share_group_state(
    context: BrokerContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Deletes the state of each share partition that has one."""
    results = await for_each_partition(
        context,
        request,
        lambda coordinator, key, asked: coordinator.delete(key),
        DeleteStateResult,
        PartitionResult,
    )
    return DeleteShareGroupStateResponse(results=results)
