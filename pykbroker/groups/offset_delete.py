"""OffsetDelete (P-107)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import TYPE_CHECKING

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.errors import KafkaError
from pykbroker.groups.classic.group import EMPTY
from pykbroker.groups.offset_commit import is_large
from pykbroker.groups.offset_log import offset_tombstones, tombstones_in_steps
from pykbroker.groups.offsets import CommittedOffset, OffsetKey
from pykbroker.groups.result import GroupResult, PreparedRemovals, Tombstones
from pykbroker.groups.shard import GroupShard
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykbroker.protocol.steps import PIECE, Steps, list_in_steps

if TYPE_CHECKING:
    from pykbroker.groups.coordinator import GroupCoordinator


async def delete_offsets(coordinator: GroupCoordinator, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes offsets of existing topics."""
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    prepared: PreparedDeletion | None = None
    turn: Turn | None = None
    if is_large(request):
        _, shard = coordinator.runtime.find(request.group_id)
        prepared = await in_turns(prepare_deletion(shard, request))
        turn = Turn()
    write = coordinator.runtime.begin_write(request.group_id, delete, request, prepared)
    response: OffsetDeleteResponse = await coordinator.runtime.confirmed(request.group_id, write)
    if turn is not None:
        await turn.end_if_over()  # the request and thousands of records are freed in the next one
    return response


class PreparedDeletion(NamedTuple):
    """A large request to delete offsets, with its response for the case that no topic is subscribed to.

    `named` are the topics and partitions of the request; `are_known` says of each if there was an offset to be deleted.
    """

    named: list[tuple[str, int]]
    are_known: list[bool]
    tombstones: Tombstones
    removals: PreparedRemovals
    response: OffsetDeleteResponse


def prepare_deletion(shard: GroupShard, request: OffsetDeleteRequest) -> Steps[PreparedDeletion | None]:
    """The tombstones for a large request, encoded in steps, and its response; None if there is nothing to delete now.

    The group and its offsets may change between the steps: `delete` takes them if these are the offsets then.
    """
    group_id = request.group_id
    named: list[tuple[str, int]] = []
    are_known: list[bool] = []
    topics: list[OffsetDeleteResponseTopic] = []
    uncommitted = _uncommitted(shard, group_id)
    for start in range(0, len(request.topics), PIECE):
        piece = request.topics[start : start + PIECE]
        named_here = _named_partitions(piece)
        named += named_here
        are_known += _are_known(shard, group_id, named_here, uncommitted)
        topics += [_deleted_topic(topic, ErrorCode.NONE) for topic in piece]
        yield
    if not any(are_known):
        return None
    offsets = yield from list_in_steps((group_id, *each) for each in compress(named, are_known))
    tombstones = yield from tombstones_in_steps(offsets)
    removals = yield from _removals(group_id, offsets)
    return PreparedDeletion(named, are_known, tombstones, removals, OffsetDeleteResponse(topics=topics))


def _removals(group_id: str, offsets: list[OffsetKey]) -> Steps[PreparedRemovals]:
    topics: dict[str, set[int]] = {}
    for count, (_, topic, partition) in enumerate(offsets, 1):
        topics.setdefault(topic, set()).add(partition)
        if not count % PIECE:
            yield
    return PreparedRemovals(group_id, topics)


def _uncommitted(shard: GroupShard, group_id: str) -> set[tuple[str, int]]:
    """Topics and partitions of a group with offsets that are pending or in flight."""
    return {*shard.pending.of_group(group_id), *shard.in_flight.of_group(group_id)}


def _named_partitions(topics: Iterable[OffsetDeleteRequestTopic]) -> list[tuple[str, int]]:
    """Topics and partitions that topics of a request name; each topic's once."""
    return [
        (topic.name, number)
        for topic in topics
        for number in dict.fromkeys([partition.partition_index for partition in topic.partitions])
    ]


def _are_known(
    shard: GroupShard, group_id: str, named: Iterable[tuple[str, int]], uncommitted: set[tuple[str, int]]
) -> list[bool]:
    """True for each topic and partition whose offset is committed, or `uncommitted`."""
    committed = shard.offsets.of_group(group_id)
    none: dict[int, CommittedOffset] = {}
    if not uncommitted:
        return [number in committed.get(topic, none) for topic, number in named]
    return [number in committed.get(topic, none) or (topic, number) in uncommitted for topic, number in named]


def _deleted_topic(topic: OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic:
    partitions = [
        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
        for partition in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def delete(
    shard: GroupShard, now_ms: int, request: OffsetDeleteRequest, prepared: PreparedDeletion | None = None
) -> GroupResult:
    """Deletes offsets of topics that no member of the group consumes (P-107).

    `prepared` is the result of `prepare_deletion`.
    """
    group_id = request.group_id
    group, modern_group = shard.groups.get(group_id), shard.modern_group(group_id)
    if group is None and (modern_group is None or group_id in shard.share.by_id):
        return GroupResult(response=OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group is not None and group.state is not EMPTY and not group.is_consumer_group:
        return GroupResult(response=OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    is_subscribed: Callable[[str], bool]
    if modern_group is not None:
        is_subscribed = modern_group.consumes_topic
    else:
        assert group is not None
        is_subscribed = group.is_subscribed_to
    free = [topic for topic in request.topics if not is_subscribed(topic.name)]
    uncommitted = _uncommitted(shard, group_id)
    if (
        prepared is not None
        and len(free) == len(request.topics)
        and _are_known(shard, group_id, prepared.named, uncommitted) == prepared.are_known
    ):
        _, records, frames = prepared.tombstones
        return GroupResult(records=records, response=prepared.response, frames=frames, offsets=prepared.removals)
    named = _named_partitions(free)
    known = compress(named, _are_known(shard, group_id, named, uncommitted))
    response = OffsetDeleteResponse()
    for topic in request.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(topic.name) else ErrorCode.NONE
        response.topics.append(_deleted_topic(topic, error))
    return GroupResult(records=offset_tombstones((group_id, *each) for each in known), response=response)
