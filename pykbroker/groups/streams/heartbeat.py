"""StreamsGroupHeartbeat on one group: a member joins, initializes the topology, follows its assignment or leaves.

An operation computes records and a response. The records change the group when they are appended. The operation itself
changes only the parts of the group that no record has: timers, the configured topology, endpoints and requests to shut
down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pykbroker.config.values import StreamsGroupValues
from pykbroker.groups.modern.checks import check_room, fenced_member_epoch
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.preparation import encode_in_steps
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult
from pykbroker.groups.streams.configured import ConfiguredTopology, InternalTopic, StatusCode, configure
from pykbroker.groups.streams.endpoints import endpoints_of
from pykbroker.groups.streams.group import NO_TOPOLOGY_EPOCH, STREAMS_GROUP_TYPE, StreamsGroup
from pykbroker.groups.streams.member import Endpoint, StreamsMember
from pykbroker.groups.streams.reconciliation import reconcile
from pykbroker.groups.streams.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    topology_record,
)
from pykbroker.groups.streams.target import ASSIGNOR, Assign, compute_target
from pykbroker.groups.streams.tasks import EMPTY_TASKS, MemberTasks, TaskMap, Tasks, task_map
from pykbroker.groups.streams.topology import StreamsTopology, topology_from, topology_value
from pykbroker.java_order import hash_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)
from pykbroker.protocol.steps import PIECE, Steps

GROUP_TIMER = ""
"""Member id of the timer that belongs to the whole group."""

DELAYED_INITIALLY = "Assignment delayed due to the configured initial rebalance delay."
DELAYED_BY_INTERVAL = "Assignment delayed due to the configured assignment interval."


@dataclass(slots=True)
class StreamsHeartbeatContext:
    """Context of a heartbeat: settings, topics, assignor, time and client.

    Attributes:
        settings: settings of this group.
        topics: the topics of the cluster.
        assign: the assignor.
        now_ms: time in ms since the epoch.
        client_id, client_host: of the client; the host in Java's notation.
        missing_topics: internal topics that the broker has to create; set by the operation.
    """

    settings: StreamsGroupValues
    topics: GroupTopics
    assign: Assign
    now_ms: int
    client_id: str
    client_host: str
    missing_topics: Mapping[str, InternalTopic] = field(default_factory=dict)


class Outcome(NamedTuple):
    """The result of a heartbeat beside its records.

    Attributes:
        epoch: the group epoch after the heartbeat.
        configured: the topology matched with the topics.
        statuses: the first statuses of the response; `finish_heartbeat` may add others.
        member: the member after the heartbeat.
        has_moved: True if its assignment has changed.
        listed: the tasks of each role for the response; None if it has none.
    """

    epoch: int
    configured: ConfiguredTopology
    statuses: list[Status]
    member: StreamsMember
    has_moved: bool
    listed: tuple[list[TaskIds], ...] | None


def heartbeat(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    context: StreamsHeartbeatContext,
    result: GroupResult,
) -> Steps[Outcome]:
    """Computes a heartbeat that is not a leave; the request was checked. `finish_heartbeat` must follow.

    If the group or the topics have changed after a step, the other steps must not be made. The steps made until then
    do no harm: another computation would do the same.

    Args:
        group: the group, which may be new.
        request: the request.
        context: settings, topics, assignor, time and client.
        result: takes the records.

    Raises:
        GroupError: the group refuses the member.
    """
    if request.member_epoch == 0:
        check_room(group, STREAMS_GROUP_TYPE, context.settings.max_size)
    owned = _owned_tasks(request)
    member = _find_or_add(group, request, owned)
    updated = _updated(member, request, context)
    must_raise = updated != member
    if must_raise:
        result.records.append(member_record(group.group_id, updated))
    if request.topology is None:
        topology = group.topology
    else:
        topology = yield from _declared(group, request.topology, result)
    if topology is None:
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
    statuses: list[Status] = []
    if group.topology is not None and updated.topology_epoch < group.topology.epoch:
        detail = (
            f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}."
        )
        statuses.append(_status(StatusCode.STALE_TOPOLOGY, detail))
    configured, epoch = yield from _raise_epoch(group, topology, request, context, result, must_raise=must_raise)
    _begin_initial_delay(group, context)
    target_epoch, target = yield from _update_target(group, epoch, updated, configured, context, result, statuses)
    reconciled = updated
    if not updated.is_reconciled_to(target_epoch):
        _check_reported(request)
        reconciled = yield from _reconcile(group, updated, target_epoch, target, owned, result)
    has_changed = request.member_epoch == 0 or reconciled.assigned != member.assigned
    listed = (yield from _listed(reconciled.assigned)) if has_changed else None
    if result.records:
        result.frames = yield from encode_in_steps(result.records)
    return Outcome(epoch, configured, statuses, reconciled, reconciled is not updated, listed)


def finish_heartbeat(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    context: StreamsHeartbeatContext,
    outcome: Outcome,
    *,
    is_known: bool,
) -> StreamsGroupHeartbeatResponse:
    """Response to a heartbeat, and what must be done once with it.

    Args:
        group, request, context: as for `heartbeat`.
        outcome: what `heartbeat` has computed.
        is_known: True if a group with this id is stored, of whichever type.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR: the partitions of a member with an endpoint are unknown.
    """
    epoch, configured, statuses, member, has_moved, listed = outcome
    if epoch > group.epoch:
        group.set_refreshed(context.now_ms, epoch)
    if has_moved:
        group.await_revocation(member, context.now_ms)
    deadline_ms = context.now_ms + context.settings.session_timeout_ms
    group.timers.schedule(TimerKind.SESSION, member.member_id, deadline_ms)
    if request.shutdown_application:
        group.request_shutdown(member.member_id)
    response = _response(group, request, member, listed, context, is_known=is_known)
    if configured.problem is not None:
        context.missing_topics = configured.missing
        statuses.append(_status(*configured.problem))
    if group.shutdown_member_id is not None:
        detail = (
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for "
            "the entire application."
        )
        statuses.append(_status(StatusCode.SHUTDOWN_APPLICATION, detail))
    response.status = statuses
    return response


def _status(code: StatusCode, detail: str) -> Status:
    return Status(status_code=int(code), status_detail=detail)


# The member


def _owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that a member reports; None if it does not report those of every role."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    active, standby, warmup = map(_reported, roles)
    return Tasks(active, standby, warmup)


def _reported(listed: Sequence[TaskIds]) -> TaskMap:
    found = task_map(listed)
    if len(found) == len(listed):
        return found
    numbers: dict[str, frozenset[int]] = {}
    for ids in listed:
        numbers[ids.subtopology_id] = numbers.get(ids.subtopology_id, frozenset()).union(ids.partitions)
    return numbers


def _check_reported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses a report that names a subtopology twice: Kafka fails when it makes a map of it.

    Called only for a member that is not at its target assignment yet.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR.
    """
    for role in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        if role and len({ids.subtopology_id for ids in role}) < len(role):
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _find_or_add(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: Tasks | None) -> StreamsMember:
    """The member; one of the previous epoch is accepted if it has no tasks but its own, as a response may be lost."""
    epoch = request.member_epoch
    if epoch == 0:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    member = group.find_member(request.member_id)
    if epoch == member.member_epoch:
        return member
    if epoch == member.previous_member_epoch and epoch < member.member_epoch and _owns_only_assigned(member, owned):
        return member
    raise fenced_member_epoch(STREAMS_GROUP_TYPE, epoch, member.member_epoch)


