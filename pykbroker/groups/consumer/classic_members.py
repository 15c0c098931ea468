"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

A generation is the member's epoch, and there is no leader: each member gets its own assignment from the broker, so its
join does not wait for others.
"""

from __future__ import annotations

from pykbroker.config.values import ConsumerGroupValues
from pykbroker.groups.classic.joins import KNOWN_MEMBER_ID_VERSION
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import CONSUMER_GROUP_TYPE, ConsumerGroup
from pykbroker.groups.consumer.heartbeat import (
    find_member,
    raise_epoch,
    reconcile_member,
    replace_static_member,
    update_target,
)
from pykbroker.groups.consumer.leaving import fence_members
from pykbroker.groups.consumer.member import ClassicMember, ConsumerMember, MemberState
from pykbroker.groups.consumer.migration import (
    can_downgrade,
    decode_subscription,
    downgrade,
    encode_assignment,
)
from pykbroker.groups.consumer.reconciliation import OwnedPartitions, Target
from pykbroker.groups.consumer.records import member_record
from pykbroker.groups.consumer.regexes import RegexChange, change_regex, refresh_needed
from pykbroker.groups.modern.checks import check_room
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import ClassicJoined, ClassicTimers, GroupResult
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.protocol.steps import finished

NO_REBALANCE_TIMEOUT = -1
"""Rebalance timeout of a request without one: the member keeps its present timeout."""


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    api_version: int,
    new_member_id: str,
    waiter: Waiter,
    context: HeartbeatContext,
) -> GroupResult:
    """Handles JoinGroup of a group with members; `waiter` is answered when the records are stored.

    Args:
        group: the group.
        request: the request, whose session timeout was checked.
        api_version: its version; from 4 on a new dynamic member is first given an id.
        new_member_id: a fresh id, for a member that has none.
        waiter: of the request.
        context: as for a heartbeat.

    Raises:
        GroupError: the group refuses the member.
    """
    result = GroupResult(applies_at_append=True)
    if not context.settings.is_migration_enabled:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_unknown = request.member_id == ""
    member_id = new_member_id if is_unknown else request.member_id
    if member_id not in group.members:
        check_room(group, CONSUMER_GROUP_TYPE, context.settings.max_size)
    if not group.supports_classic(request.protocol_type, [protocol.name for protocol in request.protocols]):
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if is_unknown and request.group_instance_id is None and api_version >= KNOWN_MEMBER_ID_VERSION:
        result.reply(waiter, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _join(group, request, member_id, waiter, context, result)
    return result


def _join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    waiter: Waiter,
    context: HeartbeatContext,
    result: GroupResult,
) -> None:
    """Adds or changes the member, moves it towards its target assignment, and answers the request."""
    existing = group.static_member(request.group_instance_id)
    member = _find_or_add(group, request, member_id, existing, result)
    subscription = _subscription(request)
    updated = _with_values(member, request, subscription, context)
    if updated != member:
        result.records.append(member_record(group.group_id, updated))
    have_names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
    regex = change_regex(group, member, updated, result.records)
    has_changed = have_names_changed or regex is not RegexChange.NONE
    epoch, is_homogeneous = finished(raise_epoch(group, member, updated, context, result, must_raise=has_changed))
    owned = _owned(subscription, context.topics)
    is_downgrade = existing is not None and can_downgrade(group, [existing], context.settings, is_replaced=True)
    if is_downgrade:
        updated = _downgrade(group, updated, epoch, owned, context, result, has_subscription_changed=has_changed)
    else:
        target = finished(update_target(group, epoch, member, updated, context, result, is_homogeneous=is_homogeneous))
        updated = finished(
            reconcile_member(
                group, updated, target, owned, context, result.records, has_subscription_changed=has_changed
            )
        )
    assert updated.classic is not None
    # Last, because it marks the resolution as running: nothing may fail after it.
    result.regex_refresh = refresh_needed(group, member, updated, context)
    response = JoinGroupResponse(
        member_id=updated.member_id,
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=updated.classic.protocols[0][0],
    )
    timers = ClassicTimers(group.group_id, updated.member_id, request.session_timeout_ms, request.rebalance_timeout_ms)
    if result.records:
        result.stored = ClassicJoined(group.group_id, waiter, response, None if is_downgrade else timers)
    else:
        result.response = response
        result.reply(waiter, response)
        result.timers = timers


def _with_values(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    context: HeartbeatContext,
) -> ConsumerMember:
    """The member with the values of its JoinGroup request."""
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT
        else request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )


def start_timers(group: ConsumerGroup, timers: ClassicTimers, now_ms: int) -> None:
    """Starts a member's session and, if it has to send SyncGroup, the time for that; ends the wait for its request."""
    member_id = timers.member_id
    group.timers.schedule(TimerKind.SESSION, member_id, now_ms + timers.session_timeout_ms)
    if timers.sync_timeout_ms is None:
        group.timers.cancel(TimerKind.CLASSIC_SYNC, member_id)
    else:
        group.timers.cancel(TimerKind.CLASSIC_JOIN, member_id)
        group.timers.schedule(TimerKind.CLASSIC_SYNC, member_id, now_ms + timers.sync_timeout_ms)


