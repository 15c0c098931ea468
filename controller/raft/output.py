"""Output: all that the world gets to know of a step of RaftCore, and the contract with the driver.

For each output, in this order and before the next call of the core with anything but the time:

1. persist: write `quorum_state` durably if it is given; cut the log to `truncate_to` if it is given; append `entries`
   in order. Then call `persisted(log_end_offset)` once they are durable; its output is handled the same way.
2. send: only then send `send`. An answer may speak of a vote that must not be forgotten, a Fetch of records that must
   not be lost. A message that cannot be sent may be dropped.
3. apply: hand the records below `high_watermark`, if it is given, to the state machine.

`leadership` says that leader or epoch changed; proposals that this node made as leader and that are not committed yet
may or may not be, as far as it can know.
`fetch_snapshot` asks for a download of the leader's snapshot, after which `snapshot_installed` is to be called.
`voters` says that others vote now, or listen elsewhere; `answers` are for who asked to change the voters; each of
`probes` is to be asked for the kraft.versions that it can run, and `probed` to be called with what it says.
"""

from __future__ import annotations

from typing import NamedTuple

from pykbroker.controller.raft.local_messages import ChangeAnswer
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, Entries, Message
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet


class QuorumState(NamedTuple):
    """What a replica must remember over a restart: the epoch, who leads it if known (else -1), whom it voted for."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class Leadership(NamedTuple):
    """Who leads which epoch; leader_id is -1 while nobody is known to."""

    epoch: int
    leader_id: int


class Envelope(NamedTuple):
    """A message and the node id it goes to."""

    destination: int
    message: Message


class Output:
    """See above. None and empty mean that there is nothing to do."""

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