def _owns_only_assigned(member: StreamsMember, owned: Tasks | None) -> bool:
    if owned is None:
        return False
    roles = ((owned.active, member.assigned.active), (owned.standby, member.assigned.standby))
    return all(
        key in assigned and all(number in assigned[key] for number in numbers)
        for reported, assigned in (*roles, (owned.warmup, member.assigned.warmup))
        for key, numbers in reported.items()
    )


def _updated(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, context: StreamsHeartbeatContext
) -> StreamsMember:
    """The member with the fields of the request that describe its client."""
    tags, endpoint = member.client_tags, member.user_endpoint
    if request.client_tags is not None:
        tags = {tag.key: tag.value for tag in request.client_tags}
        if len(tags) < len(request.client_tags):
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.user_endpoint is not None:
        endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        client_tags=tags,
        user_endpoint=endpoint,
    )


# The topology


def _declared(group: StreamsGroup, topology: Topology, result: GroupResult) -> Steps[StreamsTopology]:
    """The topology of the group, which the first member with one initializes; there is no way to change it yet.

    Raises:
        GroupError: INVALID_REQUEST: another topology of the same or a newer epoch.
    """
    value = yield from topology_value(topology)
    declared = topology_from(value)
    yield
    if group.topology is None:
        result.records.append(topology_record(group.group_id, value, declared))
        return declared
    if group.topology.epoch <= declared.epoch and not group.topology.is_same_as(declared):
        raise GroupError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology


