"""Output: the result of one step of RaftCore (etcd's Ready), and the contract with the driver.

For each output, in this order and before the next step:

1. persist: write `quorum_state` durably if it is set; truncate the log to `truncate_to` if it is set; append `entries`
   in order. When they are durable, step Persisted(log end offset); its output is handled the same way, after this one.
2. send: only then send `send`. A VoteResponse promises that the vote is durable, a FetchRequest that the records are.
   A message that cannot be sent may be dropped.
3. apply: apply the records below `high_watermark`, if it is set, to the metadata.

`leadership` is set when leader or epoch have changed. Records that this node proposed as leader and that are not
committed yet may be committed by another leader, or not.
`fetch_snapshot` is set to (leader id, snapshot) when the leader's snapshot must be downloaded; then SnapshotInstalled
or SnapshotFailed is stepped.
`voters` is set when voters or their endpoints have changed. `answers` are the results of requests to change them. The
driver sends an ApiVersions request to each of `probes`, and steps VersionsReceived with the response.
"""

from __future__ import annotations

from pykbroker.controller.raft.local_messages import ChangeAnswer
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, Entries, Message
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.named_tuple import NamedTuple


class QuorumState(NamedTuple):
    """Durable state of a replica: epoch, its leader (-1 if not known) and the candidate that it voted for in it."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class Leadership(NamedTuple):
    """An epoch and its leader, -1 while it is not known."""

    epoch: int
    leader_id: int


class Envelope(NamedTuple):
    """A message and the node id it goes to."""

    destination: int
    message: Message


class Output:
    """Result of one step, for the driver. None and empty lists mean that there is nothing to do."""

    __slots__ = (
        "answers",
        "entries",
        "fetch_snapshot",
        "high_watermark",
        "leadership",
        "probes",
        "quorum_state",
        "send",
        "truncate_to",
        "voters",
    )

    def __init__(self) -> None:
        self.quorum_state: QuorumState | None = None
        self.truncate_to: int | None = None
        self.entries: list[Entries] = []
        self.send: list[Envelope] = []
        self.high_watermark: int | None = None
        self.leadership: Leadership | None = None
        self.fetch_snapshot: tuple[int, OffsetAndEpoch] | None = None
        self.voters: VoterSet | None = None
        self.answers: list[ChangeAnswer] = []
        self.probes: list[Voter] = []

    @property
    def must_persist(self) -> bool:
        return self.quorum_state is not None or self.truncate_to is not None or bool(self.entries)
