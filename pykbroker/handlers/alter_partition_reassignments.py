"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455; P-157).

Versions 0-1. v1 allow_replication_factor_change (KIP-860), repeated in the response. Null replicas cancel a
reassignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.turns import EachInTurns
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pykbroker.requests.controller_calls import TOO_LATE, is_too_late, submit
from pykbroker.security.authorization import refusal

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from pykbroker.requests.context import NodeContext


async def handle_alter_partition_reassignments(
    context: NodeContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Starts or cancels each reassignment independently; one may go on long after the response (P-157)."""
    if not context.authorize_cluster(ALTER):
        text = refusal("AlterPartitionReassignments", ALTER)
        return _failure(request, ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text))
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    if is_too_late(request.timeout_ms):
        return _failure(request, TOO_LATE)
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
    results, error = await submit(context, command, request.timeout_ms)
    if results is None:
        return _failure(request, error)
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


def _failure(request: AlterPartitionReassignmentsRequest, error: ApiError) -> AlterPartitionReassignmentsResponse:
    """Response with the same error for the whole request and for each partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=error.code, error_message=error.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
