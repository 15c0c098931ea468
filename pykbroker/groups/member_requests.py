"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup on one shard, for members of classic and of consumer groups."""

from __future__ import annotations

from pykbroker.groups.classic import joins, leaves, syncs
from pykbroker.groups.classic.group import EMPTY, GROUP_METADATA_VALUE_VERSION
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.consumer import classic_members
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import EmptyGroupStored, GroupResult, LogRecord, Requester
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.protocol.uuids import uuid_to_text


def join(
    shard: GroupShard, now_ms: int, request: JoinGroupRequest, requester: Requester, waiter: Waiter
) -> GroupResult:
    """Handles JoinGroup; one without a member id creates the group if it does not exist."""
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if consumer_group is not None and consumer_group.members:
        return _join_consumer_group(shard, consumer_group, request, requester, waiter, now_ms)
    streams_group = shard.streams.by_id.get(request.group_id)
    if request.group_id in shard.share.by_id or (streams_group is not None and streams_group.members):
        return joins.refused_join(waiter, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = request.group_id not in shard.groups
    replaced = consumer_group or streams_group
    if is_new and request.member_id != "":
        if replaced is not None:
            shard.forget(replaced)
        return joins.refused_join(waiter, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    tombstones = [] if replaced is None else shard.tombstones(request.group_id)
    shard.consumer.remove(request.group_id)
    shard.streams.remove(request.group_id)
    group = shard.get_or_create(request.group_id, now_ms)
    result = joins.join(group, request, requester, waiter, now_ms)
    if is_new and not result.records:
        # Stores the group for a later coordinator, even if all it has is a member id that was given out.
        value = GroupMetadataValue(current_state_timestamp=now_ms, protocol=None, leader=None)
        key = GroupMetadataKey(group=group.group_id)
        result.records += [*tombstones, LogRecord(key, value, GROUP_METADATA_VALUE_VERSION)]
        result.stored = EmptyGroupStored(group.group_id, waiter, replaced)
        result.have_groups_ended = replaced is not None
    return result


def _join_consumer_group(
    shard: GroupShard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    requester: Requester,
    waiter: Waiter,
    now_ms: int,
) -> GroupResult:
    context = HeartbeatContext(
        shard.consumer.settings_of(group.group_id),
        shard.consumer.topics,
        now_ms,
        requester.client_id,
        requester.client_host,
        requester.may_describe,
    )
    try:
        new_member_id = uuid_to_text(requester.fresh_uuid)
        return classic_members.join(group, request, requester.api_version, new_member_id, waiter, context)
    except GroupError as error:
        return joins.refused_join(waiter, error.error_code)


def sync(shard: GroupShard, now_ms: int, request: SyncGroupRequest, waiter: Waiter) -> GroupResult:
    """Handles SyncGroup; UNKNOWN_MEMBER_ID if the group is missing or Empty."""
    group = shard.groups.get(request.group_id)
    if group is None or group.state is EMPTY:
        return _sync_consumer_group(shard, request, waiter, now_ms)
    return syncs.sync(group, request, waiter)


def _sync_consumer_group(shard: GroupShard, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> GroupResult:
    consumer_group, code = shard.consumer.by_id.get(request.group_id), ErrorCode.UNKNOWN_MEMBER_ID
    if consumer_group is not None and consumer_group.members:
        try:
            return classic_members.sync(consumer_group, request, waiter, shard.consumer.topics, now_ms)
        except GroupError as error:
            code = error.error_code
    response = SyncGroupResponse(error_code=code)
    return GroupResult(response=response, replies=[(waiter, response)])


def refuse_parked(shard: GroupShard, group_id: str, waiter: Waiter, error: ErrorCode) -> GroupResult:
    """Answers a request that still waits in a classic group with the error; its member goes on waiting (P-391)."""
    result, group = GroupResult(), shard.groups.get(group_id)
    if group is not None:
        group.refuse_parked(waiter, error, result)
    return result


def heartbeat(shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    """Handles Heartbeat, which changes only a timer."""
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if consumer_group is not None:
        try:
            return classic_members.heartbeat(consumer_group, request, now_ms)
        except GroupError as error:
            return error.error_code
    group = shard.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now_ms)


def leave(shard: GroupShard, now_ms: int, request: LeaveGroupRequest) -> GroupResult:
    """Handles LeaveGroup in the form of version 3: identities in `members`."""
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if consumer_group is not None:
        settings = shard.consumer.settings_of(request.group_id)
        return classic_members.leave(consumer_group, request, settings, shard.consumer.topics, now_ms)
    group = shard.groups.get(request.group_id)
    if group is not None:
        responses, result = leaves.leave(group, request.members, now_ms)
        result.response = LeaveGroupResponse(members=responses)
        return result
    error = ErrorCode.UNKNOWN_MEMBER_ID
    unknown = [
        MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error)
        for m in request.members
    ]
    return GroupResult(response=LeaveGroupResponse(members=unknown))
