"""Replica: the state that every role of a node needs, and the steps that all roles take. RoleState: one role.

A role is an object of a subclass of RoleState (as EpochState is in KafkaRaftClient), made when the role begins and
dropped when it ends. It keeps the state of that role, reads the replica, and changes it through the methods below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pykbroker.controller.raft.local_messages import (
    AddVoter,
    ChangeAnswer,
    RemoveVoter,
    UpdateVoter,
    UpgradeKRaftVersion,
    VersionsReceived,
)
from pykbroker.controller.raft.log_view import LogView
from pykbroker.controller.raft.messages import NO_LEADER, Entries, FetchRequest, FetchResponse, Message, VoteResponse
from pykbroker.controller.raft.output import Envelope, Leadership, Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import NEVER_MS, RaftSettings, ReplicaDescription, Role
from pykbroker.controller.raft.voter_history import ControlRecord, VoterHistory
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.random_source import RandomSource


class RoleState:
    """One role of a replica, from its beginning to its end. The methods here are the reactions that most roles share.

    Attributes:
        role: the name of the role.
        may_grant_votes, may_grant_pre_votes: False for a role that refuses every request for a vote.
        deadline_ms: when `on_election_timeout` is due.
    """

    role: ClassVar[Role] = Role.UNATTACHED
    may_grant_votes: ClassVar[bool] = True

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.deadline_ms = NEVER_MS

    @property
    def may_grant_pre_votes(self) -> bool:
        return True

    @property
    def next_deadline_ms(self) -> int:
        """Time in ms of the next `tick` that this role needs besides its election timeout."""
        return NEVER_MS

    def begin(self) -> None:
        """Called once, when the replica has this role."""

    def end(self) -> None:
        """Called once, when the replica has its next role, epoch and leader."""

    def tick(self) -> None:
        """Does what is due at `next_deadline_ms`."""

    def on_election_timeout(self) -> None:
        self.replica.become_prospective()

    def grant_time(self) -> None:
        """Waits another election timeout: the candidate that got this node's vote needs time to win."""
        self.deadline_ms = self.replica.now_ms + self.replica.random_timeout()

    # Messages of other nodes

    def on_fetch_request(self, request: FetchRequest) -> None:
        self.replica.refuse_fetch(request, self.replica.epoch_error(request.epoch) or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_fetch_response(self, response: FetchResponse, *, is_new_leader: bool) -> None:
        """A node has answered a Fetch.

        `is_new_leader`: its response named the leader, so the request was not sent as a follower of that leader.
        """

    def on_leader_unknown(self, node_id: int) -> None:
        """A node does not know the leader of this epoch either."""

    def on_vote_response(self, response: VoteResponse) -> None:
        pass

    def on_pre_vote_unsupported(self) -> None:
        """A voter does not support pre-votes: it runs Kafka 3.8 or older."""

    def on_leader_announced(self, leader_id: int) -> None:
        """The leader of this epoch sent BeginQuorumEpoch."""

    def on_voter_updated(self, leader_id: int) -> None:
        """`leader_id`, which may be a deposed leader, has processed an UpdateVoterRequest."""

    # Messages of this node

    def on_persisted(self) -> None:
        """Entries of this node, its own or received ones, are on disk."""

    def on_records_dropped(self) -> None:
        """The last records could not be written and were removed from the log."""

    def on_unreachable(self, node_id: int, *, is_refused: bool, retry_at_ms: int) -> None:
        """A request got no response. `retry_at_ms`: time to send it again, for a role that does."""

    def on_voters_changed(self) -> None:
        """The log has another voter set."""

    def on_snapshot_installed(self) -> None:
        """A snapshot of the leader is on disk."""

    def on_snapshot_bytes(self, leader_id: int) -> None:
        """Bytes of a snapshot came from the leader."""

    def on_snapshot_failed(self, leader_id: int, *, is_local: bool) -> None:
        """The download of a snapshot has failed; `is_local`: by this node's disk."""

    def on_snapshot_served(self, key: ReplicaKey) -> None:
        """A part of a snapshot was sent to a replica."""

    def on_voter_request(self, request: AddVoter | RemoveVoter | UpdateVoter | UpgradeKRaftVersion) -> None:
        self.replica.output.answers.append(ChangeAnswer(request.change_id, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def on_versions_received(self, response: VersionsReceived) -> None:
        """A voter to be added has answered ApiVersions."""

    def resign(self) -> None:
        """Gives up leadership."""

    @property
    def high_watermark(self) -> int:
        """The high watermark in messages to other nodes; -1 while it is unknown."""
        return self.replica.high_watermark

    def describe(self, now_ms: int) -> tuple[list[ReplicaDescription], list[ReplicaDescription]]:
        """Voters and observers with their progress; empty on all nodes but the leader."""
        return [], []


class Replica(ABC):
    """State of one replica that all roles share.

    Attributes:
        key, node_id: identity of this replica, and the node id in it.
        itself: this node as a VotersRecord describes it; without endpoints if it cannot become a voter.
        bootstrap_ids: ids below -1 of servers that may know the leader (`controller.quorum.bootstrap.servers`).
        epoch, leader_id, voted: the quorum state. leader_id is -1 while the leader is unknown.
        state: the role.
        log: offsets and epochs of the log, without the records.
        history: voters and kraft.version by offset.
        high_watermark: records below it are committed; -1 until it is known.
        now_ms: time of the present step.
        output: result of the present step.
        asked_count: number of requests sent so far to find the leader; selects the next node to ask.
        ended_epoch: the last epoch whose leader sent EndQuorumEpoch.
        persisted_state, reported_leadership: `quorum_state` and `leadership` of the last output that had them.
    """

    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet,
        log: LogView,
        state: QuorumState,
        settings: RaftSettings,
        random: RandomSource,
        *,
        control: Iterable[tuple[int, ControlRecord]] = (),
        itself: Voter | None = None,
        bootstrap_ids: Sequence[int] = (),
    ) -> None:
        """A replica that starts with the `log` and `state` that are on disk.

        Args:
            voters: the configured voters, in effect while there is no VotersRecord; empty for a dynamic quorum.
            control: (offset, record) of the control records in snapshot and log.
            itself, bootstrap_ids: see the attributes.
        """
        self.key = key
        self.node_id = key.node_id
        self.itself = itself or Voter(key)
        self.history = VoterHistory(voters, control)
        self.bootstrap_ids = bootstrap_ids
        self.log = log
        self.settings = settings
        self.random = random
        # If the quorum-state file was lost, the log may have records of a later epoch.
        self.epoch = max(state.epoch, log.last_epoch)
        is_current = self.epoch == state.epoch
        self.leader_id = state.leader_id if is_current else NO_LEADER
        self.voted = state.voted if is_current else None
        # The records in a snapshot are committed.
        self.high_watermark = log.start.offset if log.start.offset > 0 else -1
        self.now_ms = 0
        self.asked_count = 0
        self.ended_epoch = -1
        self.output = Output()
        self.persisted_state = state
        self.reported_leadership = Leadership(state.epoch, NO_LEADER)
        self.state = RoleState(self)

    # The quorum

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def deadline_ms(self) -> int:
        """End of the present role's election timeout, in ms."""
        return self.state.deadline_ms

    @property
    def voters(self) -> VoterSet:
        """The voters of the newest VotersRecord in the log, committed or not; else those of the configuration."""
        return self.history.voters

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters

    @property
    def may_be_elected(self) -> bool:
        """True for a voter, and for a node whose removal is in its log but not known to be committed.

        Such a node may have records that the others lack: until they have them, they cannot be elected.
        """
        if self.is_voter:
            return True
        offset = self.history.voters_offset
        return offset is not None and offset >= max(self.high_watermark, 0) and self.key in self.history.voters_before

    def random_timeout(self) -> int:
        """A random time in ms from one election timeout to below two."""
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)

    # Output

    def send(self, destination: int, message: Message) -> None:
        self.output.send.append(Envelope(destination, message))

    def epoch_error(self, epoch: int) -> ErrorCode:
        """The error for a request of another epoch than this node's; NONE for the same."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > self.epoch else ErrorCode.NONE

    def refuse_fetch(self, request: FetchRequest, error: ErrorCode) -> None:
        self.send(
            request.source,
            FetchResponse(self.node_id, self.epoch, self.leader_id, log_start=self.log.start.offset, error=error),
        )

    # The log

    def append(self, payload: Any, record_count: int) -> None:
        """Appends records of the leader as one batch."""
        self.output.entries.append(Entries(self.log.end_offset, self.epoch, record_count, payload))
        self.log.append(self.epoch, record_count)

    def append_control(self, records: Sequence[ControlRecord]) -> None:
        """Appends control records of the leader as one batch; a VotersRecord is in force from now on."""
        self.append_batch(Entries(self.log.end_offset, self.epoch, len(records), None, tuple(records)))

    def append_batch(self, batch: Entries) -> None:
        """Appends a batch that may have control records."""
        self.output.entries.append(batch)
        self.log.append(batch.epoch, batch.record_count)
        is_change = False
        for number, record in enumerate(batch.control):
            if record is not None:
                is_change |= self.history.add(batch.base_offset + number, record)
        if is_change:
            self.voters_changed()

    def truncate(self, offset: int) -> None:
        """Drops the records from `offset` on; the leader does not have them."""
        assert offset >= self.high_watermark, f"cutting committed records: {offset} < {self.high_watermark}"
        self.output.truncate_to = offset
        self.log.truncate(offset)
        if self.history.truncate(offset):
            self.voters_changed()

    def voters_changed(self) -> None:
        self.output.voters = self.voters
        self.state.on_voters_changed()

    def set_high_watermark(self, offset: int) -> None:
        """Raises the high watermark; a lower offset has no effect."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.output.high_watermark = offset

    # Transitions

    def follow_if_later(self, epoch: int, leader_id: int) -> bool:
        """Adopts the epoch and leader in another node's message. False for an earlier epoch: it must have no effect."""
        if epoch < self.epoch:
            return False
        names_leader = leader_id not in (NO_LEADER, self.node_id)
        if epoch > self.epoch and not names_leader:
            self.become_unattached(epoch)
        elif names_leader and (epoch > self.epoch or self.leader_id == NO_LEADER):
            if epoch > self.epoch:
                self.epoch = epoch
                self.voted = None
            self.become_follower(leader_id)
        return True

    @abstractmethod
    def become_unattached(self, epoch: int) -> None:
        """Waits for the leader of a later epoch, or for another leader of this one, for which the vote is kept."""

    @abstractmethod
    def become_follower(self, leader_id: int) -> None:
        """Follows the leader of the present epoch."""

    @abstractmethod
    def become_prospective(self) -> None:
        """Asks the voters for pre-votes (KIP-996); UNATTACHED instead if this node may not be elected."""

    @abstractmethod
    def become_candidate(self) -> None:
        """Raises the epoch, votes for itself and asks the voters for their votes."""

    @abstractmethod
    def become_leader(self, granting_ids: set[int]) -> None:
        """Leads the present epoch; `granting_ids` are the voters that granted their votes."""

    @abstractmethod
    def become_resigned(self, successors: Sequence[ReplicaKey]) -> None:
        """Ends the epoch that this node leads; `successors` should be candidates in this order.

        UNATTACHED if this node may not be elected: its successor will not send BeginQuorumEpoch to it.
        """
