"""Result of an operation on groups: the only way out of the state machine.

The coordinator runtime appends `records` and tells the shard's `stored` how that went; `replies` are sent before. A
request that may wait is known by a waiter, any object of the coordinator's; every waiter that was handed in is answered
exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pykbroker.coordination.shard import CoordinatorResult
from pykbroker.protocol.fields import Message

Waiter = object
"""Stands for one parked request; compared by identity and never looked into."""


@dataclass(slots=True)
class Requester:
    """The sender of a join: what the group keeps of the connection, and the version that decides the response's form.

    `fresh_id` is a random text, unique among members; a new member id ends with it (Kafka uses a random UUID).
    """

    client_id: str
    client_host: str
    api_version: int
    fresh_id: str


@dataclass(slots=True)
class LogRecord:
    """One record for `__consumer_offsets`; a value of None is a tombstone. Versions are those that Kafka writes."""

    key: Message
    value: Message | None
    value_version: int = 0


@dataclass(slots=True)
class AssignmentStored:
    """The leader's assignment of this generation has reached the log, or has not."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(slots=True)
class StaticMemberStored:
    """A static member's new member id has reached the log without a rebalance, or has not (P-103)."""

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
    """The record of a group that a join has just made has reached the log, or has not."""

    group_id: str


Stored = AssignmentStored | StaticMemberStored | EmptyGroupStored


@dataclass(slots=True)
class GroupResult(CoordinatorResult):
    """Records of type `LogRecord`, who wants to know how their append went, replies to send, lines for the log.

    `notes` are for operators: one for each new generation with its cause, and members that were lost. `details` are the
    steps between, for whoever debugs a client; Kafka logs all of it at the same level, which was most of what a node
    had to say.
    """

    stored: Stored | None = None
    replies: list[tuple[Waiter, Message]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def reply(self, waiter: Waiter, message: Message) -> None:
        """Adds an answer."""
        self.replies.append((waiter, message))
