"""Result of an operation on groups: the only output of the state machine.

The coordinator sends `replies`, then the runtime appends `records` and reports the outcome to the shard's `stored`. A
request that may be parked is identified by a waiter, an object of the coordinator; every waiter that was passed in is
answered exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykbroker.coordination.shard import CoordinatorResult
from pykbroker.groups.classic.members import Member, Waiter
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.fields import Message

if TYPE_CHECKING:
    from pykbroker.groups.streams.configured import InternalTopic
    from pykbroker.protocol.messages.join_group import JoinGroupResponse
    from pykbroker.protocol.records.batch import RecordFrames


@dataclass(slots=True)
class Requester:
    """The sender of a join: its client id and host, which the group stores, and the version of its request.

    `fresh_uuid` is a random UUID, for a new member id. `may_describe` returns True if the client may DESCRIBE a topic
    that a regular expression of the group matches.
    """

    client_id: str
    client_host: str
    api_version: int
    fresh_uuid: bytes
    may_describe: Callable[[str], bool] = field(default=lambda topic: False)

    @property
    def fresh_id(self) -> str:
        """The UUID in Java's notation, with which a new member id of a classic group ends."""
        digits = self.fresh_uuid.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@dataclass(slots=True)
class LogRecord:
    """One record for `__consumer_offsets`; a value of None is a tombstone. Versions are those that Kafka writes.

    `state` is what the group keeps of a record that has thousands of topics, made together with it in steps: the target
    or current assignment of a member, or the states of topics. None for a record from the log, and for other records.
    """

    key: Message
    value: Message | None
    value_version: int = 0
    state: Any = None


class PreparedOffsets(NamedTuple):
    """The offsets of a large commit of one group, made beforehand as the shard keeps them.

    `topics`: topic -> partition -> `CommittedOffset`, whose `record_offset` is the number of its record in the batch.
    """

    group_id: str
    topics: dict[str, dict[int, Any]]  # `CommittedOffset`, whose module imports this one


class PreparedPending(NamedTuple):
    """As `PreparedOffsets` for a commit within a transaction, whose offsets are pending.

    `producers`: (topic, partition) -> the producer's id.
    """

    group_id: str
    topics: dict[str, dict[int, Any]]
    producers: dict[tuple[str, int], set[int]]


class PreparedRemovals(NamedTuple):
    """The partitions of which a large request removes the offsets of one group: topic -> numbers."""

    group_id: str
    topics: dict[str, set[int]]


class Tombstones(NamedTuple):
    """The records that delete offsets, given by group, topic and partition, encoded beforehand."""

    offsets: list[tuple[str, str, int]]
    records: list[LogRecord]
    frames: RecordFrames


@dataclass(slots=True)
class AssignmentStored:
    """Event: the assignment of this generation is stored, or its append has failed."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(slots=True)
class StaticMemberStored:
    """Event: a static member's new member id is stored without a rebalance, or its append has failed (P-103)."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    leader_before: str | None
    skip_assignment_known: bool
    waiter: Waiter


@dataclass(slots=True)
class EmptyGroupStored:
    """Event: the record of a group that a join has created is stored, or its append has failed.

    `waiter` is that of the join. `replaced` is the empty consumer or Streams group whose tombstones are in the same
    batch, if there is one.
    """

    group_id: str
    waiter: Waiter
    replaced: object | None = None


class ClassicTimers(NamedTuple):
    """Timers of a classic member of a consumer group, which start when its JoinGroup or SyncGroup is answered.

    Attributes:
        sync_timeout_ms: time in which it must send SyncGroup, after a JoinGroup; None after SyncGroup.
    """

    group_id: str
    member_id: str
    session_timeout_ms: int
    sync_timeout_ms: int | None = None


@dataclass(slots=True)
class ClassicJoined:
    """Event: the records with which a classic member joins a consumer group are stored, or their append has failed.

    `timers` start now; None if the group has become a classic group, which has its own.
    """

    group_id: str
    waiter: Waiter
    response: JoinGroupResponse
    timers: ClassicTimers | None


