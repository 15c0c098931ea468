"""The checks of StreamsGroupHeartbeat that need no group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NoReturn

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.groups.modern.checks import check_not_blank
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVE_GROUP_STATIC_MEMBER_EPOCH
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
    _check_supported(request)
    check_not_blank(
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    )
    if request.member_epoch == 0:
        _check_join(request)
    _check_epoch(request)
    _check_tasks(request)


def _refuse(message: str) -> NoReturn:
    raise GroupError(ErrorCode.INVALID_REQUEST, message)


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        _refuse("Static membership is not yet supported.")
    if request.task_offsets is not None:
        _refuse("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        _refuse("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        _refuse("WarmupTasks are not supported yet.")
    subtopologies = () if request.topology is None else request.topology.subtopologies
    if any(subtopology.source_topic_regex for subtopology in subtopologies):
        _refuse("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        _refuse("RebalanceTimeoutMs must be provided in first request.")
    roles: tuple[tuple[str, Collection[object] | None], ...] = (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    )
    for role, tasks in roles:
        # Kafka checks a missing list with the ones that are not empty.
        if tasks is None or tasks:
            _refuse(f"{role} must be empty when (re-)joining.")
    if request.topology is None:
        _refuse("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                message = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
                raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_epoch(request: StreamsGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        _refuse("InstanceId can't be null.")
    if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        _refuse(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")


def _check_tasks(request: StreamsGroupHeartbeatRequest) -> None:
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is not None for tasks in roles) and any(tasks is None for tasks in roles):
        _refuse(ALL_ROLES)
    if request.member_epoch != 0 and request.topology is not None:
        _refuse("Topology can only be provided when (re-)joining.")
