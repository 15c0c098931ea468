"""State of every modern group: epochs, members, subscriptions, target assignments, timers.

A group changes only by records, except for its timers and its metadata deadline, which are not stored. An operation
computes records from a group; when they are appended, they are replayed and so change the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from pykbroker.groups.assignors.spec import Partitions
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.records import RecordTypes
from pykbroker.groups.modern.subscriptions import SharedNames, Subscriber, Subscriptions
from pykbroker.groups.modern.timers import MemberTimers, SoftState, TimerKind
from pykbroker.groups.result import LogRecord
from pykbroker.java_order import hash_order, timeline_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""

NO_PARTITIONS: Assignment = {}

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""Epoch of a static member that has left and may come back; its assignment is kept until its session expires."""

LEAVING_EPOCHS = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH)

METADATA_REFRESH_INTERVAL_MS = 2**31 - 1
"""Time in ms after which a group's topics are looked up again without a change of the metadata."""

NO_ASSIGNMENT_EPOCH = -1


def assignor_order(members: Iterable[str], joining: str | None) -> list[str]:
    """Ids of members in the order in which Kafka's assignors see them.

    Args:
        members: those of the group, in the order in which they joined.
        joining: a member whose request caused the assignment, which may be new; None for none.
    """
    ordered = dict.fromkeys(timeline_order(members))
    if joining is not None:
        ordered.setdefault(joining)
    return hash_order(ordered)


class ReconcilingMember(Protocol):
    """The part of a member that `EpochGroup` uses."""

    @property
    def member_id(self) -> str: ...
    @property
    def member_epoch(self) -> int: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def is_revoking(self) -> bool:
        """True if the member was asked to give something up and has not confirmed it."""
        ...

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has the whole target assignment of this epoch."""

    def with_metadata(self, value: Any) -> Self:
        """The member with the properties of a record."""

    def with_current_assignment(self, value: Any) -> Self:
        """The member with the current assignment of a record; without any for None, a tombstone."""


class ModernMember(ReconcilingMember, Subscriber, Protocol):
    """The part of a member that `ModernGroup` uses."""

    @property
    def instance_id(self) -> str | None: ...

    def with_names(self, names: frozenset[str]) -> Self:
        """The member with an equal set of topic names."""


AnyMember = TypeVar("AnyMember", bound=ReconcilingMember)
Member = TypeVar("Member", bound=ModernMember)
Target = TypeVar("Target")


class EpochGroup(ABC, Generic[AnyMember, Target]):
    """A modern group; `replay` is the only way to change what its records say.

    Attributes:
        record_types: the keys of its records.
        member_type: class of its members, made from a member id.
        no_target: target assignment of a member that has none.
        targets: member id -> target assignment.
        epoch: group epoch; raised whenever a new target assignment is needed.
        assignment_epoch: group epoch of the target assignment; -1 after the tombstone of the assignment.
        assignment_timestamp_ms: time at which the target assignment was computed, 0 if it is unknown.
        metadata_hash: hash of the group's topics at `epoch`.
        soft_state: the part of its state that is not stored, such as timers.
        changes: number of changes so far, by records and by topics. A heartbeat depends on nothing else of the group.
    """

    record_types: ClassVar[RecordTypes]
    member_type: ClassVar[type[Any]]
    no_target: Target

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        self.group_id = group_id
        self.soft_state = soft_state
        self.epoch = 1
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        self.metadata_hash = 0
        self.members: dict[str, AnyMember] = {}
        self.targets: dict[str, Target] = {}
        self.changes = 0
        self._refresh_at_ms = 0
        self._refreshed_epoch = 0

    @property
    def timers(self) -> MemberTimers:
        """Timers of the members."""
        return self.soft_state.timers

    @abstractmethod
    def follows_topic(self, name: str) -> bool:
        """True if the group must look at its topics again when this one is created, changed or deleted."""

    @abstractmethod
    def consumes_topic(self, name: str) -> bool:
        """True if members consume a topic, whose committed offsets are then neither deleted nor expired."""

    def snapshot(self) -> Self:
        """Copy of the group for descriptions: the parts that they show and that change in place are copied."""
        other = copy(self)
        other.members, other.targets = dict(self.members), dict(self.targets)
        return other

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, as ListGroups shows it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if any(not member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Reconciling"
        return "Stable"

    def find_member(self, member_id: str) -> AnyMember:
        """The member with an id.

        Raises:
            GroupError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def await_revocation(self, member: AnyMember, now_ms: int) -> None:
        """Starts the rebalance timeout of a member that was asked to give something up."""
        if member.is_revoking:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            self.timers.schedule(TimerKind.REBALANCE, member.member_id, deadline_ms, member.member_epoch)

    def target_of(self, member_id: str) -> Target:
        """Target assignment of a member; empty if it has none."""
        return self.targets.get(member_id, self.no_target)

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """True if a new target assignment may be computed: the assignment interval, if there is one, has passed."""
        last_ms = self.assignment_timestamp_ms
        return last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms

    def target_records(
        self,
        epoch: int,
        now_ms: int,
        targets: Mapping[str, Target],
        record_of: Callable[[str, str, Target], Steps[LogRecord]],
    ) -> Steps[list[LogRecord]]:
        """Records of the targets that differ from the stored ones, and of the group epoch for which they are."""
        records = []
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                records.append((yield from record_of(self.group_id, member_id, target)))
                yield
        return [*records, self.record_types.target_epoch_record(self.group_id, epoch, now_ms)]

    def has_expired_metadata(self, now_ms: int) -> bool:
        """True if the group's topics must be looked at again."""
        return now_ms >= self._refresh_at_ms or self.epoch < self._refreshed_epoch

    def set_refreshed(self, now_ms: int, epoch: int) -> None:
        """Notes that the topics were looked at for a group epoch, whose record may still fail to be appended."""
        self._refresh_at_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        self._refreshed_epoch = epoch

    def request_metadata_refresh(self) -> None:
        """Makes the next heartbeat look the group's topics up again."""
        self._refresh_at_ms = self._refreshed_epoch = 0
        self.changes += 1

    # The log

    def replay(self, record: LogRecord, now_ms: int) -> None:
        """Applies one record of this group; a tombstone of the group itself is handled by the shard."""
        key: Any = record.key
        value: Any = record.value
        types = self.record_types
        self.changes += 1
        if isinstance(key, types.member):
            if value is None:
                self.remove_member(key.member_id)
            else:
                self.replace_member(self._get_or_make_member(key.member_id).with_metadata(value))
        elif isinstance(key, types.current):
            member = self.members.get(key.member_id)
            if member is not None:
                self.replace_assigned(member, self.reassigned(member, record))
            elif value is not None:
                made: AnyMember = self.member_type(key.member_id)
                self.replace_member(self.reassigned(made, record))
        elif isinstance(key, types.target):
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                self.targets[key.member_id] = self.target_from(value) if record.state is None else record.state
        elif isinstance(key, types.target_epoch):
            stored = (NO_ASSIGNMENT_EPOCH, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)
            self.assignment_epoch, self.assignment_timestamp_ms = stored
        elif not isinstance(key, types.group):
            self.replay_other(record, now_ms)
        elif value is not None:
            self.replay_epoch(value)

    def _get_or_make_member(self, member_id: str) -> AnyMember:
        member: AnyMember = self.members.get(member_id) or self.member_type(member_id)
        return member

    @abstractmethod
    def replace_member(self, new: AnyMember) -> None:
        """Adds a member or replaces the one with its id."""

    def reassigned(self, member: AnyMember, record: LogRecord) -> AnyMember:
        """The member with the current assignment of a record."""
        value: Any = record.value
        return member.with_current_assignment(value)

    def replace_assigned(self, old: AnyMember, new: AnyMember) -> None:
        """Replaces a member by one that differs in its epochs, its state and its current assignment alone."""
        self.replace_member(new)

    @abstractmethod
    def remove_member(self, member_id: str) -> None:
        """Removes a member, if it is there."""

    @abstractmethod
    def target_from(self, value: Any) -> Target:
        """The target assignment in the value of a record."""

    @abstractmethod
    def replay_other(self, record: LogRecord, now_ms: int) -> None:
        """Applies a record that only this type of group has."""

    def replay_epoch(self, value: Any) -> None:
        """Applies the record of the group epoch."""
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash


