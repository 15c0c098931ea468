"""DescribeTopicPartitions (key 75): topics page by page (KIP-966).

Version 0. Topics are sorted by name; a page ends after `max.request.partition.size.limit` partitions and has the cursor
of the next page (P-32). Topic operations are always filled in. Topics that the client may not DESCRIBE are left out of
the list of all topics; if it named them they come last, with the same error whether they exist or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.controller.metadata.image import NO_LEADER
from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.controller.turns import Turn, in_turns
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import string_hash, string_order
from pykbroker.metadata.brokers_view import BrokersView
from pykbroker.protocol.acl_codes import DESCRIBE, TOPIC
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pykbroker.controller.metadata.image import PartitionImage
    from pykbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
    from pykbroker.requests.context import BrokerContext

VERSION = 0

PARTITIONS_PER_LOOK = 20
"""Number of partitions, 5 microseconds each, that are described before the clock is read."""


async def handle_describe_topic_partitions(
    context: BrokerContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describes one page of partitions, beginning at the cursor."""
    image = context.services.metadata.image
    view = BrokersView(image, context.services.metadata, context.connection)
    turn = Turn()
    cursor = request.cursor
    is_all = not request.topics
    names = dict.fromkeys(image.topics_by_name if is_all else (topic.name for topic in request.topics))
    # Existing topics have names of ASCII characters, for which the order of code points is Java's.
    order: Callable[[str], Any] = str if is_all else string_order
    if cursor is not None:
        first = order(cursor.topic_name)
        names = dict.fromkeys(name for name in names if order(name) >= first)
        if not is_all and cursor.topic_name not in names:
            return _request_error(request)
        if cursor.partition_index < 0:
            return _request_error(request)
    limit = context.services.config.topics.max_request_partition_size_limit
    remaining = max(min(limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    hidden = await context.refused_in_turns(DESCRIBE, TOPIC, names)
    for name in sorted(names.keys() - hidden, key=order):
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            response.topics.append(_missing(context, name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        # As in Kafka the sum is an int32, which becomes negative behind 2147483647, and so does the next cursor.
        end = min((start + remaining + (1 << 31)) % (1 << 32) - (1 << 31), len(topic.partitions))
        partitions: list[Any] = []
        for number in range(start, end):
            partitions.append(_partition(view, topic.partitions[number]))
            if number % PARTITIONS_PER_LOOK == 0:
                await turn.end_if_over()
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=partitions,
                topic_authorized_operations=context.authorized_operations(TOPIC, name),
            )
        )
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(end - start, 0)
    if hidden and not is_all:
        response.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            for name in await _hidden_order(names, hidden)
        ]
    return response


async def _hidden_order(names: Iterable[str], hidden: Collection[str]) -> list[str]:
    """Hidden topics in Kafka's order: that of a HashSet of their descriptions, which come out of one of all names.

    The hash code of a description is that of its name.
    """
    described = await in_turns(table_order_in_steps(names, string_hash))
    return await in_turns(table_order_in_steps([name for name in described if name in hidden], string_hash))


def _request_error(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """INVALID_REQUEST for every topic: the response has no field for an error of the whole request."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


def _missing(context: BrokerContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    is_valid = reason_invalid(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=context.authorized_operations(TOPIC, name),
    )


def _partition(view: BrokersView, partition: PartitionImage) -> bytes:
    """Encoded description of one partition: encoded here, so that turns divide that too, and not with the response."""
    response = DescribeTopicPartitionsResponsePartition(
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas(partition),
    )
    if view.leader_error(partition.leader) is not ErrorCode.NONE:
        # Without an error code, other than in a Metadata response.
        response.leader_id = NO_LEADER
    return encode_element(DescribeTopicPartitionsResponse, response, VERSION)
