"""CreatePartitions (key 37): more partitions for a topic (KIP-195).

Versions 0-3. v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED (P-272). Partitions are never removed (P-149).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.topics import CreatePartitions, NewPartitions
from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.errors import KafkaError
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import string_hash
from pykbroker.protocol.acl_codes import ALTER, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from pykbroker.requests.controller_calls import charge_of, is_too_late, submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
    from pykbroker.requests.context import NodeContext


async def handle_create_partitions(context: NodeContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Adds partitions to each topic independently of the others.

    The results are in Kafka's order, that of hash sets: first topics that are named twice, then those that the client
    may not alter, then the others, to which partitions are added in this order.
    """
    topics: dict[str, CreatePartitionsTopic] = {}
    twice: dict[str, None] = {}
    async for topic in EachInTurns(request.topics):
        if topics.setdefault(topic.name, topic) is not topic:
            twice[topic.name] = None
    # A topic that is named twice gets the error for that, even if the client may not alter it.
    names = [name for name in await in_turns(table_order_in_steps(topics, string_hash)) if name not in twice]
    refused = await context.refused_in_turns(ALTER, TOPIC, names)
    command = CreatePartitions(
        [_new_partitions(topics[name]) async for name in EachInTurns(names) if name not in refused],
        request.validate_only,
        charge_of(context),
    )
    if is_too_late(request.timeout_ms) and command.topics:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    response = CreatePartitionsResponse()
    response.results += [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name in await in_turns(table_order_in_steps(twice, string_hash))
    ]
    response.results += [
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused
    ]
    async for result in EachInTurns(await submit_command(context, command, request.timeout_ms)):
        response.results.append(
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error.code, error_message=result.error.message
            )
        )
    return response


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name, topic.count, None if assignments is None else [assigned.broker_ids for assigned in assignments]
    )
