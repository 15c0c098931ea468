"""What nodes of a quorum say to one another. The driver turns each into KRaft's request or response of the same name.

Requests and answers are one-way here: an answer carries all that is needed to judge it, so lost, late, doubled and
reordered ones do no harm. Every message has `source`, the node id it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, Voter
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.controller.raft.voter_history import KRaftVersion as KRaftVersion
from pykbroker.controller.raft.voter_history import LeaderChange as LeaderChange

NO_LEADER = -1


class Entries(NamedTuple):
    """Consecutive records of one epoch, written as one batch.

    base_offset   offset of the first record
    record_count  how many offsets they take
    payload       what they hold, opaque here: for a proposal what was proposed, None for a control batch of a leader,
                  for a follower what the leader sent
    control       the records of a control batch, each at the next offset
    """

    base_offset: int
    epoch: int
    record_count: int
    payload: Any
    control: tuple[ControlRecord | None, ...] = ()


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
    successors: tuple[ReplicaKey, ...]


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


class UpdateVoterRequest(NamedTuple):
    """A voter tells the leader where it listens and which kraft.versions it can run (KIP-853)."""

    source: int
    epoch: int
    voter: Voter


class UpdateVoterResponse(NamedTuple):
    """`is_done`: the leader has taken note, or cannot."""

    source: int
    epoch: int
    leader_id: int
    is_done: bool


class AddVoterRequest(NamedTuple):
    """An observer asks to become a voter (KIP-1186). How it ends shows in the log."""

    source: int
    voter: Voter


class RemoveVoterRequest(NamedTuple):
    """An observer asks that the voter with its node id and another directory, which it lost, be removed (KIP-1186)."""

    source: int
    voter: ReplicaKey


Message = (
    VoteRequest
    | VoteResponse
    | BeginQuorumEpochRequest
    | BeginQuorumEpochResponse
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchResponse
    | UpdateVoterRequest
    | UpdateVoterResponse
    | AddVoterRequest
    | RemoveVoterRequest
)