def _raise_epoch(
    group: StreamsGroup,
    topology: StreamsTopology,
    request: StreamsGroupHeartbeatRequest,
    context: StreamsHeartbeatContext,
    result: GroupResult,
    *,
    must_raise: bool,
) -> Steps[tuple[ConfiguredTopology, int]]:
    """The configured topology and the group epoch, which is raised if members, topics or configs have changed."""
    metadata_hash, configured = group.metadata_hash, group.configured
    if group.topology is None or configured is None or group.has_expired_metadata(context.now_ms):
        required = topology.required_topics
        if len(required) > PIECE:
            yield from context.topics.prepare_hashes(required)
        metadata_hash = context.topics.hash_of(required)
        has_changed = metadata_hash != group.metadata_hash
        must_raise = must_raise or has_changed
        if metadata_hash != group.configured_hash or has_changed or group.topology is None or configured is None:
            configured = yield from configure(topology, context.topics)
            group.set_configured(configured, metadata_hash)
    validated_epoch = NO_TOPOLOGY_EPOCH
    if configured.is_ready:
        validated_epoch = topology.epoch
        _check_tasks(configured, request)
        yield
    configs = _assignment_configs(context.settings)
    has_other_terms = validated_epoch != group.validated_topology_epoch or configs != group.assignment_configs
    epoch = group.epoch
    if must_raise or has_other_terms:
        epoch += 1
        result.records.append(epoch_record(group.group_id, epoch, metadata_hash, validated_epoch, configs))
        result.details.append(f"group {group.group_id}: epoch {epoch}")
    return configured, epoch


def _assignment_configs(settings: StreamsGroupValues) -> dict[str, str]:
    """Configs that are passed to the assignor; a change of one makes a new assignment necessary."""
    return {"num.standby.replicas": str(settings.num_standby_replicas)}


def _check_tasks(configured: ConfiguredTopology, request: StreamsGroupHeartbeatRequest) -> None:
    subtopologies = configured.subtopologies or {}
    for role in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for ids in role or ():
            subtopology = subtopologies.get(ids.subtopology_id)
            if subtopology is None:
                message = f"Subtopology {ids.subtopology_id} does not exist in the topology."
                raise GroupError(ErrorCode.INVALID_REQUEST, message)
            for number in ids.partitions:
                if not 0 <= number < subtopology.task_count:
                    message = (
                        f"Task {number} for subtopology {ids.subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {subtopology.task_count}"
                    )
                    raise GroupError(ErrorCode.INVALID_REQUEST, message)


# The assignment


def _begin_initial_delay(group: StreamsGroup, context: StreamsHeartbeatContext) -> None:
    """Delays the first assignment of an empty group, so that more members can join before it."""
    delay_ms = context.settings.initial_rebalance_delay_ms
    if not group.members and delay_ms > 0:
        group.timers.schedule_if_absent(TimerKind.INITIAL_REBALANCE, GROUP_TIMER, context.now_ms + delay_ms)


