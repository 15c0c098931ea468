"""Names and values that the role modules share."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from pykbroker.controller.raft.quorum import ReplicaKey

NEVER_MS = 1 << 62
"""A deadline that does not come."""


class RandomSource(Protocol):
    """The part of `random.Random` that is used here."""

    def randrange(self, stop: int, /) -> int: ...


class RaftSettings(NamedTuple):
    """Kafka's settings `controller.quorum.*`.

    election_timeout_ms   how long a voter without a leader waits before it stands for election, at least; at most
                          twice that, at random, so that two seldom stand at the same time
    fetch_timeout_ms      how long a follower trusts a leader that does not answer; a leader resigns when a majority
                          has not fetched for one and a half of it
    retry_ms              after what time a request without an answer is sent again
    retry_backoff_ms      how long a node that was sent away waits before it asks another for the leader
    lost_leader_ms        how long a voter waits at most, at random, before it asks for votes when it knows that nobody
                          leads: the leader's machine refuses connections, so nothing listens there any more, or a
                          majority said that it knows of no leader. 0 waits for the other two timeouts, as Kafka does
    election_backoff_max_ms   how long a voter that is not the first successor of a leader that resigned waits at most
                          before it stands
    fetch_wait_max_ms     how long a leader keeps a Fetch that has nothing to answer, at most
    fetch_max_bytes       how many bytes of records a follower asks for at a time
    request_timeout_ms    how long a change of the voters may take
    auto_join             whether a node that may be a voter asks to become one (`controller.quorum.auto.join.enable`)
    """

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    retry_ms: int = 1000
    retry_backoff_ms: int = 20
    lost_leader_ms: int = 100
    election_backoff_max_ms: int = 1000
    fetch_wait_max_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    request_timeout_ms: int = 2000
    auto_join: bool = False


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class NotLeader(Exception):
    """A proposal was made to a node that does not lead."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"this node does not lead epoch {epoch}; its leader is {leader_id}")
        self.leader_id = leader_id
        self.epoch = epoch


class ReplicaDescription(NamedTuple):
    """One replica as the leader knows it; times are -1 when it was never heard of (DescribeQuorum, KIP-836)."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int

    def shifted(self, shift_ms: int) -> ReplicaDescription:
        """The same by a clock that is so much ahead."""
        fetch_ms, caught_up_ms = self.last_fetch_ms, self.last_caught_up_ms
        return self._replace(
            last_fetch_ms=fetch_ms + shift_ms if fetch_ms >= 0 else -1,
            last_caught_up_ms=caught_up_ms + shift_ms if caught_up_ms >= 0 else -1,
        )


class QuorumDescription(NamedTuple):
    """What `kafka-metadata-quorum describe` shows. Replicas are only known on the leader, elsewhere empty."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]

    def shifted(self, shift_ms: int) -> QuorumDescription:
        """The same by a clock that is so much ahead."""
        return self._replace(
            voters=tuple(replica.shifted(shift_ms) for replica in self.voters),
            observers=tuple(replica.shifted(shift_ms) for replica in self.observers),
        )
