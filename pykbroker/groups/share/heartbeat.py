"""ShareGroupHeartbeat on one group: a member joins, changes its subscription, follows its assignment or leaves.

An operation computes records and a response; it changes nothing of the group but timers and the metadata deadline.
The records change the group when they are appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykbroker.config.values import ShareGroupValues
from pykbroker.groups.modern.checks import check_not_blank, check_room, fenced_member_epoch
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH, Assignment
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult, Initialization
from pykbroker.groups.share.group import SHARE_GROUP_TYPE, ShareGroup, TopicState
from pykbroker.groups.share.initialization import initializing_record, missing_partitions
from pykbroker.groups.share.member import STABLE, ShareMember
from pykbroker.groups.share.records import current_record, epoch_record, member_record, member_tombstones
from pykbroker.groups.share.target import ASSIGNOR, compute_target
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import Assignment as AssignmentMessage
from pykbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker.protocol.steps import Steps, list_in_steps


@dataclass(slots=True)
class ShareHeartbeatContext:
    """Context of a heartbeat: settings, topics, time and client.

    Attributes:
        settings: settings of this group.
        topics: the topics of the cluster.
        now_ms: time in ms since the epoch.
        client_id, client_host: of the client; the host in Java's notation.
        initialization: what the coordinator has to ask of the share coordinator; set by the operation.
    """

    settings: ShareGroupValues
    topics: GroupTopics
    now_ms: int
    client_id: str
    client_host: str
    initialization: Initialization | None = field(default=None)


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Refuses a request that is malformed by itself.

    Raises:
        GroupError: INVALID_REQUEST.
    """
    check_not_blank(("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id))
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        raise GroupError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH:
        raise GroupError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def heartbeat(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, context: ShareHeartbeatContext
) -> Steps[GroupResult]:
    """Handles a heartbeat that is not a leave; the request was checked.

    If the group or the topics have changed after a step, the other steps must not be made. The steps made until then
    do no harm.

    Raises:
        GroupError: the group refuses the member.
    """
    result = GroupResult(applies_at_append=True)
    if request.member_id not in group.members:
        check_room(group, SHARE_GROUP_TYPE, context.settings.max_size)
    member = _find_or_add(group, request)
    names = request.subscribed_topic_names
    updated = member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        client_id=context.client_id,
        client_host=context.client_host,
    )
    if updated != member:
        result.records.append(member_record(group.group_id, updated))
    must_raise = updated.subscribed_topic_names != member.subscribed_topic_names
    if group.assignment_epoch >= group.epoch and not must_raise:
        must_raise = yield from group.has_unassigned_partitions()
    is_known = member.member_id in group.members
    raised = yield from _raise_epoch(
        group, member if is_known else None, updated, context, result, must_raise=must_raise
    )
    target_epoch, target = yield from _update_target(group, raised, updated, context, result)
    reconciled = _reconcile(updated, target_epoch, target, context.topics, has_changed=raised.is_raised)
    yield
    if reconciled != updated:
        result.records.append(current_record(group.group_id, reconciled))
        yield
    deadline_ms = context.now_ms + context.settings.session_timeout_ms
    group.timers.schedule(TimerKind.SESSION, reconciled.member_id, deadline_ms)
    response = ShareGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
    )
    if request.member_epoch == 0 or names is not None or reconciled.assigned != member.assigned:
        assigned = yield from list_in_steps(
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in reconciled.assigned.items()
        )
        response.assignment = AssignmentMessage(topic_partitions=assigned)
    yield from _initialize_missing(group, raised, context, result)
    result.response = response
    return result


class _Epoch(NamedTuple):
    """The group epoch after a heartbeat, and the group's subscriptions at it.

    `topics` is empty if the state of all of them is known to be initialized.
    """

    epoch: int
    is_raised: bool
    is_homogeneous: bool
    topics: frozenset[str]


