"""ConsumerGroupHeartbeat on one group: a member joins, changes its subscription, follows its assignment or leaves.

An operation computes records and a response; it changes nothing of the group but timers and the metadata deadline.
The records change the group when they are appended.
"""

from __future__ import annotations

from typing import Any

from pykbroker.config.values import ConsumerGroupValues
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import CONSUMER_GROUP_TYPE, ConsumerGroup
from pykbroker.groups.consumer.leaving import fence_members
from pykbroker.groups.consumer.member import NO_PARTITION_EPOCHS, ConsumerMember
from pykbroker.groups.consumer.reconciliation import OwnedPartitions, Target, reconcile
from pykbroker.groups.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    subscription_metadata_tombstone,
    target_record,
)
from pykbroker.groups.consumer.regexes import RegexChange, change_regex, refresh_needed
from pykbroker.groups.consumer.target import compute_target, subscribed_names
from pykbroker.groups.modern.checks import check_not_blank, check_room, fenced_member_epoch
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykbroker.protocol.steps import Steps, finished, list_in_steps


def heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: HeartbeatContext
) -> Steps[GroupResult]:
    """Handles a heartbeat that is not a leave; the request was checked, and its member id is not empty.

    If the group or the topics have changed after a step, the other steps must not be made. The steps made until then
    do no harm, except that the group waits for a refresh that they have put into `context.regex_refresh`.

    Raises:
        GroupError: the group refuses the member.
    """
    result = GroupResult(applies_at_append=True)
    owned = None if request.topic_partitions is None else [(t.topic_id, t.partitions) for t in request.topic_partitions]
    if request.member_id not in group.members:
        check_room(group, CONSUMER_GROUP_TYPE, context.settings.max_size)
    member = _find_or_add(group, request, owned, result.records)
    changed = _with_request(member, request, context)
    updated = yield from update_member(group, member, changed, owned, context, result)
    group.timers.schedule(TimerKind.SESSION, updated.member_id, context.now_ms + context.settings.session_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
    )
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    is_full = request.rebalance_timeout_ms != -1 and has_subscription and owned is not None
    if request.member_epoch == 0 or is_full or member.assigned != updated.assigned:
        assigned = yield from list_in_steps(
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in updated.assigned.items()
        )
        response.assignment = Assignment(topic_partitions=assigned)
    result.response = response
    return result


def update_member(
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    owned: OwnedPartitions | None,
    context: HeartbeatContext,
    result: GroupResult,
) -> Steps[ConsumerMember]:
    """Appends the records of a changed member, of a new group epoch and target if these are due, and of its next step.

    Returns:
        The member after its next step to the target.
    """
    records = result.records
    if new is not old and new != old:
        records.append(member_record(group.group_id, new))
    have_names_changed = new.subscribed_topic_names != old.subscribed_topic_names
    regex = change_regex(group, old, new, records)
    context.regex_refresh = refresh_needed(group, old, new, context)
    must_raise = have_names_changed or regex is RegexChange.CHANGED_AND_RESOLVED
    epoch, is_homogeneous = yield from raise_epoch(group, old, new, context, result, must_raise=must_raise)
    target = yield from update_target(group, epoch, old, new, context, result, is_homogeneous=is_homogeneous)
    return (
        yield from reconcile_member(
            group,
            new,
            target,
            owned,
            context,
            records,
            has_subscription_changed=have_names_changed or regex is not RegexChange.NONE,
        )
    )


def raise_epoch(
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    context: HeartbeatContext,
    result: GroupResult,
    *,
    must_raise: bool,
) -> Steps[tuple[int, bool]]:
    """The group epoch, raised if subscriptions or topics have changed; and True if all members subscribe alike."""
    if not must_raise and not group.has_expired_metadata(context.now_ms):
        return group.epoch, group.is_homogeneous
    subscriptions = group.subscriptions.copy()
    subscriptions.replace_member(old, new)
    gone = old.subscribed_topic_regex
    if gone and gone not in subscriptions.regexes and gone in group.resolved:
        subscriptions.replace_resolved(group.resolved[gone].topics, ())
    count = len(group.members)
    if new.member_id not in group.members and group.static_member(new.instance_id) is None:
        count += 1
    yield
    metadata_hash = context.topics.hash_of(subscriptions.topics)
    yield
    epoch = group.epoch
    if must_raise or metadata_hash != group.metadata_hash:
        epoch += 1
        result.records.append(epoch_record(group.group_id, epoch, metadata_hash))
        result.details.append(f"group {group.group_id}: epoch {epoch}")
    group.set_refreshed(context.now_ms, epoch)
    if group.has_partition_metadata:
        result.records.append(subscription_metadata_tombstone(group.group_id))
    return epoch, subscriptions.are_homogeneous(count)


def update_target(
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerMember,
    new: ConsumerMember,
    context: HeartbeatContext,
    result: GroupResult,
    *,
    is_homogeneous: bool,
) -> Steps[Target]:
    """The member's target assignment; a new one is computed for a raised epoch, once in the assignment interval."""
    interval_ms = context.settings.assignment_interval_ms
    if group.assignment_epoch >= epoch or not group.may_assign(context.now_ms, interval_ms):
        return Target(group.assignment_epoch, group.target_for(new))
    assignor = group.preferred_assignor(old, new) or context.settings.assignors[0]
    records, target = yield from compute_target(
        group, epoch, new, assignor, context.topics, context.now_ms, is_homogeneous=is_homogeneous
    )
    result.records += records
    result.notes.append(f"group {group.group_id}: target assignment of epoch {epoch} by assignor {assignor}")
    return Target(epoch, target)


