"""One Streams group (KIP-1071): the state in its records, and the process that has each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.coordination.coordinator_records import key_types
from pykbroker.groups.modern.group import EpochGroup
from pykbroker.groups.modern.records import RecordTypes
from pykbroker.groups.modern.timers import SoftState
from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.configured import ConfiguredTopology
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.tasks import EMPTY_TASKS, TaskMap, Tasks, task_map
from pykbroker.groups.streams.topology import StreamsTopology, topology_from
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages import streams_group_records
from pykbroker.protocol.log_messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
)
from pykbroker.protocol.messages.streams_group_heartbeat import EndpointToPartitions, StreamsGroupHeartbeatRequest

STREAMS_GROUP_TYPE = "streams"
NO_TOPOLOGY_EPOCH = -1

RECORD_TYPES = RecordTypes(
    group=StreamsGroupMetadataKey,
    member=StreamsGroupMemberMetadataKey,
    current=StreamsGroupCurrentMemberAssignmentKey,
    target=StreamsGroupTargetAssignmentMemberKey,
    target_epoch=StreamsGroupTargetAssignmentMetadataKey,
    target_epoch_value=StreamsGroupTargetAssignmentMetadataValue,
)

STREAMS_GROUP_KEYS = key_types(streams_group_records)
"""Keys of the records of Streams groups."""


class Matched(NamedTuple):
    """A topology that a heartbeat without records has matched with the topics; descriptions do not have it yet."""

    group: StreamsGroup
    configured: ConfiguredTopology | None

    def show(self) -> None:
        """Makes descriptions of the group show the matched topology."""
        self.group.shown = self.configured


class StreamsGroup(EpochGroup[StreamsMember, Tasks]):
    """A Streams group; `replay` is the only way to change what its records say.

    Attributes:
        topology: the topology of the application; None before its record.
        validated_topology_epoch: epoch of the last topology whose topics all existed; -1 for none.
        assignment_configs: the assignment configs at `epoch`; a change of them raises the group epoch.

    Not stored, and lost with the object, as in Kafka:

    Attributes:
        configured: the topology matched with the existing topics; None until a heartbeat has done so.
        configured_hash: hash of the topics that it was matched with.
        shown: `configured` for descriptions, which have it after the next write to the partition (P-217).
        latest_shown: what `shown` is after that write.
        endpoint_epoch: raised with each change of the tasks of a member with an endpoint.
        endpoints: member id -> its endpoint with its partitions; computed when a response needs it.
        shutdown_member_id: the member that asks all others to stop, until the group is empty.
    """

    record_types = RECORD_TYPES
    member_type = StreamsMember
    no_target = EMPTY_TASKS

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.topology: StreamsTopology | None = None
        # Kafka's initial value, which a group that was never validated shares with a first topology's epoch.
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        self.configured: ConfiguredTopology | None = None
        self.configured_hash = 0
        self.shown: ConfiguredTopology | None = None
        self.latest_shown: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self.endpoints: dict[str, EndpointToPartitions] = {}
        self.shutdown_member_id: str | None = None
        self._required_topics: frozenset[str] = frozenset()
        self._task_count = 0
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

    @property
    def size(self) -> int:
        """Number of members, of topics, and of tasks as configured; on these the time of a heartbeat depends."""
        return len(self.members) + len(self._required_topics) + self._task_count

    def is_steady(self, request: StreamsGroupHeartbeatRequest, now_ms: int) -> bool:
        """True for the heartbeat of a member that has its tasks and reports none, as most are."""
        member = self.members.get(request.member_id)
        return (
            member is not None
            and request.member_epoch != 0
            and request.topology is None
            and request.active_tasks is None
            and member.is_reconciled_to(self.epoch)
            and not self.has_expired_metadata(now_ms)
        )

    def active_process(self, subtopology_id: str, number: int) -> str | None:
        """Id of the process that has a task as active or has yet to give it up; None if none has."""
        return self._active_processes.get(subtopology_id, {}).get(number)

    def has_copy(self, subtopology_id: str, number: int, process_id: str) -> bool:
        """True if a process has a standby or warm-up copy of a task, or has yet to give it up."""
        for processes in (self._standby_processes, self._warmup_processes):
            if processes and process_id in processes.get(subtopology_id, {}).get(number, ()):
                return True
        return False

    # Changes

    def set_configured(self, configured: ConfiguredTopology, metadata_hash: int) -> None:
        """Sets the configured topology, and drops the endpoints: their topics may have changed."""
        self.configured = configured
        self.configured_hash = metadata_hash
        self._task_count = sum(found.task_count for found in (configured.subtopologies or {}).values())
        self.endpoints.clear()

    def request_shutdown(self, member_id: str) -> None:
        """Makes all further responses ask for a shutdown; they name the first member that requested it."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id

    def target_from(self, value: Any) -> Tasks:
        """The target assignment in the value of a record."""
        return Tasks(task_map(value.active_tasks), task_map(value.standby_tasks), task_map(value.warmup_tasks))

    def replay_other(self, record: LogRecord, now_ms: int) -> None:
        """Applies the record of the topology."""
        value: Any = record.value
        if isinstance(record.key, StreamsGroupTopologyKey):
            self.topology = None if value is None else record.state or topology_from(value)
            self._required_topics = frozenset(() if self.topology is None else self.topology.required_topics)

    def replay_epoch(self, value: Any) -> None:
        """Applies the record of the group epoch, with what was validated at it."""
        super().replay_epoch(value)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def replace_member(self, new: StreamsMember) -> None:
        """Adds a member or replaces the one with its id."""
        self._unindex_member(self.members.get(new.member_id))
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
        self._unindex_member(self.members.pop(member_id, None))
        self.endpoints.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def _unindex_member(self, old: StreamsMember | None) -> None:
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