class ModernGroup(EpochGroup[Member, Assignment]):
    """A consumer or share group: its members subscribe to topics.

    Attributes:
        static_ids: instance id -> member id.
        subscriptions: the topics that members subscribe to.
        is_homogeneous: True if all members subscribe to the same topics, as it was when a member was last replaced or
            removed. As in Kafka, records of regular expressions do not change it (P-367).
    """

    no_target = NO_PARTITIONS

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.static_ids: dict[str, str] = {}
        self.subscriptions = Subscriptions()
        self.is_homogeneous = True
        self._names = SharedNames()

    def follows_topic(self, name: str) -> bool:
        """True if a member subscribes to the topic."""
        return name in self.subscriptions

    def consumes_topic(self, name: str) -> bool:
        """True if a member subscribes to the topic."""
        return name in self.subscriptions

    def target_from(self, value: Any) -> Assignment:
        """The target assignment in the value of a record."""
        return {topic.topic_id: Partitions(topic.partitions) for topic in value.topic_partitions}

    def replace_member(self, new: Member) -> None:
        """Adds a member or replaces the one with its id."""
        old = self.members.get(new.member_id)
        names = self._names.take(new.subscribed_topic_names)
        if names is not new.subscribed_topic_names:
            new = new.with_names(names)
        if old is not None:
            self._names.release(old.subscribed_topic_names)
        self.members[new.member_id] = new
        self.subscriptions.replace_member(old, new)
        self.is_homogeneous = self.subscriptions.are_homogeneous(len(self.members))
        if new.instance_id is not None:
            self.static_ids[new.instance_id] = new.member_id

    def remove_member(self, member_id: str) -> None:
        """Removes a member, if it is there."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._names.release(old.subscribed_topic_names)
        self.subscriptions.replace_member(old, None)
        self.is_homogeneous = self.subscriptions.are_homogeneous(len(self.members))
        if old.instance_id is not None and self.static_ids.get(old.instance_id) == member_id:
            del self.static_ids[old.instance_id]
