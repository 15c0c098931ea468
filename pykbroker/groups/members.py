"""The members of one classic group: who they are, who leads, who is parked, which protocol all can speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykbroker.groups.result import Waiter

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols with their metadata, in its order of preference."""


class Member:
    """One member. `session_deadline_ms` is None while no timer runs for it."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client: tuple[str, str],
        timeouts_ms: tuple[int, int],
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        """`client` is (client id, host); `timeouts_ms` is (rebalance, session)."""
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id, self.client_host = client
        self.rebalance_timeout_ms, self.session_timeout_ms = timeouts_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.join_waiter: Waiter | None = None
        self.sync_waiter: Waiter | None = None
        self.is_new = False
        self.session_deadline_ms: int | None = None

    @property
    def is_static(self) -> bool:
        """True if it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """True if an expired session is overlooked: it cannot heartbeat while its join or sync is parked.

        Not in its first join, which is limited by `NEW_MEMBER_JOIN_TIMEOUT_MS` instead.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Metadata of the member for that protocol; the group's protocol is one that every member has."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol_name}")


class Members:
    """The collection, in order of arrival, so that the eldest is the first choice as leader."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending_joins: dict[str, int] = {}
        """Member ids given out by MEMBER_ID_REQUIRED and not yet used, with the time at which they lapse (P-93)."""
        self.pending_syncs: set[str] = set()
        """Members that got this generation's join answer and have not synced yet (P-100)."""
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
        """True if every member waits in a join and no given-out member id is still to come."""
        return self.awaiting_join_count == len(self.by_id) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members' (P-95)."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def add(self, member: Member, join_waiter: Waiter | None) -> None:
        """Takes a member in; the first to come leads (P-97)."""
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
        """Forgets a member or a pending member id; whoever is parked for it must be answered before."""
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
        """Gives a static member a new member id and keeps everything else; nobody is parked for it any more (P-103)."""
        old = self.by_id[old_member_id]
        self.park_join(old, None)
        old.sync_waiter = None
        new = Member(
            new_member_id,
            group_instance_id,
            (old.client_id, old.client_host),
            (old.rebalance_timeout_ms, old.session_timeout_ms),
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        # Keeping its place in the order keeps the choice of a next leader independent of restarts.
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
        """A member that joins again brings its protocols and timeouts anew."""
        self._count_support(member.protocols, -1)
        member.protocols = protocols
        self._count_support(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, waiter: Waiter | None) -> None:
        """Notes who waits for the member's join answer; None for nobody."""
        self.awaiting_join_count += (waiter is not None) - (member.join_waiter is not None)
        member.join_waiter = waiter

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one who has joined this rebalance; False if nobody has."""
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
        """True if all members speak at least one of these."""
        return any(self._support.get(name, 0) == len(self.by_id) for name in protocol_names)

    def select_protocol(self) -> str:
        """Each votes for the first of its protocols that all speak; most votes win, in a tie the earlier (P-98)."""
        candidates = {name for name, count in self._support.items() if count == len(self.by_id)}
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _count_support(self, protocols: Protocols, change: int) -> None:
        # A name that a client lists twice counts once: Kafka counts it twice and then finds no common protocol.
        for name in {name for name, _ in protocols}:
            count = self._support.get(name, 0) + change
            if count:
                self._support[name] = count
            else:
                del self._support[name]
