"""ElectLeaders (key 43): elects leaders on demand (KIP-183, KIP-460; P-156).

Versions 0-2. v0 elects preferred leaders only; v1 election type and top-level error; v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.elect_leaders import ElectLeaders
from pykbroker.controller.turns import EachInTurns
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from pykbroker.requests.controller_calls import TOO_LATE, is_too_late, submit
from pykbroker.security.authorization import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
    from pykbroker.requests.context import NodeContext

TOP_LEVEL_ERROR_VERSION = 1


async def handle_elect_leaders(context: NodeContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects leaders of the partitions named; null stands for all partitions, an empty list for none."""
    asked = request.topic_partitions
    if not context.authorize_cluster(ALTER):
        refused = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, refusal("ElectLeaders", ALTER))
        return _failure(context, asked or (), refused)
    if asked is not None and not asked:
        return ElectLeadersResponse()
    if is_too_late(request.timeout_ms):
        return _failure(context, asked or (), TOO_LATE)
    topics = None if asked is None else [(topic.topic, topic.partitions) for topic in asked]
    results, error = await submit(context, ElectLeaders(request.election_type, topics), request.timeout_ms)
    if results is None:
        return _failure(context, asked or (), error)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=name,
                partition_result=[
                    PartitionResult(
                        partition_id=result.partition,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    async for result in EachInTurns(of_topic)
                ],
            )
            async for name, of_topic in EachInTurns(results)
        ]
    )


def _failure(context: NodeContext, asked: Iterable[TopicPartitions], error: ApiError) -> ElectLeadersResponse:
    """Response with the same error for all named partitions and, from v1 on, for the whole request."""
    return ElectLeadersResponse(
        error_code=error.code if context.api_version >= TOP_LEVEL_ERROR_VERSION else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
                    for number in topic.partitions
                ],
            )
            for topic in asked
        ],
    )
