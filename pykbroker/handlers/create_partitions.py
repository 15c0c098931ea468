"""CreatePartitions (key 37): more partitions for a topic (KIP-195).

Versions 0-3. v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED (P-272). Partitions are never removed (P-149).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.topics import CreatePartitions, NewPartitions
from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from pykbroker.requests.controller_calls import charge_of, is_too_late, submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest
    from pykbroker.requests.context import NodeContext


async def handle_create_partitions(context: NodeContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Adds partitions to each topic independently of the others."""
    counts = Counter(topic.name for topic in request.topics)
    # A topic that is named twice gets the error for that, even if the client may not alter it.
    refused = await context.refused_in_turns(ALTER, TOPIC, (name for name, count in counts.items() if count == 1))
    command = CreatePartitions(
        [
            NewPartitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
            )
            async for topic in EachInTurns(request.topics)
            if topic.name not in refused
        ],
        request.validate_only,
        charge_of(context),
    )
    if is_too_late(request.timeout_ms) and any(counts[topic.name] == 1 for topic in command.topics):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    results = await submit_command(context, command, request.timeout_ms)
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error.code, error_message=result.error.message
            )
            async for result in EachInTurns(results)
        ]
    )
    response.results += [
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused
    ]
    return response
