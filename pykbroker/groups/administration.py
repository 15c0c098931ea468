"""DescribeGroups, ListGroups and DeleteGroups, and the descriptions of modern groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.errors import CoordinatorError
from pykbroker.groups.classic.group import EMPTY, STABLE, Group
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_log import encode_record, offset_tombstones, tombstones_in_steps
from pykbroker.groups.offsets import OffsetKey
from pykbroker.groups.result import GroupResult, Tombstones
from pykbroker.groups.shard import GroupShard
from pykbroker.java_order import copied_order, hash_order, partition_order, timeline_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pykbroker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from pykbroker.protocol.records.batch import frames_with
from pykbroker.protocol.steps import PIECE, Steps

if TYPE_CHECKING:
    from pykbroker.coordination.runtime import Write
    from pykbroker.groups.coordinator import GroupCoordinator
    from pykbroker.groups.modern.groups import ModernGroups

Described = TypeVar("Described")

CLASSIC_GROUP_TYPE = "classic"

GROUP_ID_NOT_FOUND_VERSION = 6
"""From this version on DescribeGroups has an error for a missing group, and not just the state Dead (KIP-1043)."""


async def in_described_order(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> list[str]:
    """Groups of a request in the order in which Kafka describes them: by partition (P-651)."""
    by_partition = await in_turns(coordinator.runtime.by_partition([*group_ids]))
    return [group_id for some in by_partition for group_id in some]


def describe_group(coordinator: GroupCoordinator, group_id: str, api_version: int) -> DescribedGroup:
    """Describes one group, for DescribeGroups."""
    try:
        _, shard = coordinator.runtime.find(group_id)
    except CoordinatorError as error:
        return DescribedGroup(group_id=group_id, error_code=error.error_code)
    return describe(shard, group_id, api_version)


async def describe_modern_group(
    coordinator: GroupCoordinator,
    group_id: str,
    groups_of: Callable[[GroupShard], ModernGroups[Any, Any]],
    response: Callable[..., Described],
    *,
    has_texts: bool,
) -> Described:
    """Describes one modern group, as it is now, in turns with other requests.

    Args:
        group_id: id of the group.
        groups_of: the groups of the type in a shard.
        response: makes a description with an error; the class of the descriptions of this type.
        has_texts: True if an error of the coordinator comes with its general text.
    """
    if not group_id:
        return response(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        _, shard = coordinator.runtime.find(group_id)
        steps = groups_of(shard).describe(group_id, shard.committed_group(group_id))
        found: Described = await in_turns(steps)
    except CoordinatorError as error:
        text = TEXTS.get(error.error_code) if has_texts else None
        return response(group_id=group_id, error_code=error.error_code, error_message=text)
    except GroupError as error:
        return response(group_id=group_id, error_code=error.error_code, error_message=error.message)
    return found


async def list_groups(coordinator: GroupCoordinator, states: set[str], types: set[str]) -> ListGroupsResponse:
    """All groups of this broker; COORDINATOR_LOAD_IN_PROGRESS while some are still being loaded.

    Other requests have turns between the shards. Kafka's coordinator asks its threads for each shard, too.
    """
    if coordinator.runtime.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    coordinator.runtime.expire_due()
    groups: list[ListedGroup] = []
    turn = Turn()
    shards = {**coordinator.runtime.shards}
    for number in partition_order(OFFSETS_TOPIC, shards):
        groups += listed(shards[number], states, types)
        await turn.end_if_over()
    return ListGroupsResponse(groups=groups)


async def delete_groups(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
    """Deletes Empty groups when all earlier records are replicated (P-392); codes are in Kafka's order (P-651)."""
    by_partition = await in_turns(coordinator.runtime.by_partition([*group_ids]))
    ordered = [copied_order(some) for some in by_partition]
    wanted = [group_id for some in ordered for group_id in some]
    codes = await _prepare_deletions(coordinator, wanted)
    refused = set(codes)
    writes: dict[str, Write[GroupResult]] = {}
    turn = Turn()
    for group_id in wanted:
        if group_id not in codes:
            try:
                _, shard = coordinator.runtime.find(group_id)
                tombstones = await in_turns(prepare_deletion(shard, group_id))
                writes[group_id] = coordinator.runtime.begin_write(group_id, delete, group_id, tombstones)
            except CoordinatorError as error:
                codes[group_id] = error.error_code
        await turn.end_if_over()
    for group_id, write in writes.items():
        try:
            await coordinator.runtime.settled(group_id, write)
            codes[group_id] = write.result.response
        except CoordinatorError as error:
            codes[group_id] = error.error_code
        await turn.end_if_over()
    return {
        group_id: codes[group_id]
        for some, deleted in zip(by_partition, ordered, strict=True)
        for group_id in (*hash_order(name for name in some if name in refused), *deleted)
    }


