"""Names of the roles, settings, and descriptions of a quorum."""

from __future__ import annotations

from enum import Enum

from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.named_tuple import NamedTuple

NEVER_MS = 1 << 62
"""A deadline that is never reached."""


class RaftSettings(NamedTuple):
    """Kafka's settings `controller.quorum.*`.

    Attributes:
        election_timeout_ms: a voter without a leader becomes prospective after a random time from this to below twice
            this, so that two seldom do at the same time.
        fetch_timeout_ms: a follower becomes prospective after so long without a response of its leader; a leader
            resigns when a majority has not fetched for one and a half times this.
        retry_ms: a request without a response is sent again after this.
        retry_backoff_ms: pause of a node that looks for the leader before it asks the next voter.
        lost_leader_ms: a voter that knows that there is no leader becomes prospective after a random time below this:
            the leader's machine refuses connections, so nothing listens there any more, or a majority does not know a
            leader. 0 waits for the other two timeouts, as Kafka does.
        election_backoff_max_ms: longest pause of a voter, other than the first successor, after a leader has resigned.
        fetch_wait_max_ms: longest time that a Fetch waits for records at the leader.
        fetch_max_bytes: bytes of records that a follower requests at a time.
        request_timeout_ms: time limit of a change of the voters.
        auto_join: the node asks to become a voter if it can be one (`controller.quorum.auto.join.enable`).
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
    """Propose was stepped on a node that does not lead."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"this node does not lead epoch {epoch}; its leader is {leader_id}")
        self.leader_id = leader_id
        self.epoch = epoch


class ReplicaDescription(NamedTuple):
    """One replica as the leader knows it (DescribeQuorum, KIP-836). Offset and times are -1 before its first Fetch."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int

    def shifted(self, shift_ms: int) -> ReplicaDescription:
        """A copy with times of a clock that is `shift_ms` ahead."""
        fetch_ms, caught_up_ms = self.last_fetch_ms, self.last_caught_up_ms
        return self._replace(
            last_fetch_ms=fetch_ms + shift_ms if fetch_ms >= 0 else -1,
            last_caught_up_ms=caught_up_ms + shift_ms if caught_up_ms >= 0 else -1,
        )


class QuorumDescription(NamedTuple):
    """The quorum as `kafka-metadata-quorum describe` shows it. Without replicas on other nodes than the leader."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]

    def shifted(self, shift_ms: int) -> QuorumDescription:
        """A copy with times of a clock that is `shift_ms` ahead."""
        return self._replace(
            voters=tuple(replica.shifted(shift_ms) for replica in self.voters),
            observers=tuple(replica.shifted(shift_ms) for replica in self.observers),
        )
