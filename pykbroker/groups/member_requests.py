"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, for members of classic and of consumer groups.

A JoinGroup or SyncGroup request that cannot be answered yet is parked: the result of another operation answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.groups.classic import joins, leaves, syncs
from pykbroker.groups.classic.group import EMPTY, GROUP_METADATA_VALUE_VERSION
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.consumer import classic_members
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.coordinator import Parked
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import EmptyGroupStored, GroupResult, LogRecord, Requester
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.protocol.uuids import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from pykbroker.coordination.runtime import Write
    from pykbroker.groups.coordinator import GroupCoordinator

METADATA_BYTES_MAX = 256 * 1024 * 1024
"""Limit of the metadata of all classic members, in bytes. The broker holds metadata until the session expires, up to
half an hour after the client is gone. Kafka's only limit is its heap."""
LARGE_METADATA_BYTES = 65_536
"""Size of a join's metadata above which `METADATA_BYTES_MAX` is checked. A member of a very large group has some ten
kilobytes."""


async def join_group(
    coordinator: GroupCoordinator,
    request: JoinGroupRequest,
    client_id: str,
    client_host: str,
    api_version: int,
    may_describe: Callable[[str], bool],
) -> JoinGroupResponse:
    """Handles JoinGroup; waits for the end of the join phase unless the group answers at once.

    `may_describe` returns True if the client may DESCRIBE a topic that a regular expression of the group matches.
    """
    member_id, groups = request.member_id, coordinator.config.groups
    if request.group_id == "":
        return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=member_id)
    longest_ms = groups.max_session_timeout_ms
    if not groups.min_session_timeout_ms <= request.session_timeout_ms <= longest_ms:
        return JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
    parked = Parked()
    fresh_uuid = random_uuid(coordinator.random)
    requester = Requester(client_id, client_host, api_version, fresh_uuid, may_describe)
    join = classic_group_join if _has_room_for(coordinator, request) else _refuse_large_join
    write = coordinator.runtime.begin_write(request.group_id, join, request, requester, parked)
    if write.result.regex_refresh is not None:
        coordinator.consumer.refresh_regexes(write.result.regex_refresh)
    response: JoinGroupResponse = await _answered(coordinator, request.group_id, write, parked)
    return response


async def _answered(coordinator: GroupCoordinator, group_id: str, write: Write[GroupResult], parked: Parked) -> Any:
    """Response to a parked request.

    A response of a consumer group that adds no record waits for the earlier ones (P-392): they may have given the
    member its partitions, and the next leader might not have them. A request that a classic group has parked
    waits for them as long as any write does, and then is refused.
    """
    if write.result.timers is not None:
        coordinator.runtime.when_settled(group_id, GroupShard.start_timers, write.result.timers)
    if not write.result.records and not parked.is_answered:
        coordinator.runtime.when_late(group_id, refuse_parked, parked)
    response = await parked.wait_answer()
    return response if write.result.response is None else await coordinator.runtime.confirmed(group_id, write)


def _refuse_large_join(
    shard: GroupShard, now_ms: int, request: JoinGroupRequest, requester: Requester, parked: Parked
) -> GroupResult:
    return joins.refused_join(parked, ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)


def _has_room_for(coordinator: GroupCoordinator, request: JoinGroupRequest) -> bool:
    """False if a large join would take the metadata of all members above `METADATA_BYTES_MAX`.

    A join with at most `LARGE_METADATA_BYTES` is never refused for this: small ones are limited by their number.
    """
    size_bytes = sum(len(protocol.metadata) for protocol in request.protocols)
    if size_bytes <= LARGE_METADATA_BYTES:
        return True
    held = sum(
        len(metadata)
        for shard in coordinator.runtime.shards.values()
        for group in shard.groups.values()
        for member in group.members
        for _, metadata in member.protocols
    )
    return held + size_bytes <= METADATA_BYTES_MAX


async def sync_group(coordinator: GroupCoordinator, request: SyncGroupRequest) -> SyncGroupResponse:
    """Handles SyncGroup; waits for the leader's assignment unless the group answers at once."""
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    parked = Parked()
    write = coordinator.runtime.begin_write(request.group_id, classic_group_sync, request, parked)
    response: SyncGroupResponse = await _answered(coordinator, request.group_id, write, parked)
    return response


async def heartbeat(coordinator: GroupCoordinator, request: HeartbeatRequest) -> ErrorCode:
    """Handles Heartbeat; NONE while the group is being loaded (P-90).

    Like the answers of other requests without records it waits for earlier records, unless it is a refusal (P-392).
    """
    if request.group_id == "":
        return ErrorCode.INVALID_GROUP_ID
    try:
        number, shard, now_ms = coordinator.runtime.find_now(request.group_id)
        code = classic_group_heartbeat(shard, request, now_ms)
        coordinator.runtime.plan_timer(number, shard, request.group_id)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            await coordinator.runtime.wait_replicated(number)
    except CoordinatorError as error:
        code = error.error_code
        return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
    return code


async def leave_group(coordinator: GroupCoordinator, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Handles LeaveGroup in the form of version 3.

    The error of an append is the response's; members of a classic group are gone all the same (P-392).
    """
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    write = coordinator.runtime.begin_write(request.group_id, classic_group_leave, request)
    response: LeaveGroupResponse = await coordinator.runtime.confirmed(request.group_id, write)
    return response


def classic_group_join(
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


def classic_group_sync(shard: GroupShard, now_ms: int, request: SyncGroupRequest, waiter: Waiter) -> GroupResult:
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


def classic_group_heartbeat(shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
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


def classic_group_leave(shard: GroupShard, now_ms: int, request: LeaveGroupRequest) -> GroupResult:
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
