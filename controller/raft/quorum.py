"""Replica keys, sets of voters and majorities. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.named_tuple import NamedTuple

NO_DIRECTORY_ID = bytes(16)
"""Directory id of a voter of a static quorum (kraft.version 0), which is identified by its node id alone."""


class ReplicaKey(NamedTuple):
    """Identity of a replica of the metadata log: node id and the id of its directory, 16 bytes (KIP-853)."""

    node_id: int
    directory_id: bytes = NO_DIRECTORY_ID

    def is_same_voter(self, other: ReplicaKey) -> bool:
        """True for the same node id and the same directory id, or no directory id in one of both."""
        return self.node_id == other.node_id and (
            self.directory_id == other.directory_id
            or self.directory_id == NO_DIRECTORY_ID
            or other.directory_id == NO_DIRECTORY_ID
        )


class VoterEndpoint(NamedTuple):
    """A listener of a voter: its name in upper case, and its address."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A voter in a VotersRecord. `kraft_versions` is the lowest and highest level that it supports."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 0)

    def supports(self, kraft_version: int) -> bool:
        return self.kraft_versions[0] <= kraft_version <= self.kraft_versions[1]

    def endpoint(self, listener_name: str) -> VoterEndpoint | None:
        """The listener with this name, None if there is none."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


class VoterSet:
    """The voters, by node id. Immutable."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[ReplicaKey | Voter]) -> None:
        """A set of these voters; a replica key stands for a voter without endpoints."""
        by_id = {}
        for voter in voters:
            whole = voter if isinstance(voter, Voter) else Voter(voter)
            by_id[whole.key.node_id] = whole
        self._voters: Mapping[int, Voter] = dict(sorted(by_id.items()))

    def __contains__(self, key: ReplicaKey) -> bool:
        """A configured voter has no directory id and is matched by node id; others by both ids."""
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.directory_id in (NO_DIRECTORY_ID, key.directory_id)

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())})"

    @property
    def ids(self) -> list[int]:
        """Node ids, ascending."""
        return list(self._voters)

    @property
    def keys(self) -> list[ReplicaKey]:
        """Replica keys by ascending node id."""
        return [voter.key for voter in self._voters.values()]

    @property
    def voters(self) -> list[Voter]:
        """All voters by ascending node id."""
        return list(self._voters.values())

    @property
    def majority(self) -> int:
        """Number of voters in the smallest majority."""
        return len(self._voters) // 2 + 1

    def voter(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with a voter added; it replaces one with its node id."""
        return VoterSet([*self._voters.values(), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(voter for voter in self._voters.values() if voter.key.node_id != node_id)

    def is_out_of_date(self, voter: Voter) -> bool:
        """True if the set has this voter with other endpoints or other supported versions."""
        known = self._voters.get(voter.key.node_id)
        return known is not None and voter.key in self and known != voter


def offset_of_majority(end_offsets: Iterable[int]) -> int:
    """The greatest offset that more than half of these logs have reached.

    With an even number of logs it is the lower of the two middle offsets, because half is no majority.
    """
    ordered = sorted(end_offsets)
    return ordered[(len(ordered) - 1) // 2]
