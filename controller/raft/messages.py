"""Messages between nodes of a quorum. On the wire each is the KRaft request or response of the same name.

Here requests and responses are one-way: a response has all that is needed to process it, so a lost, late, doubled or
reordered one does no harm. `source` is the id of the node that sent the message. A response has an `error`, NONE if the
request was served; with any error, `epoch` and `leader_id` are those of the responding node. With
UNKNOWN_LEADER_EPOCH the responding node is in an earlier epoch than the requesting one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, Voter
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.controller.raft.voter_history import KRaftVersion as KRaftVersion
from pykbroker.controller.raft.voter_history import LeaderChange as LeaderChange
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode

NO_LEADER = -1


class Entries(NamedTuple):
    """Consecutive records of one epoch, written as one batch.

    Attributes:
        base_offset: offset of the first record.
        record_count: number of offsets that they take.
        payload: opaque to raft: on the leader that of the proposal, None for a control batch; on a follower the batch
            as the leader sent it.
        control: the records of a control batch, each at the next offset.
    """

    base_offset: int
    epoch: int
    record_count: int
    payload: Any
    control: tuple[ControlRecord | None, ...] = ()


class VoteRequest(NamedTuple):
    """Asks for a vote in `epoch`; with is_pre_vote for a pre-vote in the present epoch (KIP-996)."""

    source: int
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: OffsetAndEpoch
    is_pre_vote: bool


class VoteResponse(NamedTuple):
    """Grants or rejects a vote. With an error it does neither.

    UNSUPPORTED_VERSION is set by this node: the other node's version of Vote has no pre-votes.
    """

    source: int
    epoch: int
    leader_id: int
    is_granted: bool
    is_pre_vote: bool
    error: ErrorCode = ErrorCode.NONE


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader announces itself to a voter."""

    source: int
    epoch: int
    voter: ReplicaKey


class BeginQuorumEpochResponse(NamedTuple):
    source: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE


class EndQuorumEpochRequest(NamedTuple):
    """A leader has resigned. `successors` should become candidates in this order."""

    source: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


class EndQuorumEpochResponse(NamedTuple):
    """A voter's answer. Without an error the resigned leader does not send it the request again."""

    source: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE


class FetchRequest(NamedTuple):
    """Asks for the records from `log_end.offset` on. All records before it are durable at `replica`.

    Attributes:
        high_watermark: of the replica; the leader answers at once if its own is higher (KIP-1166).
        max_wait_ms: how long the leader may wait for records.
        max_bytes: bytes of records wanted; a first batch that is larger is sent all the same.
    """

    source: int
    epoch: int
    replica: ReplicaKey
    log_end: OffsetAndEpoch
    high_watermark: int
    max_wait_ms: int = 500
    max_bytes: int = 1 << 20


class FetchResponse(NamedTuple):
    """The response to a FetchRequest.

    A node that is not the leader of the epoch sets only `epoch`, `leader_id`, `log_start` and `error`.

    Attributes:
        offset: that of the request; the driver adds `entries` from there on, about `max_bytes`, before it sends.
        log_start: first offset of the responding node's log.
        diverging: where the logs diverge: the follower must truncate its log first.
        snapshot: the snapshot by which the follower must replace its log first.
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
    """A voter sends the leader its endpoints and the kraft.versions that it supports (KIP-853)."""

    source: int
    epoch: int
    voter: Voter


class UpdateVoterResponse(NamedTuple):
    """The answer to an UpdateVoterRequest. `is_done`: the leader has processed it, or does not support it."""

    source: int
    epoch: int
    leader_id: int
    is_done: bool


class AddVoterRequest(NamedTuple):
    """An observer asks to become a voter (KIP-1186). The result shows in the log."""

    source: int
    voter: Voter


class RemoveVoterRequest(NamedTuple):
    """An observer asks to remove the voter with its node id and a directory id that it has lost (KIP-1186)."""

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
