"""DeleteShareGroupState (key 86): deletes the state of share partitions (KIP-932).

Version 0. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import error_of, for_each_partition


async def handle_delete_share_group_state(
    context: BrokerContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Deletes the state of each share partition that has one."""
    coordinator = context.services.share_state
    found = await for_each_partition(
        context,
        request.group_id,
        request.topics,
        lambda key, asked: coordinator.delete(key),
    )
    results = []
    for topic_id, outcomes in found:
        partitions = []
        for partition, outcome in outcomes:
            code, message = error_of(outcome, "delete share group state")
            partitions.append(PartitionResult(partition=partition, error_code=code, error_message=message))
        results.append(DeleteStateResult(topic_id=topic_id, partitions=partitions))
    return DeleteShareGroupStateResponse(results=results)
