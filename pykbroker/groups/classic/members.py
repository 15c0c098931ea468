"""The members of one classic group, their leader, their parked requests, and the protocols that all of them support."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pykbroker.java_order import hash_order

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols with their metadata, in its order of preference."""

Waiter = object
"""A parked request, made by the coordinator; compared by identity, its attributes are not used here."""

ANSWERED: Waiter = object()
"""Stands for a parked request that was answered with an error before the phase ended. Its member still waits."""


@dataclass(slots=True, eq=False)
class Member:
    """One member. `session_deadline_ms` is None while no timer runs for it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    is_new: bool = False
    session_deadline_ms: int | None = None

    @property
    def is_static(self) -> bool:
        """True if it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def ignores_session_expiry(self) -> bool:
        """True if its session's expiry has no effect: it cannot heartbeat while its join or sync is parked.

        False in its first join, which is limited by `NEW_MEMBER_JOIN_TIMEOUT_MS` instead.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Metadata of the member for the group's protocol, which every member has."""
        return next(metadata for name, metadata in self.protocols if name == protocol_name)


class Members:
    """The members in the order in which they joined; the first one is preferred as leader."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending_joins: dict[str, int] = {}
        """Member ids given out by MEMBER_ID_REQUIRED and not yet used, with the time at which they expire (P-93)."""
        self.pending_syncs: set[str] = set()
        """Members that got this generation's join response and have not synced yet (P-100)."""
        self.leader_id: str | None = None
        self.awaiting_join_count = 0
        self._support: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    @property
    def have_all_joined(self) -> bool:
        """True if every member's join is parked and no member id that was given out is unused."""
        return self.awaiting_join_count == len(self.by_id) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members (P-95)."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def add(self, member: Member, join_waiter: Waiter | None) -> None:
        """Adds a member; the first one becomes the leader (P-97)."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_ids
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.by_id[member.member_id] = member
        self._count_support(member.protocols, 1)
        self.park_join(member, join_waiter)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Removes a member or a pending member id, whose parked requests must have been answered."""
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._count_support(member.protocols, -1)
            self.park_join(member, None)
            if member.group_instance_id is not None:
                self.static_ids.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.by_id), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def replace_static(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> Member:
        """Gives a static member a new member id and keeps everything else, except parked requests (P-103)."""
        old = self.by_id[old_member_id]
        self.park_join(old, None)
        old.sync_waiter = None
        new = replace(old, member_id=new_member_id, is_new=False, session_deadline_ms=None)
        # It keeps its place in the order, so that the choice of the next leader does not depend on restarts.
        self.by_id = {
            new_member_id if member_id == old_member_id else member_id: new if member is old else member
            for member_id, member in self.by_id.items()
        }
        if old_member_id in self.pending_syncs:
            self.pending_syncs.discard(old_member_id)
            self.pending_syncs.add(new_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_ids[group_instance_id] = new_member_id
        return new

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Replaces the protocols and timeouts (ms) of a member that joins again."""
        self._count_support(member.protocols, -1)
        member.protocols = protocols
        self._count_support(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, waiter: Waiter | None) -> None:
        """Sets the waiter of the member's parked join; None if there is none any more."""
        self.awaiting_join_count += (waiter is not None) - (member.join_waiter is not None)
        member.join_waiter = waiter

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined this rebalance, else elects a member that has; False if none has joined."""
        if self.leader_id is None:
            return False
        if self.by_id[self.leader_id].join_waiter is not None:
            return True
        for member in self.by_id.values():
            if member.join_waiter is not None:
                self.leader_id = member.member_id
                return True
        return False

    def support_any(self, protocol_names: Iterable[str]) -> bool:
        """True if at least one of these protocols is supported by all members."""
        return any(self._support.get(name, 0) == len(self.by_id) for name in protocol_names)

    def select_protocol(self) -> str:
        """Protocol with the most votes; in a tie the first in the order of a Java HashMap (P-98).

        Each member votes for the first of its protocols that all members support.
        """
        candidates = {name for name, count in self._support.items() if count == len(self.by_id)}
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(hash_order(votes), key=lambda name: votes[name])

    def _count_support(self, protocols: Protocols, change: int) -> None:
        # A name that a client lists twice counts once: Kafka counts it twice and then finds no common protocol.
        for name in {name for name, _ in protocols}:
            count = self._support.get(name, 0) + change
            if count:
                self._support[name] = count
            else:
                del self._support[name]
