"""AlterPartition (key 56): the leader of a partition changes its in-sync set (KIP-497).

Versions 2-3. v2 topic ids, and replicas that are fenced or shutting down are refused (KIP-841); v3 the broker epochs of
the replicas, so that a broker that restarted with an empty log is not taken for the process that had caught up
(KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.alter_partition import AlterPartition, InSyncReplica, IsrChange
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.controller.metadata.alter_partition import IsrChangeResult
    from pykbroker.protocol.messages.alter_partition import AlterPartitionRequest, PartitionData
    from pykbroker.requests.context import ControllerContext

BROKER_EPOCHS_VERSION = 3


async def handle_alter_partition(context: ControllerContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Changes in-sync sets; the response has the new state of each partition, or the error of one left unchanged."""
    context.require_cluster(CLUSTER_ACTION)
    has_epochs = context.api_version >= BROKER_EPOCHS_VERSION
    command = AlterPartition(
        request.broker_id,
        request.broker_epoch,
        [
            (topic.topic_id, [_change(partition, has_epochs) for partition in topic.partitions])
            for topic in request.topics
        ],
    )
    results = await submit_command(context, command)
    return AlterPartitionResponse(
        topics=[
            TopicDataResponse(topic_id=topic_id, partitions=[_answer(result) for result in of_topic])
            for topic_id, of_topic in results
        ]
    )


def _change(partition: PartitionData, has_epochs: bool) -> IsrChange:
    if has_epochs:
        isr = [InSyncReplica(replica.broker_id, replica.broker_epoch) for replica in partition.new_isr_with_epochs]
    else:
        isr = [InSyncReplica(broker_id) for broker_id in partition.new_isr]
    return IsrChange(
        partition.partition_index,
        partition.leader_epoch,
        partition.partition_epoch,
        isr,
        partition.leader_recovery_state,
    )


def _answer(result: IsrChangeResult) -> PartitionDataResponse:
    answer = PartitionDataResponse(partition_index=result.partition, error_code=result.error)
    if result.after is not None:
        answer.leader_id = result.after.leader
        answer.leader_epoch = result.after.leader_epoch
        answer.isr = list(result.after.isr)
        answer.leader_recovery_state = result.after.leader_recovery_state
        answer.partition_epoch = result.after.partition_epoch
    return answer
