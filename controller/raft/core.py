"""RaftCore: one replica of the metadata log as a state machine with two ways in, `step` and `tick`.

Roles and their transitions; an observer is only ever UNATTACHED or FOLLOWER:

    UNATTACHED --election timeout--> PROSPECTIVE --majority of pre-votes--> CANDIDATE --majority of votes--> LEADER
    FOLLOWER --fetch timeout--> PROSPECTIVE        RESIGNED: led this epoch before a restart, or resigned
    any role --message of a higher epoch--> UNATTACHED --message that names the leader--> FOLLOWER

PROSPECTIVE is the pre-vote of KIP-996. It does not raise the epoch, so a node that was cut off deposes no leader.
A quorum of one voter goes through the same roles, as its own majority, within the first `tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykbroker.controller.raft import election, follower
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.leader import Leader
from pykbroker.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Message,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from pykbroker.controller.raft.output import Leadership, Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.replica import Replica, RoleState
from pykbroker.controller.raft.resigned import EndOfEpoch, Resigned
from pykbroker.controller.raft.roles import NotLeader, QuorumDescription, Role
from pykbroker.protocol.error_codes import ErrorCode


class RaftCore(Replica):
    """One replica as a state machine. `Replica` has its attributes and arguments; output.py describes an Output.

    Callers only read the attributes. They call `tick` once at the start, then `step` for every message and `tick` at
    `next_deadline_ms`.
    """

    _end_of_epoch: EndOfEpoch | None = None
    _is_started = False

    def step(self, message: Message | local.LocalMessage, now_ms: int) -> Output:
        """Processes a message of another node or of this one.

        Raises:
            NotLeader: the message is a Propose, and this node does not lead. Nothing has changed.
        """
        self.now_ms = now_ms
        _HANDLERS[type(message)](self, message)
        return self._take_output()

    def tick(self, now_ms: int) -> Output:
        """Processes the time. Must be called at `next_deadline_ms`, may be called at any time.

        The first call gives this node the role that follows from its quorum state.
        """
        self.now_ms = now_ms
        if not self._is_started:
            self._start()
            return self._take_output()
        if now_ms >= self.state.deadline_ms:
            self.state.on_election_timeout()
        self.state.tick()
        if self._end_of_epoch is not None:
            if self._end_of_epoch.is_over:
                self._end_of_epoch = None
            else:
                self._end_of_epoch.tick()
        return self._take_output()

    @property
    def next_deadline_ms(self) -> int:
        """Latest time of the next call of `tick`, in ms; NEVER_MS for none."""
        if not self._is_started:
            return self.now_ms
        deadline_ms = min(self.state.deadline_ms, self.state.next_deadline_ms)
        return deadline_ms if self._end_of_epoch is None else min(deadline_ms, self._end_of_epoch.next_deadline_ms)

    @property
    def epoch_start_offset(self) -> int | None:
        """Offset of the first record of the epoch that this node leads; None on other nodes."""
        return self.state.epoch_start_offset if isinstance(self.state, Leader) else None

    def describe(self, now_ms: int) -> QuorumDescription:
        """The state of the quorum as this node has it; only the leader lists voters and observers."""
        voters, observers = self.state.describe(now_ms)
        return QuorumDescription(self.leader_id, self.epoch, self.state.high_watermark, tuple(voters), tuple(observers))

    def _start(self) -> None:
        self._is_started = True
        if self.leader_id == self.node_id:
            # The restart lost the leader's state in memory. A leader has voted for itself in its epoch.
            self.leader_id = NO_LEADER
            self.voted = self.key
            self.state = Resigned(self)
            self._end_of_epoch = EndOfEpoch(self, (), self.state.deadline_ms)
        elif self.leader_id != NO_LEADER:
            self.become_follower(self.leader_id)
        else:
            self.become_unattached(self.epoch)
        if self.is_voter and len(self.voters) == 1:
            self.become_prospective()

    def _take_output(self) -> Output:
        output, self.output = self.output, Output()
        if self.state.role in (Role.LEADER, Role.RESIGNED):
            state = QuorumState(self.epoch, self.node_id)
        else:
            state = QuorumState(self.epoch, self.leader_id, self.voted)
        if state != self.persisted_state:
            output.quorum_state = self.persisted_state = state
        leadership = Leadership(self.epoch, self.leader_id)
        if leadership != self.reported_leadership:
            output.leadership = self.reported_leadership = leadership
        return output

    # Transitions

    def _enter_role(self, state: RoleState) -> None:
        old, self.state = self.state, state
        old.end()
        state.begin()

    def become_unattached(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None
        self.leader_id = NO_LEADER
        self._enter_role(follower.Unattached(self))

    def become_follower(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self._enter_role(follower.Follower(self))

    def become_prospective(self) -> None:
        if self.may_be_elected:
            self._enter_role(election.Prospective(self))
        else:
            self.become_unattached(self.epoch)

    def become_candidate(self) -> None:
        self.epoch += 1
        self.leader_id = NO_LEADER
        self.voted = self.key
        self._enter_role(election.Candidate(self))

    def become_leader(self, granting_ids: set[int]) -> None:
        self.leader_id = self.node_id
        self._enter_role(Leader(self, granting_ids))

    def become_resigned(self, successors: Sequence[ReplicaKey]) -> None:
        leader, self.state = self.state, Resigned(self)
        self.leader_id = NO_LEADER
        self._end_of_epoch = EndOfEpoch(self, successors, self.state.deadline_ms)
        leader.end()
        if not self.may_be_elected:
            self.become_unattached(self.epoch)

    # Messages of other nodes

    def _on_vote_response(self, response: VoteResponse) -> None:
        if response.error is ErrorCode.UNSUPPORTED_VERSION:
            self.state.on_pre_vote_unsupported()
        elif self.follow_if_later(response.epoch, response.leader_id) and response.error is ErrorCode.NONE:
            self.state.on_vote_response(response)

    def _on_fetch_response(self, response: FetchResponse) -> None:
        had_leader = self.leader_id
        if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            # The responding node is in an earlier epoch, so it does not know the leader of this one.
            if response.epoch < self.epoch:
                self.state.on_leader_unknown(response.source)
        elif self.follow_if_later(response.epoch, response.leader_id):
            self.state.on_fetch_response(response, is_new_leader=self.leader_id != had_leader)

    def _on_begin_quorum_epoch_response(self, response: BeginQuorumEpochResponse) -> None:
        self.follow_if_later(response.epoch, response.leader_id)

    def _on_end_quorum_epoch_response(self, response: EndQuorumEpochResponse) -> None:
        if self.follow_if_later(response.epoch, response.leader_id) and self._end_of_epoch is not None:
            self._end_of_epoch.on_response(response)

    def _on_update_voter_response(self, response: UpdateVoterResponse) -> None:
        if self.follow_if_later(response.epoch, response.leader_id) and response.is_done:
            self.state.on_voter_updated(response.source)

    # Messages of this node

    def _on_propose(self, proposal: local.Propose) -> None:
        if not isinstance(self.state, Leader):
            raise NotLeader(self.leader_id, self.epoch)
        self.state.append(*proposal)

    def _on_persisted(self, event: local.Persisted) -> None:
        self.log.persisted_offset = max(self.log.persisted_offset, min(event.end_offset, self.log.end_offset))
        self.state.on_persisted()

    def _on_persist_failed(self, event: local.PersistFailed) -> None:
        self.log.truncate(self.log.persisted_offset)
        self.state.on_records_dropped()
        if self.history.truncate(self.log.end_offset):
            self.voters_changed()

    def _on_unreachable(self, event: local.Unreachable) -> None:
        backoffs = follower.LOOK_BACKOFFS if event.is_refused else 1
        retry_at_ms = self.now_ms + self.settings.retry_backoff_ms * backoffs
        self.state.on_unreachable(event.node_id, is_refused=event.is_refused, retry_at_ms=retry_at_ms)
        if self._end_of_epoch is not None:
            self._end_of_epoch.on_unreachable(event.node_id, retry_at_ms=retry_at_ms)

    def _on_snapshot_taken(self, event: local.SnapshotTaken) -> None:
        snapshot = event.snapshot
        assert snapshot.offset <= self.high_watermark, (snapshot, self.high_watermark)
        self.log.start_after(snapshot)
        self.history.drop_before(snapshot.offset)

    def _on_snapshot_installed(self, event: local.SnapshotInstalled) -> None:
        self.log.replace_by(event.snapshot)
        self.history.restart(event.snapshot.offset, event.control)
        self.voters_changed()
        self.set_high_watermark(event.snapshot.offset)
        self.state.on_snapshot_installed()


_HANDLERS: dict[type, Callable[[RaftCore, Any], None]] = {
    VoteRequest: election.on_vote_request,
    VoteResponse: RaftCore._on_vote_response,
    BeginQuorumEpochRequest: follower.on_begin_quorum_epoch,
    BeginQuorumEpochResponse: RaftCore._on_begin_quorum_epoch_response,
    EndQuorumEpochRequest: follower.on_end_quorum_epoch,
    EndQuorumEpochResponse: RaftCore._on_end_quorum_epoch_response,
    FetchRequest: lambda core, request: core.state.on_fetch_request(request),
    FetchResponse: RaftCore._on_fetch_response,
    UpdateVoterResponse: RaftCore._on_update_voter_response,
    local.Propose: RaftCore._on_propose,
    local.Resign: lambda core, message: core.state.resign(),
    local.Persisted: RaftCore._on_persisted,
    local.PersistFailed: RaftCore._on_persist_failed,
    local.Unreachable: RaftCore._on_unreachable,
    local.SnapshotTaken: RaftCore._on_snapshot_taken,
    local.SnapshotInstalled: RaftCore._on_snapshot_installed,
    local.SnapshotBytesFetched: lambda core, event: core.state.on_snapshot_bytes(event.leader_id),
    local.SnapshotFailed: lambda core, event: core.state.on_snapshot_failed(event.leader_id, is_local=event.is_local),
    local.SnapshotServed: lambda core, event: core.state.on_snapshot_served(event.replica),
    local.AddVoter: lambda core, request: core.state.on_voter_request(request),
    local.RemoveVoter: lambda core, request: core.state.on_voter_request(request),
    local.UpdateVoter: lambda core, request: core.state.on_voter_request(request),
    local.UpgradeKRaftVersion: lambda core, request: core.state.on_voter_request(request),
    local.VersionsReceived: lambda core, response: core.state.on_versions_received(response),
}
"""Reactions by type of message. AddVoterRequest and the like, which are only sent to other nodes, are not in it: the
API handler that receives one there steps AddVoter and the like."""
