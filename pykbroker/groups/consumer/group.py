"""One consumer group (KIP-848): the state in its records, and the owner of each partition."""

from __future__ import annotations

from typing import Any, Self

from pykbroker.coordination.coordinator_records import key_types
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.modern.group import NO_PARTITIONS, Assignment, ModernGroup
from pykbroker.groups.modern.records import RecordTypes
from pykbroker.groups.modern.timers import SoftState
from pykbroker.groups.result import LogRecord
from pykbroker.java_order import timeline_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages import consumer_group_records
from pykbroker.protocol.log_messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

CONSUMER_GROUP_TYPE = "consumer"
NO_OWNER_EPOCH = -1

RECORD_TYPES = RecordTypes(
    group=ConsumerGroupMetadataKey,
    member=ConsumerGroupMemberMetadataKey,
    current=ConsumerGroupCurrentMemberAssignmentKey,
    target=ConsumerGroupTargetAssignmentMemberKey,
    target_epoch=ConsumerGroupTargetAssignmentMetadataKey,
    target_epoch_value=ConsumerGroupTargetAssignmentMetadataValue,
)

CONSUMER_GROUP_KEYS = key_types(consumer_group_records)
"""Keys of the records of consumer groups."""


class ResolvedRegex(NamedTuple):
    """Topics that match a regular expression, at a version of the cluster's metadata, and the time of the match."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A consumer group; `replay` is the only way to change what its records say.

    Attributes:
        resolved: regular expression -> the topics that match it.
        has_partition_metadata: True if the log has a record of topics' partitions, as Kafka wrote before 4.1.
        classic_member_count: number of members that use the classic protocol.
    """

    record_types = RECORD_TYPES
    member_type = ConsumerMember

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        self.classic_member_count = 0
        self._owner_epochs: dict[bytes, dict[int, int]] = {}
        self._classic_support: dict[str, int] = {}
        self._assignors: dict[str, int] = {}

    def snapshot(self) -> Self:
        """The group as it is now, for descriptions."""
        other = super().snapshot()
        other._assignors = dict(self._assignors)
        return other

    # Questions

    def owner_epoch(self, topic_id: bytes, partition: int) -> int:
        """Epoch of the member that owns a partition or has yet to give it up; `NO_OWNER_EPOCH` if it is free."""
        return self._owner_epochs.get(topic_id, {}).get(partition, NO_OWNER_EPOCH)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with an instance id, if there is one."""
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_for(self, member: ConsumerMember) -> Assignment:
        """Target assignment of a member that may be new: a static one takes that of the member it replaces."""
        if member.instance_id is None:
            return self.target_of(member.member_id)
        owner = self.static_ids.get(member.instance_id)
        return NO_PARTITIONS if owner is None else self.target_of(owner)

    def preferred_assignor(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> str | None:
        """The assignor that most members ask for, with `new` in the place of `old`; None if none asks for one.

        Of two assignors with the same number of members it is the first in Kafka's map (P-366). The map has the order
        of Kafka's TimelineHashMap, except that an assignor that only `new` asks for comes first: HashMap.compute puts a
        key at the head of its bucket, and "range" and "uniform" are in one bucket.
        """
        counts = {name: self._assignors[name] for name in timeline_order(self._assignors)}
        if old is not None and old.server_assignor in counts:
            counts[old.server_assignor] -= 1
            if not counts[old.server_assignor]:
                del counts[old.server_assignor]
        if new is not None and new.server_assignor is not None:
            if new.server_assignor not in counts:
                counts = {new.server_assignor: 0, **counts}
            counts[new.server_assignor] += 1
        return max(counts, key=lambda name: counts[name]) if counts else None

    def supports_classic(self, protocol_type: str, protocol_names: list[str]) -> bool:
        """True if a client of the classic protocol with these protocols could be a member."""
        if protocol_type != "consumer":
            return False
        if not self.members:
            return bool(protocol_names)
        return any(self._classic_support.get(name, 0) == self.classic_member_count for name in protocol_names)

    def all_classic_without(self, *members: ConsumerMember) -> bool:
        """True if all members but these use the classic protocol."""
        excluded = sum(member.classic is not None for member in members)
        return self.classic_member_count - excluded == len(self.members) - len(members)

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """True if a partition of the target assignment is still owned by another member; for UNRELEASED_PARTITIONS."""
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.owner_epoch(topic_id, partition) != NO_OWNER_EPOCH
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    # Changes

    def replay_other(self, record: LogRecord, now_ms: int) -> None:
        """Applies the record of a regular expression, or of the topics' partitions."""
        key, value = record.key, record.value
        if isinstance(key, ConsumerGroupRegularExpressionKey):
            self._replay_regex(key, value)
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            self.has_partition_metadata = value is not None

    def _replay_regex(self, key: ConsumerGroupRegularExpressionKey, value: object) -> None:
        old = self.resolved.pop(key.regular_expression, None)
        topics: frozenset[str] = frozenset()
        if value is not None:
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            topics = frozenset(value.topics)
            self.resolved[key.regular_expression] = ResolvedRegex(topics, value.version, value.timestamp)
        self.subscriptions.replace_resolved(() if old is None else old.topics, topics)

    def replace_member(self, new: ConsumerMember) -> None:
        """Adds a member or replaces the one with its id."""
        old = self.members.get(new.member_id)
        super().replace_member(new)
        self._unindex_member(old)
        self._take_ownership(new)
        if new.server_assignor is not None:
            self._assignors[new.server_assignor] = self._assignors.get(new.server_assignor, 0) + 1
        if new.classic is not None:
            self.classic_member_count += 1
            for name, _ in new.classic.protocols:
                self._classic_support[name] = self._classic_support.get(name, 0) + 1

    def reassigned(self, member: ConsumerMember, record: LogRecord) -> ConsumerMember:
        """The member with the current assignment of a record."""
        if record.state is None:
            return super().reassigned(member, record)
        value: Any = record.value
        return member.with_partitions(value, *record.state)

    def replace_assigned(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Replaces a member whose subscription is as it was, most often by a heartbeat: nothing is counted again.

        But regular expressions may have been resolved or forgotten since the last count (P-367).
        """
        self.members[new.member_id] = new
        self.is_homogeneous = self.subscriptions.are_homogeneous(len(self.members))
        self._end_ownership(old)
        self._take_ownership(new)

    def remove_member(self, member_id: str) -> None:
        """Removes a member, if it is there."""
        self._unindex_member(self.members.get(member_id))
        super().remove_member(member_id)

    def _take_ownership(self, new: ConsumerMember) -> None:
        epoch, owner_epochs = new.member_epoch, self._owner_epochs
        for owned in (new.assigned, new.pending_revocation):
            for topic_id, partitions in owned.items():
                taken = dict.fromkeys(partitions, epoch)
                epochs = owner_epochs.get(topic_id)
                if epochs is None:
                    owner_epochs[topic_id] = taken
                else:
                    epochs.update(taken)

    def _end_ownership(self, old: ConsumerMember) -> None:
        epoch, owner_epochs = old.member_epoch, self._owner_epochs
        for owned in (old.assigned, old.pending_revocation):
            for topic_id, partitions in owned.items():
                epochs = owner_epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    if epochs.get(partition) == epoch:
                        del epochs[partition]
                if not epochs:
                    del owner_epochs[topic_id]

    def _unindex_member(self, old: ConsumerMember | None) -> None:
        if old is None:
            return
        self._end_ownership(old)
        if old.server_assignor is not None:
            self._assignors[old.server_assignor] -= 1
            if not self._assignors[old.server_assignor]:
                del self._assignors[old.server_assignor]
        if old.classic is not None:
            self.classic_member_count -= 1
            for name, _ in old.classic.protocols:
                self._classic_support[name] -= 1
