"""What nodes of a quorum say to one another. The driver turns each into KRaft's request or response of the same name.

Requests and answers are one-way here: an answer carries all that is needed to judge it, so lost, late, doubled and
reordered ones do no harm. Every message has `source`, the node id it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey

NO_LEADER = -1


class Entries(NamedTuple):
    """Consecutive records of one epoch, written as one batch.

    base_offset   offset of the first record
    record_count  how many offsets they take
    payload       what they hold, opaque here: for a proposal what was proposed, for a leader's first entry a
                  LeaderChange, for a follower what the leader sent
    """

    base_offset: int
    epoch: int
    record_count: int
    payload: Any


class LeaderChange(NamedTuple):
    """The control record at the start of an epoch: who leads, who votes, who voted for it."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class VoteRequest(NamedTuple):
    """Asks for a vote in `epoch`, or with is_pre_vote whether one would be given (KIP-996, not raised yet)."""

    source: int
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: OffsetAndEpoch
    is_pre_vote: bool


class VoteResponse(NamedTuple):
    """`epoch` and `leader_id` are what the answering node knows."""

    source: int
    epoch: int
    leader_id: int
    is_granted: bool
    is_pre_vote: bool


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader makes itself known to the voters."""

    source: int
    epoch: int


class BeginQuorumEpochResponse(NamedTuple):
    source: int
    epoch: int
    leader_id: int


class EndQuorumEpochRequest(NamedTuple):
    """A leader gives up its epoch; the successors in the order in which they should stand for election."""

    source: int
    epoch: int
    successors: tuple[int, ...]


class FetchRequest(NamedTuple):
    """Asks for the records from `log_end.offset` on, and so says that all before are durable at `replica`.

    high_watermark   what the replica knows: the leader answers at once when it knows of a higher one (KIP-1166)
    """

    source: int
    epoch: int
    replica: ReplicaKey
    log_end: OffsetAndEpoch
    high_watermark: int


class FetchResponse(NamedTuple):
    """`epoch` and `leader_id` are what the answering node knows; only its leader gives the rest.

    offset     what was asked for; the driver fills in `entries` from there on out of its log before it sends
    diverging  the follower's log must be cut first; `snapshot` it must be replaced by this snapshot first
    """

    source: int
    epoch: int
    leader_id: int
    high_watermark: int = -1
    offset: int = -1
    diverging: Diverging | None = None
    snapshot: OffsetAndEpoch | None = None
    entries: Sequence[Entries] = ()


Message = (
    VoteRequest
    | VoteResponse
    | BeginQuorumEpochRequest
    | BeginQuorumEpochResponse
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchResponse
)
