"""The records of Streams groups in `__consumer_offsets`, with Kafka's keys, versions and values (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.group import RECORD_TYPES
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.tasks import ActiveTasks, TaskMap, Tasks
from pykbroker.groups.streams.topology import StreamsTopology
from pykbroker.protocol.log_messages.streams_group_records import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)
from pykbroker.protocol.steps import Steps

member_tombstones = RECORD_TYPES.member_tombstones


def member_record(group_id: str, member: StreamsMember) -> LogRecord:
    """The client of a member."""
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=text) for key, text in sorted(member.client_tags.items())],
    )
    return LogRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue, topology: StreamsTopology) -> LogRecord:
    """The topology of the application, of which `value` was made."""
    return LogRecord(StreamsGroupTopologyKey(group_id=group_id), value, state=topology)


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> LogRecord:
    """The group epoch, and the values that are compared later to find a change."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[LastAssignmentConfig(key=key, value=text) for key, text in sorted(configs.items())],
    )
    return LogRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Tasks) -> Steps[LogRecord]:
    """The target assignment of a member."""
    active_tasks = _target_ids(target.active)
    yield
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=active_tasks,
        standby_tasks=_target_ids(target.standby),
        warmup_tasks=_target_ids(target.warmup),
    )
    return LogRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def _target_ids(tasks: TaskMap) -> list[TaskIds]:
    return [TaskIds(subtopology_id=key, partitions=sorted(numbers)) for key, numbers in sorted(tasks.items())]


def current_record(group_id: str, member: StreamsMember) -> LogRecord:
    """The current assignment of a member."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        active_tasks=_active_ids(member.assigned.active),
        standby_tasks=_current_ids(member.assigned.standby),
        warmup_tasks=_current_ids(member.assigned.warmup),
        active_tasks_pending_revocation=_active_ids(member.pending_revocation.active),
        standby_tasks_pending_revocation=_current_ids(member.pending_revocation.standby),
        warmup_tasks_pending_revocation=_current_ids(member.pending_revocation.warmup),
    )
    return LogRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _current_ids(tasks: TaskMap) -> list[StreamsGroupCurrentMemberAssignmentTaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentTaskIds(subtopology_id=key, partitions=sorted(numbers))
        for key, numbers in sorted(tasks.items())
    ]


def _active_ids(tasks: ActiveTasks) -> list[StreamsGroupCurrentMemberAssignmentTaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentTaskIds(
            subtopology_id=key,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[number] for number in sorted(epochs)],
        )
        for key, epochs in sorted(tasks.items())
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[LogRecord]:
    """Tombstones of everything that is stored for a group."""
    after = [StreamsGroupTopologyKey(group_id=group_id)]
    return RECORD_TYPES.group_tombstones(group_id, member_ids, after=after)
