"""One Streams group (KIP-1071): what its records say, and the process that has each task."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.modern.group import NO_ASSIGNMENT_EPOCH, EpochGroup
from pykbroker.groups.modern.timers import SoftState
from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.configured import ConfiguredTopology
from pykbroker.groups.streams.member import StreamsMember, with_current_assignment, with_metadata
from pykbroker.groups.streams.tasks import EMPTY_TASKS, TaskMap, Tasks, task_map
from pykbroker.groups.streams.topology import StreamsTopology, topology_from
from pykbroker.protocol.log_messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from pykbroker.protocol.messages.streams_group_heartbeat import EndpointToPartitions

STREAMS_GROUP_TYPE = "streams"
NO_TOPOLOGY_EPOCH = -1

StreamsGroupKey = (
    StreamsGroupMetadataKey
    | StreamsGroupMemberMetadataKey
    | StreamsGroupTargetAssignmentMetadataKey
    | StreamsGroupTargetAssignmentMemberKey
    | StreamsGroupCurrentMemberAssignmentKey
    | StreamsGroupTopologyKey
)


class StreamsGroup(EpochGroup[StreamsMember]):
    """A Streams group; `replay` is the only way to change what its records say.

    Attributes:
        topology: the topology of the application; None before its record.
        validated_topology_epoch: epoch of the topology for which all topics were there; -1 for none.
        assignment_configs: the configs at `epoch`, a change of which asks for a new assignment.
        targets: member id -> target assignment.

    Not stored, and lost with the object, as in Kafka:

    Attributes:
        configured: the topology beside the topics that exist; None until a heartbeat has looked at them.
        endpoint_epoch: raised with each change of the tasks of a member with an endpoint.
        endpoints: member id -> its endpoint and the partitions there, as far as they were computed.
        shutdown_member_id: the member that asks all others to stop, until the group is empty.
    """

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.topology: StreamsTopology | None = None
        # Kafka's initial value, which a group that was never validated shares with a first topology's epoch.
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        self.targets: dict[str, Tasks] = {}
        self.configured: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self.endpoints: dict[str, EndpointToPartitions] = {}
        self.shutdown_member_id: str | None = None
        self._required_topics: frozenset[str] = frozenset()
        self._active_processes: dict[str, dict[int, str]] = {}
        self._standby_processes: dict[str, dict[int, set[str]]] = {}
        self._warmup_processes: dict[str, dict[int, set[str]]] = {}

    # Questions

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, as ListGroups shows it."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        return super().state_name

    def follows_topic(self, name: str) -> bool:
        """True if the topology has the topic as a source or as an internal topic."""
        return name in self._required_topics

    def consumes_topic(self, name: str) -> bool:
        """True if tasks of members consume the topic."""
        return bool(self.members) and self.topology is not None and name in self.topology.readers

    def target_of(self, member_id: str) -> Tasks:
        """Target assignment of a member; empty if it has none."""
        return self.targets.get(member_id, EMPTY_TASKS)

    def active_process(self, subtopology_id: str, number: int) -> str | None:
        """Id of the process that has a task as active or has yet to give it up; None if none has."""
        return self._active_processes.get(subtopology_id, {}).get(number)

    def has_copy(self, subtopology_id: str, number: int, process_id: str) -> bool:
        """True if a process has a standby or warm-up copy of a task, or has yet to give it up."""
        return any(
            process_id in processes.get(subtopology_id, {}).get(number, ())
            for processes in (self._standby_processes, self._warmup_processes)
        )

    # Changes

    def set_configured(self, configured: ConfiguredTopology) -> None:
        """Takes a topology that was configured; the topics behind endpoints may be others now."""
        self.configured = configured
        self.endpoints.clear()

    def request_shutdown(self, member_id: str) -> None:
        """Has all members told to stop; the first member that asked is named."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id

    def replay(self, record: LogRecord) -> None:
        """Applies one record of this group; a tombstone of the group itself is handled by the shard."""
        key, value = record.key, record.value
        if isinstance(key, StreamsGroupMemberMetadataKey):
            self._replay_member(key, value)
        elif isinstance(key, StreamsGroupCurrentMemberAssignmentKey):
            self._replay_current(key, value)
        elif isinstance(key, StreamsGroupTargetAssignmentMemberKey):
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                assert isinstance(value, StreamsGroupTargetAssignmentMemberValue)
                self.targets[key.member_id] = Tasks(
                    task_map(value.active_tasks), task_map(value.standby_tasks), task_map(value.warmup_tasks)
                )
        elif isinstance(key, StreamsGroupTargetAssignmentMetadataKey):
            if value is None:
                self.assignment_epoch, self.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
            else:
                assert isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = value.assignment_epoch
                self.assignment_timestamp_ms = value.assignment_timestamp
        elif isinstance(key, StreamsGroupTopologyKey):
            assert value is None or isinstance(value, StreamsGroupTopologyValue)
            self.topology = None if value is None else topology_from(value)
            self._required_topics = frozenset(() if self.topology is None else self.topology.required_topics)
        elif isinstance(value, StreamsGroupMetadataValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            self.validated_topology_epoch = value.validated_topology_epoch
            self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def _replay_member(self, key: StreamsGroupMemberMetadataKey, value: object) -> None:
        if value is None:
            self.remove_member(key.member_id)
            return
        assert isinstance(value, StreamsGroupMemberMetadataValue)
        self.replace_member(with_metadata(self.members.get(key.member_id) or StreamsMember(key.member_id), value))

    def _replay_current(self, key: StreamsGroupCurrentMemberAssignmentKey, value: object) -> None:
        old = self.members.get(key.member_id)
        if value is None:
            if old is not None:
                self.replace_member(with_current_assignment(old, None))
            return
        assert isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
        self.replace_member(with_current_assignment(old or StreamsMember(key.member_id), value))

    def replace_member(self, new: StreamsMember) -> None:
        """Adds a member or replaces the one with its id."""
        self._forget(self.members.get(new.member_id))
        self.members[new.member_id] = new
        self.endpoints.pop(new.member_id, None)
        for tasks in (new.assigned, new.pending_revocation):
            for subtopology_id, numbers in tasks.active.items():
                owners = self._active_processes.setdefault(subtopology_id, {})
                for number in numbers:
                    owners[number] = new.process_id
            _add_copies(self._standby_processes, tasks.standby, new.process_id)
            _add_copies(self._warmup_processes, tasks.warmup, new.process_id)

    def remove_member(self, member_id: str) -> None:
        """Removes a member, if it is there; the last one takes a request to shut down with it."""
        self._forget(self.members.pop(member_id, None))
        self.endpoints.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def _forget(self, old: StreamsMember | None) -> None:
        if old is None:
            return
        for tasks in (old.assigned, old.pending_revocation):
            for subtopology_id, numbers in tasks.active.items():
                owners = self._active_processes.get(subtopology_id, {})
                for number in numbers:
                    if owners.get(number) == old.process_id:
                        del owners[number]
                if not owners:
                    self._active_processes.pop(subtopology_id, None)
            _remove_copies(self._standby_processes, tasks.standby, old.process_id)
            _remove_copies(self._warmup_processes, tasks.warmup, old.process_id)


def _add_copies(processes: dict[str, dict[int, set[str]]], tasks: TaskMap, process_id: str) -> None:
    for subtopology_id, numbers in tasks.items():
        for number in numbers:
            processes.setdefault(subtopology_id, {}).setdefault(number, set()).add(process_id)


def _remove_copies(processes: dict[str, dict[int, set[str]]], tasks: TaskMap, process_id: str) -> None:
    for subtopology_id, numbers in tasks.items():
        copies = processes.get(subtopology_id, {})
        for number in numbers:
            owners = copies.get(number, set())
            owners.discard(process_id)
            if not owners:
                copies.pop(number, None)
        if not copies:
            processes.pop(subtopology_id, None)
