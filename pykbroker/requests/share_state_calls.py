"""Common parts of the five requests to the share coordinator: partitions one by one, and texts of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import trio

from pykbroker.controller.turns import EachInTurns, start_in_turns
from pykbroker.errors import CoordinatorError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.share_state.state import PartitionState, Refusal, SharePartitionKey

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext
    from pykbroker.share_state.coordinator import ShareCoordinator


class AskedPartition(Protocol):
    """The part of a request about one partition."""

    partition: int


class AskedTopic(Protocol):
    """The part of a request about one topic."""

    topic_id: bytes
    partitions: list[Any]


class StateRequest(Protocol):
    """The fields that all five requests have."""

    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[AskedTopic]: ...


Outcome = TypeVar("Outcome")
TopicResult = TypeVar("TopicResult")
Call: TypeAlias = "Callable[[ShareCoordinator, SharePartitionKey, Any], Awaitable[Outcome]]"


async def for_each_partition(
    context: BrokerContext,
    request: StateRequest,
    call: Call[Outcome],
    topic_result: Callable[..., TopicResult],
    partition_result: Callable[..., Any],
    *,
    values_of: Callable[[PartitionState], dict[str, Any]] | None = None,
    leaves_out_empty_topics: bool = False,
) -> list[TopicResult]:
    """Calls the share coordinator for each partition of a request, all at once and in turns with other requests.

    Returns the results of the topics.

    Args:
        context: of the request.
        request: the request.
        call: calls the coordinator, given it, the key of a partition, and the part of the request about the partition.
        topic_result, partition_result: classes of the response.
        values_of: fields of a partition's result, of a state that was found.
        leaves_out_empty_topics: True to leave a topic without partitions out of the response. Otherwise, as in Kafka, a
            request with such a topic gets an empty response.
    """
    found = await _outcomes(context, request, call, leaves_out_empty_topics)
    return [
        topic_result(
            topic_id=topic_id,
            partitions=[
                partition_result(partition=number, **_fields_of(outcome, values_of))
                async for number, outcome in EachInTurns(outcomes)
            ],
        )
        async for topic_id, outcomes in EachInTurns(found)
    ]


async def _outcomes(
    context: BrokerContext, request: StateRequest, call: Call[Outcome], leaves_out_empty_topics: bool
) -> list[tuple[bytes, list[tuple[int, Outcome | Refusal]]]]:
    """Calls the share coordinator for all partitions of a request at once, for the same partition one after another.

    Outcomes are in the order of the request. A topic that is in it twice has one list. A partition that is in it twice
    has one outcome, that of the last call. Needs CLUSTER_ACTION, as the request comes from a broker. As in Kafka,
    there are no outcomes for a request without a group, and for one that has a topic without partitions, unless such
    topics are left out.
    """
    group_id = request.group_id
    asked = [(topic.topic_id, list(topic.partitions)) for topic in request.topics]
    if not context.authorize_cluster(CLUSTER_ACTION):
        failed = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return [(topic_id, [(p.partition, failed) for p in partitions]) for topic_id, partitions in asked]
    if not group_id or (not leaves_out_empty_topics and any(not partitions for _, partitions in asked)):
        return []
    coordinator = context.services.share_state
    outcomes: dict[bytes, dict[int, Outcome | Refusal]] = {}

    async def ask(topic_id: bytes, number: int, mentions: list[AskedPartition]) -> None:
        key = SharePartitionKey(group_id, topic_id, number)
        for asked_partition in mentions:
            try:
                outcomes[topic_id][number] = await call(coordinator, key, asked_partition)
            except CoordinatorError as error:
                code, operation = error.error_code, context.api_key.name.lower().replace("_", " ")
                outcomes[topic_id][number] = Refusal(code, f"Unable to {operation}: {TEXTS.get(code)}")

    asked_by_partition: dict[tuple[bytes, int], list[AskedPartition]] = {}
    for topic_id, partitions in asked:
        for each in partitions:
            asked_by_partition.setdefault((topic_id, each.partition), []).append(each)
            # Keeps the order of the request.
            outcomes.setdefault(topic_id, {}).setdefault(each.partition, Refusal(ErrorCode.NONE))
    async with trio.open_nursery() as nursery:
        calls = ((topic_id, number, mentions) for (topic_id, number), mentions in asked_by_partition.items())
        await start_in_turns(nursery, ask, calls)
    return [(topic_id, list(found.items())) for topic_id, found in outcomes.items()]


def _fields_of(outcome: Any, values_of: Callable[[PartitionState], dict[str, Any]] | None) -> dict[str, Any]:
    """Fields of a partition's result: those of a state that was found, else the error."""
    if values_of is not None and isinstance(outcome, PartitionState):
        return values_of(outcome)
    if outcome is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": outcome.code, "error_message": outcome.message or TEXTS.get(outcome.code)}
