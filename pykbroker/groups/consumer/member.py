"""One member of a consumer group, as an immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the member epoch at which the partition was assigned to the member."""

NO_PARTITION_EPOCHS: PartitionEpochs = {}


class MemberState(IntEnum):
    """Progress of a member towards its target assignment; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


_STATES = frozenset(MemberState)


class ClassicMember(NamedTuple):
    """The part of a member that only the classic protocol has.

    `protocols` are its names and metadata in its order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """A member of a consumer group.

    Attributes:
        assigned: partitions that the member owns or may take.
        pending_revocation: partitions that it must give up before it gets others.
        subscribed_topic_regex: None or empty without a regular expression.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: PartitionEpochs = NO_PARTITION_EPOCHS
    pending_revocation: PartitionEpochs = NO_PARTITION_EPOCHS
    classic: ClassicMember | None = None

    @property
    def is_revoking(self) -> bool:
        """True if the member was asked to give something up and has not confirmed it."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def epoch_error(self) -> ErrorCode:
        """Error of a request about offsets that has another epoch."""
        return ErrorCode.STALE_MEMBER_EPOCH if self.classic is None else ErrorCode.ILLEGAL_GENERATION

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has the whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Member epoch at which a partition was assigned; None if the member does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def with_names(self, names: frozenset[str]) -> ConsumerMember:
        """The member with an equal set of topic names."""
        return self._replace(subscribed_topic_names=names)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member with the subscription of a record."""
        stored = value.classic_member_metadata
        classic = None
        if stored is not None:
            protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in stored.supported_protocols)
            classic = ClassicMember(stored.session_timeout_ms, protocols)
        return ConsumerMember(
            self.member_id,
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            value.instance_id,
            value.rack_id,
            value.rebalance_timeout_ms,
            value.client_id,
            value.client_host,
            frozenset(value.subscribed_topic_names),
            value.subscribed_topic_regex,
            value.server_assignor,
            self.assigned,
            self.pending_revocation,
            classic,
        )

    def with_current_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerMember:
        """The member with the current assignment of a record; without any for a tombstone."""
        if value is None:
            epoch = LEAVE_GROUP_MEMBER_EPOCH
            return self._with_assignment(epoch, epoch, self.state, NO_PARTITION_EPOCHS, NO_PARTITION_EPOCHS)
        epoch = value.member_epoch
        assigned = _partition_epochs(value.assigned_partitions, epoch)
        return self.with_partitions(value, assigned, _partition_epochs(value.partitions_pending_revocation, epoch))

    def with_partitions(
        self, value: ConsumerGroupCurrentMemberAssignmentValue, assigned: PartitionEpochs, pending: PartitionEpochs
    ) -> ConsumerMember:
        """As `with_current_assignment`, with the partitions of the record."""
        state = MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN
        return self._with_assignment(value.member_epoch, value.previous_member_epoch, state, assigned, pending)

    def _with_assignment(
        self, epoch: int, previous: int, state: MemberState, assigned: PartitionEpochs, pending: PartitionEpochs
    ) -> ConsumerMember:
        return ConsumerMember(
            self.member_id,
            epoch,
            previous,
            state,
            self.instance_id,
            self.rack_id,
            self.rebalance_timeout_ms,
            self.client_id,
            self.client_host,
            self.subscribed_topic_names,
            self.subscribed_topic_regex,
            self.server_assignor,
            assigned,
            pending,
            self.classic,
        )


def _partition_epochs(topics: Iterable[TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """Epochs in which the partitions were assigned.

    A record that Kafka wrote before 4.3 has none. They are then the member's epoch, or 0 if the member has left.
    """
    found: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
