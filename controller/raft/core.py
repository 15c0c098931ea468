"""RaftCore: one replica of the metadata log as a state machine.

Roles and how they follow one another (a voter; an observer is only ever UNATTACHED or FOLLOWER):

    UNATTACHED --timeout--> PROSPECTIVE --majority would vote--> CANDIDATE --majority voted--> LEADER
    FOLLOWER --no answer from the leader--> PROSPECTIVE        RESIGNED: led this epoch before a restart or gave it up
    anything --a higher epoch--> UNATTACHED --a leader's word--> FOLLOWER

PROSPECTIVE is KIP-996's pre-vote: it does not raise the epoch, so a node that was cut off does not unseat a leader.
A quorum of one voter walks the same path: it is its own majority, and gets through all of it within `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from pykbroker.controller.raft import election, following, leadership, resigning, voter_changes
from pykbroker.controller.raft.log_view import LogView, OffsetAndEpoch
from pykbroker.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Entries,
    FetchRequest,
    FetchResponse,
    Message,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from pykbroker.controller.raft.output import Envelope, Leadership, Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import (
    NEVER_MS,
    NotLeader,
    QuorumDescription,
    RaftSettings,
    RandomSource,
    ReplicaDescription,
    Role,
)
from pykbroker.controller.raft.voter_history import ControlRecord, VoterHistory
from pykbroker.protocol.error_codes import ErrorCode


class RaftCore:
    """See the module's text, and output.py for what must be done with what the methods return.

    Attributes (to read, not to write):
        epoch, leader_id, voted: the quorum state; leader_id is -1 while unknown.
        role: what this node is in the epoch.
        log: offsets and epochs of its log.
        history: the voters and the kraft.version by offset.
        itself: how this node would stand in a VotersRecord; without endpoints while it cannot be a voter of one.
        high_watermark: records below it are committed, for ever; -1 until the first is known.
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
        """A replica with what it remembered: `state` and `log` as they are on disk.

        Args:
            voters: those that vote while no VotersRecord is known; may be none.
            control: the control records of checkpoint and log, by offset.
            itself: see the attribute.
            bootstrap_ids: names, below -1, of servers that may know the leader (`controller.quorum.bootstrap.servers`).
        """
        self.key = key
        self.itself = itself or Voter(key)
        self.history = VoterHistory(voters, control)
        self.bootstrap_ids = bootstrap_ids
        self.log = log
        self.settings = settings
        self.random = random
        # A log can know of a later epoch than a quorum-state file that was lost.
        self.epoch = max(state.epoch, log.last_epoch)
        is_current = self.epoch == state.epoch
        self.leader_id = state.leader_id if is_current else NO_LEADER
        self.voted = state.voted if is_current else None
        self.role = Role.UNATTACHED
        # What a snapshot holds is committed.
        self.high_watermark = log.start.offset if log.start.offset > 0 else -1
        self.now_ms = 0
        self.deadline_ms = NEVER_MS
        self.votes = election.Votes()
        self.leading = leadership.Leading()
        self.following = following.Following()
        self.resignation: resigning.Resignation | None = None
        self._persisted_state = state
        self._leadership = Leadership(state.epoch, NO_LEADER)
        self._output = Output()

    # The doors

    def start(self, now_ms: int) -> Output:
        """Takes up the role that the remembered state gives. To be called once, first."""
        self.now_ms = now_ms
        if self.leader_id == self.key.node_id:
            # What it promised as leader before the restart it no longer knows. Its vote was its own, though.
            self.role = Role.RESIGNED
            self.leader_id = NO_LEADER
            self.voted = self.key
            self.deadline_ms = now_ms + self.random_timeout()
            resigning.begin(self, (), self.deadline_ms)
        elif self.leader_id != NO_LEADER:
            self.become_follower(self.leader_id)
        else:
            self._wait_for_leader()
        if self.is_voter and len(self.voters) == 1:
            election.become_prospective(self)
        return self._take()

    def step(self, message: Message, now_ms: int) -> Output:
        """Takes in a message from another node."""
        self.now_ms = now_ms
        _HANDLERS[type(message)](self, message)
        return self._take()

    def unreachable(self, node_id: int, now_ms: int, *, is_gone: bool) -> Output:
        """Takes note that a request to a node had no answer; `is_gone`: its machine refused the connection.

        Nobody must call it: timeouts come to the same in the end.
        """
        self.now_ms = now_ms
        again_ms = now_ms + self.settings.retry_backoff_ms * (following.LOOK_BACKOFFS if is_gone else 1)
        following.on_unreachable(self, node_id, is_gone=is_gone, again_ms=again_ms)
        election.on_unreachable(self, again_ms=again_ms)
        resigning.on_unreachable(self, node_id, again_ms=again_ms)
        return self._take()

    def tick(self, now_ms: int) -> Output:
        """Lets time pass. Must be called at `next_deadline_ms`, may be called at any time."""
        self.now_ms = now_ms
        if now_ms >= self.deadline_ms:
            _TIMEOUTS[self.role](self)
        if self.role is Role.LEADER:
            leadership.tick(self)
        elif self.role in (Role.FOLLOWER, Role.UNATTACHED):
            following.tick(self)
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            election.tick(self)
        resigning.tick(self)
        return self._take()

    def propose(self, payload: Any, record_count: int, now_ms: int) -> Output:
        """Appends records to the log of this leader, as one batch at `log.end_offset`.

        Raises:
            NotLeader: this node does not lead.
        """
        self.now_ms = now_ms
        if self.role is not Role.LEADER:
            raise NotLeader(self.leader_id, self.epoch)
        self.append(payload, record_count)
        leadership.answer_waiting(self)
        return self._take()

    def add_voter(self, change_id: Hashable, voter: Voter, now_ms: int, *, acks_commit: bool = True) -> Output:
        """Begins to make a node a voter; an output has the answer for `change_id` sooner or later."""
        self.now_ms = now_ms
        voter_changes.add(self, change_id, voter, acks_commit=acks_commit)
        return self._take()

    def remove_voter(self, change_id: Hashable, key: ReplicaKey, now_ms: int) -> Output:
        """Begins to remove a voter; as `add_voter`."""
        self.now_ms = now_ms
        voter_changes.remove(self, change_id, key)
        self._answer_fetches()
        return self._take()

    def update_voter(self, change_id: Hashable, voter: Voter, now_ms: int) -> Output:
        """Takes note of what a voter says of itself; as `add_voter`."""
        self.now_ms = now_ms
        voter_changes.update(self, change_id, voter)
        return self._take()

    def probed(
        self, node_id: int, versions: tuple[int, int] | None, now_ms: int, error: ErrorCode = ErrorCode.NONE
    ) -> Output:
        """Takes in what a node says that an output asked to probe: the range of kraft.versions, None if it has none."""
        self.now_ms = now_ms
        voter_changes.on_probed(self, node_id, versions, error)
        self._answer_fetches()
        return self._take()

    def upgrade_kraft_version(self, level: int, now_ms: int, *, validate_only: bool) -> tuple[str | None, Output]:
        """Raises kraft.version on this leader; why it cannot be, or None, and what is to be done.

        Raises:
            NotLeader: this node does not lead.
        """
        self.now_ms = now_ms
        if self.role is not Role.LEADER:
            raise NotLeader(self.leader_id, self.epoch)
        why_not = voter_changes.upgrade(self, level, validate_only=validate_only)
        self._answer_fetches()
        return why_not, self._take()

    def _answer_fetches(self) -> None:
        if self.role is Role.LEADER:
            leadership.answer_waiting(self)

    def persisted(self, end_offset: int, now_ms: int) -> Output:
        """Takes note that the log below `end_offset` is durable here."""
        self.now_ms = now_ms
        self.log.persisted_offset = max(self.log.persisted_offset, min(end_offset, self.log.end_offset))
        if self.role is Role.LEADER:
            leadership.advance_high_watermark(self)
        elif self.role is Role.FOLLOWER:
            following.on_persisted(self)
        return self._take()

    def drop_unpersisted(self) -> Output:
        """Forgets what a leader proposed that could not be written. Nobody was sent any of it: persist comes first."""
        self.log.truncate(self.log.persisted_offset)
        change = self.leading.change
        if change is not None and change.offset >= self.log.end_offset:
            voter_changes.give_up(self, ErrorCode.KAFKA_STORAGE_ERROR)
        if self.history.truncate(self.log.end_offset):
            self._voters_changed()
        return self._take()

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """Takes note that the log before a snapshot was dropped; its end is at most the high watermark."""
        assert snapshot.offset <= self.high_watermark, (snapshot, self.high_watermark)
        self.log.start_behind(snapshot)
        self.history.drop_before(snapshot.offset)

    def snapshot_installed(
        self, snapshot: OffsetAndEpoch, now_ms: int, control: Iterable[ControlRecord] = ()
    ) -> Output:
        """Takes note that `fetch_snapshot` was done: the log is empty and begins behind the snapshot.

        `control`: the control records that the snapshot holds.
        """
        self.now_ms = now_ms
        self.log.replace_by(snapshot)
        self.history.restart(snapshot.offset, control)
        self._voters_changed()
        self.set_high_watermark(snapshot.offset)
        if self.role is Role.FOLLOWER:
            following.fetch(self)
        return self._take()

    def snapshot_piece_fetched(self, leader_id: int, now_ms: int) -> Output:
        """Takes note that a piece of the snapshot that `fetch_snapshot` asked for came from the leader."""
        self.now_ms = now_ms
        following.on_snapshot_piece(self, leader_id)
        return self._take()

    def snapshot_failed(self, leader_id: int, now_ms: int, *, is_local: bool) -> Output:
        """Takes note that `fetch_snapshot` came to nothing: the leader is asked what to do now, after a pause.

        `is_local`: for a reason of this node, which may last.
        """
        self.now_ms = now_ms
        following.on_snapshot_failed(self, leader_id, is_local=is_local)
        return self._take()

    def snapshot_served(self, replica: ReplicaKey, now_ms: int) -> Output:
        """Takes note that a replica was given a piece of a snapshot of this leader."""
        self.now_ms = now_ms
        if self.role is Role.LEADER:
            leadership.on_snapshot_fetch(self, replica)
        return self._take()

    def resign(self, now_ms: int) -> Output:
        """Gives up leadership, before an orderly stop: the best informed voters are asked to stand at once."""
        self.now_ms = now_ms
        if self.role is Role.LEADER:
            leadership.resign(self)
        return self._take()

    @property
    def next_deadline_ms(self) -> int:
        """When `tick` must be called at the latest, NEVER_MS for never."""
        deadline = self.deadline_ms
        if self.role is Role.LEADER:
            deadline = min(deadline, leadership.next_deadline_ms(self))
        elif self.role in (Role.FOLLOWER, Role.UNATTACHED):
            deadline = min(deadline, following.next_deadline_ms(self))
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            deadline = min(deadline, self.votes.retry_at_ms)
        return min(deadline, resigning.next_deadline_ms(self))

    @property
    def voters(self) -> VoterSet:
        """Who votes, by the newest record in the log, committed or not."""
        return self.history.voters

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters

    @property
    def may_stand(self) -> bool:
        """Whether this node may be elected: a voter, or one whose removal is in the log but not known to be committed.

        The others may need its log: where it holds more than theirs they cannot be elected.
        """
        if self.is_voter:
            return True
        offset = self.history.voters_offset
        return offset is not None and offset >= max(self.high_watermark, 0) and self.key in self.history.voters_before

    def describe(self, now_ms: int) -> QuorumDescription:
        """The quorum as this node knows it; whole on the leader only."""
        voters: tuple[ReplicaDescription, ...] = ()
        observers: tuple[ReplicaDescription, ...] = ()
        if self.role is Role.LEADER:
            voters, observers = leadership.describe(self, now_ms)
        return QuorumDescription(self.leader_id, self.epoch, self.high_watermark, voters, observers)

    # What the role modules use

    def send(self, destination: int, message: Message) -> None:
        self._output.send.append(Envelope(destination, message))

    def append(self, payload: Any, record_count: int) -> None:
        self._output.entries.append(Entries(self.log.end_offset, self.epoch, record_count, payload))
        self.log.append(self.epoch, record_count)

    def append_control(self, records: Sequence[ControlRecord]) -> None:
        """Appends control records to the log of this leader, as one batch; voters in it vote from now on."""
        self._append_batch(Entries(self.log.end_offset, self.epoch, len(records), None, tuple(records)))

    def append_fetched(self, entries: Sequence[Entries]) -> None:
        for batch in entries:
            self._append_batch(batch)

    def _append_batch(self, batch: Entries) -> None:
        self._output.entries.append(batch)
        self.log.append(batch.epoch, batch.record_count)
        is_change = False
        for number, record in enumerate(batch.control):
            if record is not None:
                is_change |= self.history.add(batch.base_offset + number, record)
        if is_change:
            self._voters_changed()

    def _voters_changed(self) -> None:
        self._output.voters = self.voters
        if self.role is Role.LEADER:
            leadership.on_voters(self)
        elif self.role is Role.UNATTACHED and self.may_stand and self.deadline_ms == NEVER_MS:
            self.deadline_ms = self.now_ms + self.random_timeout()

    def answer(self, answer: voter_changes.ChangeAnswer) -> None:
        self._output.answers.append(answer)

    def probe(self, voter: Voter) -> None:
        self._output.probes.append(voter)

    def truncate(self, offset: int) -> None:
        assert offset >= self.high_watermark, f"cutting committed records: {offset} < {self.high_watermark}"
        self._output.truncate_to = offset
        self.log.truncate(offset)
        if self.history.truncate(offset):
            self._voters_changed()

    def download_snapshot(self, leader_id: int, snapshot: OffsetAndEpoch) -> None:
        self._output.fetch_snapshot = (leader_id, snapshot)

    def set_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._output.high_watermark = offset

    def random_timeout(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)

    def become_unattached(self, epoch: int) -> None:
        """Joins a later epoch, or loses the leader of this one; a vote given in this epoch is not forgotten."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None
        self.leader_id = NO_LEADER
        self._wait_for_leader()

    def end_leading(self) -> None:
        """Forgets what it knew as leader, if it was one."""
        voter_changes.give_up(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        waiting = self.leading.waiting
        self.leading = leadership.Leading()
        for fetch in waiting.values():
            is_fenced = fetch.request.epoch < self.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NOT_LEADER_OR_FOLLOWER
            leadership.refuse(self, fetch.request, error)

    def become_follower(self, leader_id: int) -> None:
        """Follows the leader of this epoch."""
        self.role = Role.FOLLOWER
        self.leader_id = leader_id
        self.end_leading()
        self.following = following.Following(self.following.asked, self.following.ended_epoch)
        self.deadline_ms = self.now_ms + self.settings.fetch_timeout_ms
        self.following.describe_at_ms = self.now_ms + (
            following.DESCRIBE_INTERVAL_FETCH_TIMEOUTS * self.settings.fetch_timeout_ms
        )
        following.fetch(self)

    def become_prospective(self) -> None:
        """Asks the others whether they would vote for this node."""
        election.become_prospective(self)

    def _wait_for_leader(self) -> None:
        self.role = Role.UNATTACHED
        self.end_leading()
        self.deadline_ms = self.now_ms + self.random_timeout() if self.may_stand else NEVER_MS
        following.look_for_leader(self)

    def follow_if_later(self, epoch: int, leader_id: int) -> bool:
        """Takes in another node's word on epoch and leader. False when that node is behind and its word is void."""
        if epoch < self.epoch:
            return False
        names_leader = leader_id not in (NO_LEADER, self.key.node_id)
        if epoch > self.epoch and not names_leader:
            self.become_unattached(epoch)
        elif names_leader and (epoch > self.epoch or self.leader_id == NO_LEADER):
            if epoch > self.epoch:
                self.epoch = epoch
                self.voted = None
            self.become_follower(leader_id)
        return True

    def _take(self) -> Output:
        output = self._output
        self._output = Output()
        if self.role in (Role.LEADER, Role.RESIGNED):
            state = QuorumState(self.epoch, self.key.node_id)
        else:
            state = QuorumState(self.epoch, self.leader_id, self.voted)
        if state != self._persisted_state:
            output.quorum_state = self._persisted_state = state
        known = Leadership(self.epoch, self.leader_id)
        if known != self._leadership:
            output.leadership = self._leadership = known
        return output


_HANDLERS: dict[type, Callable[[RaftCore, Any], None]] = {
    VoteRequest: election.on_vote_request,
    VoteResponse: election.on_vote_response,
    BeginQuorumEpochRequest: following.on_begin_quorum_epoch,
    BeginQuorumEpochResponse: leadership.on_begin_quorum_epoch_response,
    EndQuorumEpochRequest: following.on_end_quorum_epoch,
    EndQuorumEpochResponse: resigning.on_end_quorum_epoch_response,
    FetchRequest: leadership.on_fetch_request,
    FetchResponse: following.on_fetch_response,
    UpdateVoterResponse: following.on_update_voter_response,
}


_TIMEOUTS: dict[Role, Callable[[RaftCore], None]] = {
    Role.UNATTACHED: election.become_prospective,
    Role.FOLLOWER: election.become_prospective,
    Role.PROSPECTIVE: election.give_up_pre_vote,
    Role.CANDIDATE: election.become_prospective,
    Role.RESIGNED: election.become_prospective,
}