def _downgrade(
    group: ConsumerGroup,
    joining: ConsumerMember,
    epoch: int,
    owned: OwnedPartitions,
    context: HeartbeatContext,
    result: GroupResult,
    *,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """Makes a classic group, in which the joining member takes the place of the last one of the consumer protocol."""
    reason = None
    if group.assignment_epoch < epoch:
        reason = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
    else:
        target = Target(group.assignment_epoch, group.target_for(joining))
        joining = finished(
            reconcile_member(
                group,
                joining,
                target,
                owned,
                context,
                result.records,
                has_subscription_changed=has_subscription_changed,
            )
        )
    downgrade(group, [], joining, reason, context.settings, context.topics, context.now_ms, result)
    return joining


def _find_or_add(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    existing: ConsumerMember | None,
    result: GroupResult,
) -> ConsumerMember:
    if request.group_instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id != "":
        return find_member(group, member_id, request.group_instance_id)
    if existing is None:
        return ConsumerMember(member_id)
    return replace_static_member(group, existing, member_id, result.records)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(bytes(request.protocols[0].metadata))
    except ProtocolError as error:
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _owned(subscription: ConsumerProtocolSubscription, topics: GroupTopics) -> OwnedPartitions:
    return [
        (topic_id, topic.partitions)
        for topic in subscription.owned_partitions
        if (topic_id := topics.id_of(topic.topic)) is not None
    ]


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, waiter: Waiter, topics: GroupTopics, now_ms: int
) -> GroupResult:
    """Handles SyncGroup: answers with the member's present assignment.

    Raises:
        GroupError: the member must join again, or is unknown.
    """
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    if member.member_epoch != request.generation_id:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION)
    name, subscription = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(group, member, now_ms)
        raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
    partitions = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(partitions, subscription, topics),
    )
    timers = ClassicTimers(group.group_id, member.member_id, classic.session_timeout_ms)
    return GroupResult(response=response, replies=[(waiter, response)], timers=timers)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    """Handles Heartbeat; REBALANCE_IN_PROGRESS if the member has to join again to follow its assignment.

    Raises:
        GroupError: the member is unknown, fenced or of another generation.
    """
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    if member.member_epoch != request.generation_id:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION)
    group.timers.schedule(TimerKind.SESSION, member.member_id, now_ms + classic.session_timeout_ms)
    can_take_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_partitions(member)
    must_revoke = member.state is MemberState.UNREVOKED_PARTITIONS
    if member.member_epoch < group.assignment_epoch or must_revoke or can_take_more:
        _await_join(group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    group: ConsumerGroup, request: LeaveGroupRequest, settings: ConsumerGroupValues, topics: GroupTopics, now_ms: int
) -> GroupResult:
    """Handles LeaveGroup in the form of version 3; members of both protocols can be removed by it."""
    responses, leaving = [], {}
    for identity in request.members:
        response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            owner = group.static_ids.get(identity.group_instance_id or "", "")
            member = find_member(group, identity.member_id or owner, identity.group_instance_id)
            leaving[member.member_id] = member
        except GroupError as error:
            response.error_code = error.error_code
        responses.append(response)
    result = fence_members(group, list(leaving.values()), settings, topics, now_ms)
    result.response = LeaveGroupResponse(members=responses)
    return result


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMember]:
    member = find_member(group, member_id, instance_id)
    if member.classic is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _await_join(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    deadline_ms = now_ms + member.rebalance_timeout_ms
    group.timers.schedule_if_absent(TimerKind.CLASSIC_JOIN, member.member_id, deadline_ms)
