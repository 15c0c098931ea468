"""Common parts of the five requests to the share coordinator: partitions one by one, and texts of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.share_state.state import SharePartitionKey

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext
    from pykbroker.share_state.shard import Refusal


class AskedPartition(Protocol):
    """The part of a request about one partition."""

    partition: int


class AskedTopic(Protocol):
    """The part of a request about one topic."""

    topic_id: bytes
    partitions: list[Any]


Outcome = TypeVar("Outcome")


async def for_each_partition(
    context: BrokerContext,
    group_id: str,
    topics: Iterable[AskedTopic],
    call: Callable[[SharePartitionKey, Any], Awaitable[Outcome]],
) -> list[tuple[bytes, list[tuple[int, Outcome | ErrorCode]]]]:
    """Calls the share coordinator for each partition of a request, all at once; outcomes in the order of the request.

    Needs CLUSTER_ACTION, as the request comes from a broker. A request without a group, or with a topic without
    partitions, has no outcomes, as in Kafka.
    """
    asked = [(topic.topic_id, list(topic.partitions)) for topic in topics]
    if not group_id or any(not partitions for _, partitions in asked):
        return []
    if not context.authorize_cluster(CLUSTER_ACTION):
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return [(topic_id, [(p.partition, failed) for p in partitions]) for topic_id, partitions in asked]
    outcomes: dict[tuple[bytes, int], Outcome] = {}

    async def ask(topic_id: bytes, asked_partition: AskedPartition) -> None:
        key = SharePartitionKey(group_id, topic_id, asked_partition.partition)
        outcomes[topic_id, key.partition] = await call(key, asked_partition)

    async with trio.open_nursery() as nursery:
        for topic_id, partitions in asked:
            for each in partitions:
                nursery.start_soon(ask, topic_id, each)
    return [
        (topic_id, [(each.partition, outcomes[topic_id, each.partition]) for each in partitions])
        for topic_id, partitions in asked
    ]


def error_of(outcome: Refusal | ErrorCode | None) -> tuple[ErrorCode, str | None]:
    """Error code and text of an outcome without a state."""
    if outcome is None:
        return ErrorCode.NONE, None
    if isinstance(outcome, ErrorCode):
        return outcome, TEXTS.get(outcome)
    return outcome.code, outcome.message or TEXTS.get(outcome.code)
