"""DescribeGroups, ListGroups and DeleteGroups on one shard."""

from __future__ import annotations

from pykbroker.groups.classic.group import EMPTY, STABLE, Group
from pykbroker.groups.offset_log import encode_record, offset_tombstones, tombstones_in_steps
from pykbroker.groups.offsets import OffsetKey
from pykbroker.groups.result import GroupResult, Tombstones
from pykbroker.groups.shard import GroupShard
from pykbroker.java_order import timeline_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pykbroker.protocol.messages.list_groups import ListedGroup
from pykbroker.protocol.records.batch import frames_with
from pykbroker.protocol.steps import PIECE, Steps

CLASSIC_GROUP_TYPE = "classic"

GROUP_ID_NOT_FOUND_VERSION = 6
"""From this version on DescribeGroups has an error for a missing group, and not just the state Dead (KIP-1043)."""


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


def delete(shard: GroupShard, group_id: str, tombstones: Tombstones | None = None) -> GroupResult:
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