def reconcile_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    owned: OwnedPartitions | None,
    context: HeartbeatContext,
    records: list[LogRecord],
    *,
    has_subscription_changed: bool,
) -> Steps[ConsumerMember]:
    """The member after its next step to the target; its rebalance timeout starts if it has partitions to give up."""
    if not has_subscription_changed and member.is_reconciled_to(target.epoch):
        return member
    names = subscribed_names(member, group.resolved)
    subscribed_ids = context.topics.ids_of(names)
    updated = yield from reconcile(
        member,
        target,
        subscribed_ids,
        group.owner_epoch,
        owned,
        has_subscription_changed=has_subscription_changed,
        subscribes=bool(names),
    )
    if updated == member:
        return updated
    yield
    records.append((yield from current_record(group.group_id, updated)))
    yield
    if updated.classic is None:
        group.await_revocation(updated, context.now_ms)
    return updated


def leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: HeartbeatContext) -> GroupResult:
    """Handles the heartbeat of a member that leaves: epoch -1, or -2 for a static member that will come back.

    Raises:
        GroupError: the member is unknown, or another member has its instance id.
    """
    member = find_member(group, request.member_id, request.instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None or request.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        result = fence_members(group, [member], context.settings, context.topics, context.now_ms)
        result.notes.append(f"group {group.group_id}: member {member.member_id} has left")
        result.response = response
        return result
    away = member._replace(
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        pending_revocation=NO_PARTITION_EPOCHS,
        # The static member that rejoins, under a new member id, gets the partitions with assignment epoch 0.
        assigned={topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()},
    )
    note = f"group {group.group_id}: static member {member.member_id} ({member.instance_id}) has left and may come back"
    return GroupResult(
        records=[finished(current_record(group.group_id, away))],
        response=response,
        notes=[note],
        applies_at_append=True,
    )


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member with this member id, which must also have the instance id if there is one.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if instance_id is None:
        return group.find_member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise GroupError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def replace_static_member(
    group: ConsumerGroup, old: ConsumerMember, member_id: str, records: list[LogRecord]
) -> ConsumerMember:
    """Appends the records that replace a static member's id by a new one; returns the new member, at epoch 0."""
    new = old._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_tombstones(group.group_id, old.member_id)
    records.append(member_record(group.group_id, new))
    records.append(finished(target_record(group.group_id, member_id, group.target_of(old.member_id))))
    records.append(finished(current_record(group.group_id, new)))
    return new


def _with_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: HeartbeatContext
) -> ConsumerMember:
    """The member with the fields of the request; the same value if none is set, as in most heartbeats."""
    timeout_ms, names = request.rebalance_timeout_ms, request.subscribed_topic_names
    fields: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
        "server_assignor": request.server_assignor,
        "subscribed_topic_names": None if names is None else frozenset(names),
        "subscribed_topic_regex": request.subscribed_topic_regex,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    is_same_client = member.client_id == context.client_id and member.client_host == context.client_host
    if not given and is_same_client and member.classic is None:
        return member
    return member._replace(**given, client_id=context.client_id, client_host=context.client_host, classic=None)


def _find_or_add(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    owned: OwnedPartitions | None,
    records: list[LogRecord],
) -> ConsumerMember:
    is_joining = request.member_epoch == 0
    if is_joining and request.instance_id is None and request.member_id not in group.members:
        return ConsumerMember(request.member_id)
    if request.instance_id is None or not is_joining:
        member = find_member(group, request.member_id, request.instance_id)
        _check_epoch(member, request.member_epoch, owned)
        return member
    existing = group.static_member(request.instance_id)
    if existing is None:
        return group.members.get(request.member_id) or ConsumerMember(request.member_id)
    if existing.classic is None and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise GroupError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {existing.member_id} member.",
        )
    return replace_static_member(group, existing, request.member_id, records)


def _check_epoch(member: ConsumerMember, epoch: int, owned: OwnedPartitions | None) -> None:
    """Fences a member with another epoch.

    One with the previous epoch is let in if it owns nothing that was not assigned to it: the response with its new
    epoch may have been lost. Epoch 0 joins again.
    """
    if epoch in (0, member.member_epoch):
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and owned is not None:
        assigned = member.assigned
        if all(number in assigned.get(topic_id, {}) for topic_id, numbers in owned for number in numbers) and all(
            topic_id in assigned for topic_id, _ in owned
        ):
            return
    raise fenced_member_epoch(CONSUMER_GROUP_TYPE, epoch, member.member_epoch)


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, settings: ConsumerGroupValues) -> None:
    """Refuses a request that no group would accept.

    Raises:
        GroupError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    member_id_required = api_version >= 1 or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH
    check_not_blank(
        ("MemberId", request.member_id if member_id_required else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    )
    reason = None
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            reason = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            reason = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            reason = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        reason = "InstanceId can't be null."
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        reason = "MemberEpoch is invalid."
    if reason is not None:
        raise GroupError(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        supported = ", ".join(settings.assignors)
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise GroupError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
