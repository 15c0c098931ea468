"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455; P-157).

Versions 0-1. v1 allow_replication_factor_change (KIP-860), repeated in the response. Null replicas cancel a
reassignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pykbroker.requests.controller_calls import is_too_late, submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from pykbroker.requests.context import NodeContext


async def handle_alter_partition_reassignments(
    context: NodeContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Starts or cancels each reassignment independently; one may go on long after the response (P-157)."""
    context.require_cluster(ALTER)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    if is_too_late(request.timeout_ms):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    command = AlterPartitionReassignments(
        [
            (
                topic.name,
                [Reassignment(p.partition_index, p.replicas) async for p in EachInTurns(topic.partitions)],
            )
            async for topic in EachInTurns(request.topics)
        ],
        request.allow_replication_factor_change,
    )
    results = await submit_command(context, command, request.timeout_ms)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=result.partition,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    async for result in EachInTurns(of_topic)
                ],
            )
            async for name, of_topic in EachInTurns(results)
        ],
    )
