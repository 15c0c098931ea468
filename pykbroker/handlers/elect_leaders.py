"""ElectLeaders (key 43): elects leaders on demand (KIP-183, KIP-460; P-156).

Versions 0-2. v0 elects preferred leaders only; v1 election type and top-level error; v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.elect_leaders import ElectLeaders
from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from pykbroker.requests.controller_calls import is_too_late, submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest
    from pykbroker.requests.context import NodeContext


async def handle_elect_leaders(context: NodeContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects leaders of the partitions named; null stands for all partitions, an empty list for none."""
    asked = request.topic_partitions
    context.require_cluster(ALTER)
    if asked is not None and not asked:
        return ElectLeadersResponse()
    if is_too_late(request.timeout_ms):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    topics = None if asked is None else [(topic.topic, topic.partitions) for topic in asked]
    results = await submit_command(context, ElectLeaders(request.election_type, topics), request.timeout_ms)
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
