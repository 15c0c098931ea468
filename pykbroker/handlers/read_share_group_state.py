"""ReadShareGroupState (key 84): the state of share partitions, for their leaders (KIP-932).

Version 0. Sent by brokers; needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from pykbroker.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.share_state_calls import error_of, for_each_partition
from pykbroker.share_state.state import PartitionState


async def handle_read_share_group_state(
    context: BrokerContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Gives the state of each share partition; requests of older leaders are refused from now on."""
    coordinator = context.services.share_state
    found = await for_each_partition(
        context, request.group_id, request.topics, lambda key, asked: coordinator.read(key, asked.leader_epoch)
    )
    results = []
    for topic_id, outcomes in found:
        partitions = []
        for partition, outcome in outcomes:
            if isinstance(outcome, PartitionState):
                partitions.append(_result(partition, outcome))
                continue
            code, message = error_of(outcome, "read share group state")
            partitions.append(PartitionResult(partition=partition, error_code=code, error_message=message))
        results.append(ReadStateResult(topic_id=topic_id, partitions=partitions))
    return ReadShareGroupStateResponse(results=results)


def _result(partition: int, state: PartitionState) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )
