"""What nodes of a quorum say to one another. The driver turns each into KRaft's request or response of the same name.

Requests and answers are one-way here: an answer carries all that is needed to judge it, so lost, late, doubled and
reordered ones do no harm. Every message has `source`, the node id it comes from. An answer has `error` besides: why
the request was not served, NONE if it was. Whatever it is, `epoch` and `leader_id` are what the answering node knows;
with UNKNOWN_LEADER_EPOCH that is less than is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, Voter
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.controller.raft.voter_history import KRaftVersion as KRaftVersion
from pykbroker.controller.raft.voter_history import LeaderChange as LeaderChange
from pykbroker.protocol.error_codes import ErrorCode

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
    """With an error it is neither a vote nor a refusal to vote.

    UNSUPPORTED_VERSION is the driver's own word: the other node does not know what a pre-vote is.
    """

    source: int
    epoch: int
    leader_id: int
    is_granted: bool
    is_pre_vote: bool
    error: ErrorCode = ErrorCode.NONE


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader makes itself known to a voter."""

    source: int
    epoch: int
    voter: ReplicaKey


class BeginQuorumEpochResponse(NamedTuple):
    source: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE


class EndQuorumEpochRequest(NamedTuple):
    """A leader gives up its epoch; the successors in the order in which they should stand for election."""

    source: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


class EndQuorumEpochResponse(NamedTuple):
    """Without an error: the voter knows that the epoch ends, and need not be told again."""

    source: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE


class FetchRequest(NamedTuple):
    """Asks for the records from `log_end.offset` on, and so says that all before are durable at `replica`.

    high_watermark   what the replica knows: the leader answers at once when it knows of a higher one (KIP-1166)
    max_wait_ms      how long the leader may keep it when there is nothing to answer
    max_bytes        how many bytes of records are wanted; a first batch that is larger comes all the same
    """

    source: int
    epoch: int
    replica: ReplicaKey
    log_end: OffsetAndEpoch
    high_watermark: int
    max_wait_ms: int = 500
    max_bytes: int = 1 << 20


class FetchResponse(NamedTuple):
    """Only the leader of the epoch gives more than `epoch` and `leader_id`.

    offset     what was asked for; the driver fills in `entries` from there on out of its log before it sends, not many
               more than `max_bytes`
    log_start  where the answering node's log begins
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
    log_start: int = -1
    max_bytes: int = 1 << 20
    error: ErrorCode = ErrorCode.NONE


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
    | EndQuorumEpochResponse
    | FetchRequest
    | FetchResponse
    | UpdateVoterRequest
    | UpdateVoterResponse
    | AddVoterRequest
    | RemoveVoterRequest
)
