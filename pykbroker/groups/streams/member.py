"""One member of a Streams group, as an immutable value: a thread of an application's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH
from pykbroker.groups.streams.tasks import NO_MEMBER_TASKS, MemberTasks, task_map
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)


class MemberState(IntEnum):
    """The place of a member between its current and its target assignment; the numbers are those of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It was asked to give up tasks and has not confirmed it."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others, or other threads of its process, have to give up."""
    UNKNOWN = 127
    """A state that a later version of Kafka has stored."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state with a number of a record."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


class Endpoint(NamedTuple):
    """Address of the process for interactive queries, as the application declares it (`application.server`)."""

    host: str
    port: int


NO_TAGS: Mapping[str, str] = {}


class StreamsMember(NamedTuple):
    """A member of a Streams group.

    Attributes:
        topology_epoch: epoch of the topology that the client has; -1 if it has not said.
        process_id: id of the process; active, standby and warm-up copies of a task are never in one process.
        assigned: the tasks that the member has.
        pending_revocation: the tasks that it was asked to give up.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = NO_TAGS
    assigned: MemberTasks = NO_MEMBER_TASKS
    pending_revocation: MemberTasks = NO_MEMBER_TASKS

    @property
    def is_revoking(self) -> bool:
        """True if the member was asked to give something up and has not confirmed it."""
        return self.state is MemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """The member with what a record says of its client."""
        endpoint = value.user_endpoint
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )

    def with_current_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue | None) -> StreamsMember:
        """The member with the current assignment of a record; without any for a tombstone."""
        if value is None:
            return self._replace(
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                assigned=NO_MEMBER_TASKS,
                pending_revocation=NO_MEMBER_TASKS,
            )
        epoch = value.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=MemberTasks(
                _active(value.active_tasks, epoch), task_map(value.standby_tasks), task_map(value.warmup_tasks)
            ),
            pending_revocation=MemberTasks(
                _active(value.active_tasks_pending_revocation, epoch),
                task_map(value.standby_tasks_pending_revocation),
                task_map(value.warmup_tasks_pending_revocation),
            ),
        )


def _active(
    listed: Sequence[StreamsGroupCurrentMemberAssignmentTaskIds], member_epoch: int
) -> dict[str, dict[int, int]]:
    """Active tasks with their epochs; records before 4.2 have none, and the member epoch stands for them."""
    found = {}
    for ids in listed:
        epochs = ids.assignment_epochs
        if epochs is None or len(epochs) != len(ids.partitions):
            epochs = [member_epoch] * len(ids.partitions)
        found[ids.subtopology_id] = dict(zip(ids.partitions, epochs, strict=True))
    return found