Stored = AssignmentStored | StaticMemberStored | EmptyGroupStored | ClassicJoined


@dataclass(slots=True)
class Downgrade:
    """A consumer group that becomes a classic group with these members.

    Attributes:
        generation_id: the group epoch.
        rebalance_reason: why the classic group rebalances at once; None if it does not.
        assignments: assignments of the members, by member id.
    """

    group_id: str
    generation_id: int
    members: tuple[Member, ...]
    rebalance_reason: str | None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegexRefresh:
    """A resolution that the coordinator has to run, after which it stores the topics that match (`ResolvedRegexes`).

    `regexes` are in the order of their records. `may_describe` returns True if the client that sent the heartbeat may
    DESCRIBE a topic.
    """

    group_id: str
    regexes: Sequence[str]
    may_describe: Callable[[str], bool]


class ResolvedRegexes(NamedTuple):
    """Topics that match regular expressions of a group.

    Attributes:
        group_id: id of the group.
        matches: regular expression -> topics that match, and that the client may see.
        version: version of the metadata that the topics are of.
        started_ms: time at which the resolution began.
    """

    group_id: str
    matches: Mapping[str, frozenset[str]]
    version: int
    started_ms: int


class Initialization(NamedTuple):
    """Share partitions that the share coordinator has to initialize, at a group epoch, from their default offset."""

    group_id: str
    state_epoch: int
    partitions: Mapping[bytes, frozenset[int]]


class DeletedTopics(NamedTuple):
    """Ids of topics that were deleted and that the states of a share group have."""

    group_id: str
    topic_ids: frozenset[bytes]


class FirstAssignment(NamedTuple):
    """The first target assignment of a Streams group, at the end of its initial delay."""

    group_id: str


@dataclass(slots=True)
class GroupResult(CoordinatorResult):
    """Result of an operation on groups; `records` are of type `LogRecord`.

    `response` is None for a parked request, unless a consumer group has answered it at once, in `replies`, too.

    Attributes:
        stored: event to be handled when the records are replicated or their append has failed.
        replies: responses to parked requests, with their waiters.
        notes: log lines at INFO for operators: each new generation with its cause, and members that were lost.
        details: log lines at DEBUG about the steps between, for debugging clients. Kafka logs both at INFO; the details
            would be most of a node's log.
        applies_at_append: True if the records take effect when they are appended, as those of modern groups
            do: the next heartbeat may come before they are replicated.
        on_failed_append: called with the time if the records could not be appended.
        downgrade: classic group that takes the place of a consumer group with the records.
        timers: for a result without records: they start when all earlier records of the partition are replicated.
        regex_refresh: a resolution that the coordinator has to run after a join or heartbeat; None for none.
        initialization: of share partitions, which the coordinator has to run; None for none.
        missing_topics: internal topics of a Streams group that the broker has to create, by name.
        first_assignment: of a large Streams group, which the coordinator has to compute in turns; None for none.
        forgotten: groups that the shard had forgotten when the records were appended; set by the shard.
        changed_groups: ids of the groups that change for readers when the records are replicated; set by the shard.
        have_groups_ended: True if the tombstones of groups among the records have taken effect.
        group: the classic group of `stored` when the records were appended; set by the shard.
        offsets: of a large commit: what all of `records` say.
    """

    stored: Stored | None = None
    applies_at_append: bool = False
    on_failed_append: Callable[[int], None] | None = None
    downgrade: Downgrade | None = None
    timers: ClassicTimers | None = None
    regex_refresh: RegexRefresh | None = None
    initialization: Initialization | None = None
    missing_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    first_assignment: FirstAssignment | None = None
    forgotten: Sequence[Any] = ()  # ConsumerGroup | StreamsGroup, whose modules import this one
    changed_groups: Collection[str] = ()
    have_groups_ended: bool = False
    group: object | None = None
    offsets: PreparedOffsets | PreparedPending | PreparedRemovals | None = None
    replies: list[tuple[Waiter, Message]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def reply(self, waiter: Waiter, message: Message) -> None:
        """Adds the response to a parked request."""
        self.replies.append((waiter, message))