def _update_target(
    group: StreamsGroup,
    epoch: int,
    member: StreamsMember,
    configured: ConfiguredTopology,
    context: StreamsHeartbeatContext,
    result: GroupResult,
    statuses: list[Status],
) -> Steps[tuple[int, Tasks]]:
    """Epoch and target assignment of a member; a new one is computed once in the assignment interval."""
    if (TimerKind.INITIAL_REBALANCE, GROUP_TIMER) in group.timers:
        statuses.append(_status(StatusCode.ASSIGNMENT_DELAYED, DELAYED_INITIALLY))
        return group.assignment_epoch, EMPTY_TASKS
    if group.assignment_epoch >= epoch:
        return group.assignment_epoch, group.target_of(member.member_id)
    if not group.may_assign(context.now_ms, context.settings.assignment_interval_ms):
        statuses.append(_status(StatusCode.ASSIGNMENT_DELAYED, DELAYED_BY_INTERVAL))
        return group.assignment_epoch, group.target_of(member.member_id)
    configs = _assignment_configs(context.settings)
    records, target = yield from compute_target(
        group, epoch, member, configured, configs, context.assign, context.now_ms
    )
    result.records += records
    result.notes.append(f"group {group.group_id}: target assignment of epoch {epoch} by assignor {ASSIGNOR}")
    return epoch, target


def end_initial_delay(group: StreamsGroup, context: StreamsHeartbeatContext) -> Steps[GroupResult]:
    """Computes the first target assignment after the initial delay, with the configs at the group epoch.

    The group must not change between the steps.

    The next heartbeat computes it if the group has no member, if no heartbeat has configured the topology since the
    group was loaded, or after an error, which is then in the response.
    """
    result = GroupResult(applies_at_append=True)
    if not group.members or group.configured is None or group.epoch <= group.assignment_epoch:
        return result
    if not group.may_assign(context.now_ms, context.settings.assignment_interval_ms):
        return result
    configs, epoch = group.assignment_configs, group.epoch
    try:
        result.records, _ = yield from compute_target(
            group, epoch, None, group.configured, configs, context.assign, context.now_ms
        )
    except GroupError as error:
        result.notes.append(f"group {group.group_id}: the first assignment failed: {error}")
        return result
    result.frames = yield from encode_in_steps(result.records)
    result.notes.append(f"group {group.group_id}: target assignment of epoch {epoch} by assignor {ASSIGNOR}")
    return result


def _reconcile(
    group: StreamsGroup,
    member: StreamsMember,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
    result: GroupResult,
) -> Steps[StreamsMember]:
    reconciled = yield from reconcile(group, member, target_epoch, target, owned)
    yield
    if reconciled == member:
        return member
    result.records.append(current_record(group.group_id, reconciled))
    yield
    return reconciled


# The response


def _listed(assigned: MemberTasks) -> Steps[tuple[list[TaskIds], ...]]:
    """The tasks of each role for a response, in the order of Kafka's HashMaps of them."""
    roles = []
    for tasks in assigned:
        roles.append([TaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in hash_order(sorted(tasks))])
        yield
    return tuple(roles)


def _response(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    new: StreamsMember,
    listed: tuple[list[TaskIds], ...] | None,
    context: StreamsHeartbeatContext,
    *,
    is_known: bool,
) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
    )
    if listed is not None:
        response.active_tasks, response.standby_tasks, response.warmup_tasks = listed
        group.endpoints.pop(new.member_id, None)
        if new.user_endpoint is not None:
            group.endpoint_epoch += 1
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = endpoints_of(group, new, context.topics)
    if is_known:
        response.endpoint_information_epoch = group.endpoint_epoch
    return response


# Leaving


def leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> GroupResult:
    """Handles the heartbeat of a member that leaves; it may ask all other members to shut down.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID.
    """
    if request.shutdown_application:
        group.request_shutdown(request.member_id)
    result = remove_member(group, group.find_member(request.member_id))
    result.notes.append(f"group {group.group_id}: member {request.member_id} has left")
    result.response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, status=[]
    )
    return result


def remove_member(group: StreamsGroup, member: StreamsMember) -> GroupResult:
    """Records that remove a member and raise the group epoch.

    Its timers stay: a member whose tombstones cannot be appended is still there, and perhaps sends nothing more.
    """
    result = GroupResult(applies_at_append=True)
    result.records += member_tombstones(group.group_id, member.member_id)
    result.records.append(
        epoch_record(
            group.group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
    )
    return result