def _raise_epoch(
    group: ShareGroup,
    old: ShareMember | None,
    new: ShareMember,
    context: ShareHeartbeatContext,
    result: GroupResult,
    *,
    must_raise: bool,
) -> Steps[_Epoch]:
    """Raises the group epoch if subscriptions, topics or initialized partitions have changed."""
    if not must_raise and not group.has_expired_metadata(context.now_ms):
        to_initialize = () if group.has_all_states(context.topics) else group.subscriptions.topics
        return _Epoch(group.epoch, False, group.is_homogeneous, frozenset(to_initialize))
    subscriptions = group.subscriptions.copy()
    subscriptions.replace_member(old, new)
    yield
    metadata_hash = context.topics.hash_of(subscriptions.topics)
    yield
    epoch = group.epoch
    is_raised = must_raise or metadata_hash != group.metadata_hash
    if is_raised:
        epoch += 1
        result.records.append(epoch_record(group.group_id, epoch, metadata_hash))
        result.details.append(f"group {group.group_id}: epoch {epoch}")
    group.set_refreshed(context.now_ms, epoch)
    count = len(group.members) + (old is None)
    return _Epoch(epoch, is_raised, subscriptions.are_homogeneous(count), frozenset(subscriptions.topics))


def _update_target(
    group: ShareGroup, raised: _Epoch, member: ShareMember, context: ShareHeartbeatContext, result: GroupResult
) -> Steps[tuple[int, Assignment]]:
    """Epoch and target assignment of a member; a new one is computed once in the assignment interval."""
    interval_ms = context.settings.assignment_interval_ms
    if group.assignment_epoch >= raised.epoch or not group.may_assign(context.now_ms, interval_ms):
        return group.assignment_epoch, group.target_of(member.member_id)
    records, target = yield from compute_target(
        group, raised.epoch, member, context.topics, context.now_ms, is_homogeneous=raised.is_homogeneous
    )
    result.records += records
    result.notes.append(f"group {group.group_id}: target assignment of epoch {raised.epoch} by assignor {ASSIGNOR}")
    return raised.epoch, target


def _reconcile(
    member: ShareMember, target_epoch: int, target: Assignment, topics: GroupTopics, *, has_changed: bool
) -> ShareMember:
    """The member at the target epoch: it takes the whole target at once, without topics that it has left."""
    if not has_changed and member.is_reconciled_to(target_epoch):
        return member
    subscribed = topics.ids_of(member.subscribed_topic_names)
    assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    if target_epoch == member.member_epoch:
        return member._replace(assigned=assigned) if has_changed else member
    return member._replace(
        state=STABLE,
        assigned=assigned,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
    )


def _initialize_missing(
    group: ShareGroup, raised: _Epoch, context: ShareHeartbeatContext, result: GroupResult
) -> Steps[None]:
    if not raised.topics:
        return
    retry_ms = context.settings.initialize_retry_interval_ms
    missing = yield from missing_partitions(group, sorted(raised.topics), context.topics, context.now_ms, retry_ms)
    if not missing:
        # A partition that is being initialized counts as missing again after the retry interval.
        if not raised.is_raised and not group.initializing:
            group.note_all_states(context.topics)
        return
    result.records.append((yield from initializing_record(group, missing, context.topics, context.now_ms)))
    context.initialization = initialization_of(group.group_id, raised.epoch, missing)


def initialization_of(group_id: str, state_epoch: int, missing: Mapping[bytes, TopicState]) -> Initialization:
    """The request to the share coordinator for partitions that are noted as initializing."""
    partitions = {topic_id: state.partitions for topic_id, state in missing.items()}
    return Initialization(group_id, state_epoch, partitions)


def leave(group: ShareGroup, request: ShareGroupHeartbeatRequest, context: ShareHeartbeatContext) -> GroupResult:
    """Handles the heartbeat of a member that leaves.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID.
    """
    result = remove_member(group, group.find_member(request.member_id), context.topics)
    result.notes.append(f"group {group.group_id}: member {request.member_id} has left")
    result.response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return result


def remove_member(group: ShareGroup, member: ShareMember, topics: GroupTopics) -> GroupResult:
    """Records that remove a member and raise the group epoch."""
    result = GroupResult(applies_at_append=True)
    result.records += member_tombstones(group.group_id, member.member_id)
    subscriptions = group.subscriptions.copy()
    subscriptions.replace_member(member, None)
    metadata_hash = topics.hash_of(subscriptions.topics)
    result.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return result


def _find_or_add(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    epoch = request.member_epoch
    if epoch == 0:
        return group.members.get(request.member_id) or ShareMember(request.member_id)
    member = group.find_member(request.member_id)
    if epoch in (member.member_epoch, member.previous_member_epoch):
        return member
    addition = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    is_smaller = epoch < member.member_epoch
    raise fenced_member_epoch(SHARE_GROUP_TYPE, epoch, member.member_epoch, addition if is_smaller else "")
