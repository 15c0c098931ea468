"""The checks of StreamsGroupHeartbeat that need no group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from pykbroker.java_order import is_blank
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology

ALL_ROLES = "If one task-type is non-null, all must be non-null."


def named_topics(topology: Topology | None) -> list[str]:
    """All topics of a topology, each once, in the order in which the client names them."""

    def named() -> Iterator[str]:
        for subtopology in () if topology is None else topology.subtopologies:
            yield from subtopology.source_topics
            yield from subtopology.repartition_sink_topics
            yield from (topic.name for topic in subtopology.repartition_source_topics)
            yield from (topic.name for topic in subtopology.state_changelog_topics)

    return list(dict.fromkeys(named()))


def check_names(names: Iterable[str]) -> None:
    """Refuses topics that no topology may name.

    Raises:
        GroupError: STREAMS_INVALID_TOPOLOGY.
    """
    listed = list(names)
    internal = [name for name in listed if name in INTERNAL_TOPICS]
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = [name for name in listed if reason_invalid(name) is not None]
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses a request that is malformed by itself, or asks for what Kafka 4.3 does not have.

    Raises:
        GroupError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    for find in (_unsupported, _empty, _join_error, _leave_error, _tasks_error):
        message = find(request)
        if message is not None:
            raise GroupError(ErrorCode.INVALID_REQUEST, message)
        if find is _join_error:
            _check_changelogs(request)


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        return "WarmupTasks are not supported yet."
    subtopologies = () if request.topology is None else request.topology.subtopologies
    if any(subtopology.source_topic_regex for subtopology in subtopologies):
        return "Regular expressions for source topics are not supported yet."
    return None


def _empty(request: StreamsGroupHeartbeatRequest) -> str | None:
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and is_blank(value):
            return f"{name} can't be empty."
    return None


def _join_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.member_epoch != 0:
        return None
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    roles: tuple[tuple[str, Collection[object] | None], ...] = (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    )
    for role, tasks in roles:
        # Kafka checks a missing list with the ones that are not empty.
        if tasks is None or tasks:
            return f"{role} must be empty when (re-)joining."
    return "Topology must be non-null when (re-)joining." if request.topology is None else None


def _check_changelogs(request: StreamsGroupHeartbeatRequest) -> None:
    if request.member_epoch != 0 or request.topology is None:
        return
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                message = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
                raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _leave_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    epoch = request.member_epoch
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    return None


def _tasks_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is not None for tasks in roles) and any(tasks is None for tasks in roles):
        return ALL_ROLES
    if request.member_epoch != 0 and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None
