"""Who votes, and what a majority is. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NO_DIRECTORY_ID = bytes(16)
"""The directory id of a voter in a static quorum (kraft.version 0), which is known by its node id alone."""


class ReplicaKey(NamedTuple):
    """One replica of the metadata log: a node and the directory it keeps the log in (KIP-853)."""

    node_id: int
    directory_id: bytes = NO_DIRECTORY_ID

    def is_same_voter(self, other: ReplicaKey) -> bool:
        """Same node, and the same directory unless one of both leaves it open."""
        return self.node_id == other.node_id and (
            self.directory_id == other.directory_id
            or self.directory_id == NO_DIRECTORY_ID
            or other.directory_id == NO_DIRECTORY_ID
        )


class VoterSet:
    """The voters, by node id. Immutable."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[ReplicaKey]) -> None:
        self._voters: Mapping[int, ReplicaKey] = {voter.node_id: voter for voter in voters}

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.is_same_voter(key)

    def __len__(self) -> int:
        return len(self._voters)

    @property
    def ids(self) -> list[int]:
        """Node ids, ascending."""
        return sorted(self._voters)

    @property
    def keys(self) -> list[ReplicaKey]:
        """Replica keys by ascending node id."""
        return [self._voters[node_id] for node_id in sorted(self._voters)]

    @property
    def majority(self) -> int:
        """How many voters must agree."""
        return len(self._voters) // 2 + 1


def offset_of_majority(end_offsets: Iterable[int]) -> int:
    """The greatest offset up to which more than half of these logs reach.

    With an even number of voters it is the lower of the two in the middle: exactly half is no majority.
    """
    ordered = sorted(end_offsets)
    return ordered[(len(ordered) - 1) // 2]
