"""Messages to the state machine from its own node: proposals, events of the driver, requests to change the voters.

As in etcd's raft, where proposals, unreachable peers and finished writes are messages too: `RaftCore.step` takes them
like those of `messages.py`, which come from other nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any

from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode

# Leadership and the log


class Propose(NamedTuple):
    """A request to append `record_count` records as one batch to the leader's log. `payload` is opaque to raft.

    `RaftCore.step` raises NotLeader if this node does not lead.
    """

    payload: Any
    record_count: int


class Resign(NamedTuple):
    """A request to give up leadership, before an orderly stop or because the disk is full. Other roles ignore it."""


class Persisted(NamedTuple):
    """The log below `end_offset` is durable on this node."""

    end_offset: int


class PersistFailed(NamedTuple):
    """The records of the last outputs could not be written: drop those that are not durable.

    No other node was sent any of them, as an output is persisted before its messages are sent.
    """


class Unreachable(NamedTuple):
    """A request to a node got no response. `is_refused`: its machine refused the connection, so nothing listens there.

    Optional: timeouts lead to the same result later.
    """

    node_id: int
    is_refused: bool


# Snapshots


class SnapshotTaken(NamedTuple):
    """The log before `snapshot`, which is at most the high watermark, was deleted: a snapshot replaces it."""

    snapshot: OffsetAndEpoch


class SnapshotInstalled(NamedTuple):
    """`Output.fetch_snapshot` was done: the log is empty and starts at the end of the snapshot.

    `control`: the control records in the snapshot.
    """

    snapshot: OffsetAndEpoch
    control: Sequence[ControlRecord] = ()


class SnapshotBytesFetched(NamedTuple):
    """A FetchSnapshot response with bytes of the snapshot came from the leader."""

    leader_id: int


class SnapshotFailed(NamedTuple):
    """`Output.fetch_snapshot` failed. The next Fetch, after a pause, finds out what the leader has now.

    `is_local`: for a reason of this node that may last, a full disk for instance.
    """

    leader_id: int
    is_local: bool


class SnapshotServed(NamedTuple):
    """A replica was sent bytes of a snapshot of this leader."""

    replica: ReplicaKey


# Changes of the voters (KIP-853). `Output.answers` gets one ChangeAnswer with the `change_id` of the request.


class AddVoter(NamedTuple):
    """A request to make an observer a voter.

    `acks_commit`: it is answered when the new set is committed, else when it is in the log.
    """

    change_id: Hashable
    voter: Voter
    acks_commit: bool = True


class RemoveVoter(NamedTuple):
    """A request to make a voter an observer."""

    change_id: Hashable
    voter: ReplicaKey


class UpdateVoter(NamedTuple):
    """A request to replace endpoints and supported kraft.versions of a voter."""

    change_id: Hashable
    voter: Voter


class VersionsReceived(NamedTuple):
    """ApiVersions response of a node that `Output.probes` named.

    Attributes:
        versions: lowest and highest kraft.version that it supports, None if it names none.
        error: why there is no response, else NONE.
    """

    node_id: int
    versions: tuple[int, int] | None
    error: ErrorCode = ErrorCode.NONE


class UpgradeKRaftVersion(NamedTuple):
    """A request to raise the finalized kraft.version. It is answered at once, before the record is committed."""

    change_id: Hashable
    level: int
    validate_only: bool = False


class Reason(Enum):
    """The condition that a change of the voters, or of kraft.version, does not meet."""

    CHANGE_PENDING = "another change is not finished"
    NOTHING_COMMITTED = "no record of this leader's epoch is committed"
    VOTERS_UNCOMMITTED = "the newest VotersRecord is not committed"
    STATIC_QUORUM = "kraft.version is 0"
    DUPLICATE_VOTER = "a voter has this node id"
    NOT_A_VOTER = "no voter has this key, or it is the only one"
    NO_VERSIONS = "the new voter does not answer ApiVersions"
    VERSION_UNSUPPORTED = "the new voter does not support the finalized kraft.version"
    LAGGING = "the new voter has not caught up"
    DOWNGRADE = "the new kraft.version is lower"
    VOTERS_TOO_OLD = "a voter does not support the new kraft.version"
    DIRECTORY_UNKNOWN = "the directory id of a voter is not known"


class ChangeFailure(NamedTuple):
    """Reason of a refused change, and the state of the quorum at that moment for the error message.

    Attributes:
        voters: the voters in the log; for a change of kraft.version as their UpdateRaftVoter requests describe them.
        voters_offset: offset of the newest VotersRecord, None for configured voters.
        versions: lowest and highest kraft.version that the new voter supports.
        error: error of the ApiVersions request to it.
    """

    reason: Reason
    voters: VoterSet
    voters_offset: int | None
    high_watermark: int
    kraft_version: int
    versions: tuple[int, int] = (0, 0)
    error: ErrorCode = ErrorCode.NONE


class ChangeAnswer(NamedTuple):
    """Result of the request with `change_id`.

    Attributes:
        failure: None for success, and for errors without further details.
        end_offset: for kraft.version, the log end offset; the change is final when the high watermark reaches it.
    """

    change_id: Hashable
    error: ErrorCode
    failure: ChangeFailure | None = None
    end_offset: int = -1


LocalMessage = (
    Propose
    | Resign
    | Persisted
    | PersistFailed
    | Unreachable
    | SnapshotTaken
    | SnapshotInstalled
    | SnapshotBytesFetched
    | SnapshotFailed
    | SnapshotServed
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | VersionsReceived
    | UpgradeKRaftVersion
)