async def _prepare_deletions(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
    """Waits until earlier records are replicated, and deletes the states of share groups.

    Returns the codes of groups that can therefore not be deleted.
    """
    codes: dict[str, ErrorCode] = {}
    by_partition: dict[int, list[str]] = {}

    async def delete_states(group_id: str) -> None:
        try:
            error = await coordinator.share.delete_states(group_id)
        except CoordinatorError as failure:
            error = failure.error_code
        if error is not ErrorCode.NONE:
            codes[group_id] = error

    async def wait_replicated(number: int, ids: list[str]) -> None:
        try:
            await coordinator.runtime.wait_replicated(number)
        except CoordinatorError as error:
            codes.update(dict.fromkeys(ids, error.error_code))

    turn = Turn()
    # All at once: with a share coordinator that does not answer each of them takes half a minute.
    async with trio.open_nursery() as nursery:
        for group_id in group_ids:
            try:
                number, shard = coordinator.runtime.find(group_id)
            except CoordinatorError as error:
                codes[group_id] = error.error_code
                continue
            if group_id in shard.share.by_id:
                nursery.start_soon(delete_states, group_id)
            else:
                by_partition.setdefault(number, []).append(group_id)
            await turn.end_if_over()
        for number, ids in by_partition.items():
            nursery.start_soon(wait_replicated, number, ids)
    return codes


def describe(shard: GroupShard, group_id: str, api_version: int) -> DescribedGroup:
    """A group for DescribeGroups; subscriptions are shown only while it is Stable (P-106)."""
    group = shard.committed_group(group_id)
    if not isinstance(group, Group):
        missing = DescribedGroup(group_id=group_id, group_state="Dead")
        if api_version >= GROUP_ID_NOT_FOUND_VERSION:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            reason = "not found." if group is None else "is not a classic group."
            missing.error_message = f"Group {group_id} {reason}"
        return missing
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def listed(shard: GroupShard, states: set[str], types: set[str]) -> list[ListedGroup]:
    """Groups whose state and type are among the lower-case names given; an empty set takes all (P-106).

    In the order of Kafka's table of groups of all types (P-615).
    """
    count = len(shard.groups) + sum(len(groups.by_id) for groups in shard.modern_groups)
    found = {group.group_id: group for group in _listed(shard, states, types)}
    return [found[group_id] for group_id in timeline_order(found, count)]


def _listed(shard: GroupShard, states: set[str], types: set[str]) -> list[ListedGroup]:
    modern = [listed for groups in shard.modern_groups for listed in groups.listed(shard.committed, states, types)]
    if types and CLASSIC_GROUP_TYPE not in types:
        return modern
    return modern + [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC_GROUP_TYPE,
        )
        for group in shard.committed.of_type(shard.groups, Group)
        if not shard.is_hidden(group) and (not states or group.state.value.lower() in states)
    ]


def prepare_deletion(shard: GroupShard, group_id: str) -> Steps[Tombstones | None]:
    """The tombstones of a group's offsets, encoded in steps; None if these are few.

    The group may change between the steps: `delete` takes them if its offsets are the same then.
    """
    offsets = _offsets_of(shard, group_id)
    return None if len(offsets) <= PIECE else (yield from tombstones_in_steps(offsets))


def delete(shard: GroupShard, now_ms: int, group_id: str, tombstones: Tombstones | None = None) -> GroupResult:
    """Deletes an Empty group with all its offsets (P-107); the response is an error code.

    `tombstones` is the result of `prepare_deletion`.
    """
    group, modern_group = shard.groups.get(group_id), shard.modern_group(group_id)
    if group is None and modern_group is None:
        return GroupResult(response=ErrorCode.GROUP_ID_NOT_FOUND)
    if (group is not None and group.state is not EMPTY) or (modern_group is not None and modern_group.members):
        return GroupResult(response=ErrorCode.NON_EMPTY_GROUP)
    offsets, ends = _offsets_of(shard, group_id), shard.tombstones(group_id)
    if tombstones is not None and tombstones.offsets == offsets:
        frames = frames_with(tombstones.frames, map(encode_record, ends))
        return GroupResult(records=[*tombstones.records, *ends], response=ErrorCode.NONE, frames=frames)
    return GroupResult(records=[*offset_tombstones(offsets), *ends], response=ErrorCode.NONE)


def _offsets_of(shard: GroupShard, group_id: str) -> list[OffsetKey]:
    """The offsets of a group that are committed, pending or in flight, each once."""
    committed = shard.offsets.of_group(group_id)
    found = {(topic, partition): None for topic, partitions in committed.items() for partition in partitions}
    # Pending ones too: the end of their transaction must not bring the group back.
    found.update(dict.fromkeys(shard.pending.of_group(group_id)))
    found.update(dict.fromkeys(shard.in_flight.of_group(group_id)))
    return [(group_id, topic, partition) for topic, partition in found]
