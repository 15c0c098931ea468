"""Follower: fetches from the leader, one Fetch at a time. Unattached: looks for a leader.

The offset of a Fetch confirms that all records before it are durable here. So the next Fetch is sent after the records
of the last one are persisted. Records that the leader does not have are truncated.

A leader whose machine refuses connections has stopped. A follower that notices does not wait for the whole fetch
timeout before it becomes prospective, and no longer refuses pre-votes of others. A leader that only this node cannot
reach is not replaced, because the others refuse the pre-vote (KIP-996).
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.controller.raft.messages import (
    NO_LEADER,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.replica import Replica, RoleState
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode

LOOK_BACKOFFS = 5
"""Pause before a node without a leader asks the next voter, in units of `retry_backoff_ms`."""

DESCRIBE_INTERVAL_FETCH_TIMEOUTS = 2
"""Interval at which a follower compares itself with its VotersRecord, in fetch timeouts."""


class Unattached(RoleState):
    """No leader of the present epoch is known. Voters are asked one after the other; their responses name the leader.

    Attributes:
        retry_at_ms: when to ask the next voter.
        leaderless: nodes that do not know the leader of this epoch either.
    """

    role = Role.UNATTACHED

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.leaderless: set[int] = set()
        self.retry_at_ms = NEVER_MS

    def begin(self) -> None:
        replica = self.replica
        if replica.may_be_elected:
            self.deadline_ms = replica.now_ms + replica.random_timeout()
        # Not at once: a follower that has not noticed the leader's resignation would refer this node to that leader
        # again and again.
        self.retry_at_ms = replica.now_ms + replica.settings.retry_backoff_ms

    @property
    def next_deadline_ms(self) -> int:
        return self.retry_at_ms

    def tick(self) -> None:
        replica = self.replica
        if replica.now_ms < self.retry_at_ms:
            return
        ids = [node_id for node_id in (*replica.voters.ids, *replica.bootstrap_ids) if node_id != replica.node_id]
        self.retry_at_ms = replica.now_ms + replica.settings.retry_ms if ids else NEVER_MS
        if ids:
            node_id = ids[replica.asked_count % len(ids)]
            replica.asked_count += 1
            replica.send(node_id, _fetch_request(replica))

    def on_fetch_response(self, response: FetchResponse, *, is_new_leader: bool) -> None:
        self.on_leader_unknown(response.source)

    def on_leader_unknown(self, node_id: int) -> None:
        """Asks the next voter after a pause.

        When a majority, this voter included, does not know a leader, there is none. The election timeout, which leaves
        a leader the time to announce itself, is then shortened to a random time up to `lost_leader_ms`.
        """
        replica, settings = self.replica, self.replica.settings
        self.leaderless.add(node_id)
        pause_ms = settings.retry_backoff_ms * LOOK_BACKOFFS
        if replica.may_be_elected and len(self.leaderless) + 1 >= replica.voters.majority:
            pause_ms = settings.retry_ms
            if settings.lost_leader_ms:
                lost_ms = 1 + replica.random.randrange(settings.lost_leader_ms)
                self.deadline_ms = min(self.deadline_ms, replica.now_ms + lost_ms)
        self.retry_at_ms = min(self.retry_at_ms, replica.now_ms + pause_ms)

    def on_unreachable(self, node_id: int, *, is_refused: bool, retry_at_ms: int) -> None:
        self.retry_at_ms = min(self.retry_at_ms, retry_at_ms)

    def on_voters_changed(self) -> None:
        if self.replica.may_be_elected and self.deadline_ms == NEVER_MS:
            self.deadline_ms = self.replica.now_ms + self.replica.random_timeout()


class Follower(RoleState):
    """The leader of the present epoch is known. The election timeout is the fetch timeout: each response restarts it.

    Attributes:
        has_fetched: the leader has answered a Fetch of this epoch; until then, pre-votes are granted to others.
        is_leader_gone: the leader's machine refused a connection after its last response.
        is_persisting: records of the last response are not durable yet; the next Fetch waits for them.
        retry_at_ms: when to send the Fetch again if no response comes.
        describe_at_ms: when to compare this node with its VotersRecord.
        is_described: the leader has processed this node's UpdateVoterRequest in this epoch.
        is_downloading: a snapshot of the leader is being downloaded, and nothing is fetched.
    """

    role = Role.FOLLOWER

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.has_fetched = False
        self.is_leader_gone = False
        self.is_persisting = False
        self.retry_at_ms = NEVER_MS
        self.describe_at_ms = NEVER_MS
        self.is_described = False
        self.is_downloading = False

    def begin(self) -> None:
        self._restart_fetch_timeout()
        self._describe_later()
        self.fetch()

    def _restart_fetch_timeout(self) -> None:
        self.deadline_ms = self.replica.now_ms + self.replica.settings.fetch_timeout_ms

    @property
    def may_grant_pre_votes(self) -> bool:
        return not self.has_fetched

    def grant_time(self) -> None:
        """Does nothing: a vote does not extend the fetch timeout."""

    @property
    def next_deadline_ms(self) -> int:
        return min(self.retry_at_ms, self.describe_at_ms)

    def tick(self) -> None:
        now_ms = self.replica.now_ms
        if now_ms >= self.describe_at_ms:
            self._describe_itself()
        if now_ms >= self.retry_at_ms and not self.is_persisting:
            self.fetch()

    def fetch(self) -> None:
        """Asks the leader for the records at the end of this log."""
        replica = self.replica
        self.is_persisting = self.is_downloading = False
        self.retry_at_ms = replica.now_ms + replica.settings.retry_ms
        replica.send(replica.leader_id, _fetch_request(replica))

    def on_persisted(self) -> None:
        log = self.replica.log
        if self.is_persisting and log.persisted_offset == log.end_offset:
            self.fetch()

    def on_unreachable(self, node_id: int, *, is_refused: bool, retry_at_ms: int) -> None:
        replica, lost_leader_ms = self.replica, self.replica.settings.lost_leader_ms
        if node_id != replica.leader_id or self.retry_at_ms == NEVER_MS:
            return
        self.retry_at_ms = min(self.retry_at_ms, retry_at_ms)
        if is_refused and lost_leader_ms and replica.may_be_elected and not self.is_leader_gone:
            self.is_leader_gone = True
            self.has_fetched = False
            self.deadline_ms = min(self.deadline_ms, replica.now_ms + 1 + replica.random.randrange(lost_leader_ms))

    def on_fetch_response(self, response: FetchResponse, *, is_new_leader: bool) -> None:
        replica = self.replica
        if response.source != replica.leader_id:
            return
        if response.leader_id != response.source:
            # The sender no longer leads. Its successor will announce itself, or there will be an election.
            replica.become_unattached(replica.epoch)
            return
        if response.offset != replica.log.end_offset or is_new_leader or self.is_persisting:
            return
        self.has_fetched = True
        self.is_leader_gone = False
        self._restart_fetch_timeout()
        if response.snapshot is not None:
            self.retry_at_ms = NEVER_MS
            self.is_downloading = True
            replica.output.fetch_snapshot = (replica.leader_id, response.snapshot)
        elif response.diverging is not None:
            replica.truncate(replica.log.truncation_offset(response.diverging))
            self.fetch()
        else:
            for batch in response.entries:
                replica.append_batch(batch)
            replica.set_high_watermark(min(response.high_watermark, replica.log.end_offset))
            if response.entries:
                self.is_persisting = True
            else:
                self.fetch()

    # Snapshots

    def on_snapshot_installed(self) -> None:
        self.fetch()

    def on_snapshot_bytes(self, leader_id: int) -> None:
        """Restarts the fetch timeout: the leader responds, so a long download is no reason for an election."""
        if self.is_downloading and leader_id == self.replica.leader_id:
            self._restart_fetch_timeout()

    def on_snapshot_failed(self, leader_id: int, *, is_local: bool) -> None:
        if self.is_downloading and leader_id == self.replica.leader_id:
            settings = self.replica.settings
            self.is_downloading = False
            self.retry_at_ms = self.replica.now_ms + (settings.retry_ms if is_local else settings.retry_backoff_ms)

    # This node as a voter

    def _describe_later(self) -> None:
        interval_ms = DESCRIBE_INTERVAL_FETCH_TIMEOUTS * self.replica.settings.fetch_timeout_ms
        self.describe_at_ms = self.replica.now_ms + interval_ms

    def _describe_itself(self) -> None:
        """Sends UpdateRaftVoter if this voter's record is out of date, or joins the voters if that is configured.

        While kraft.version is 0 there are no records, and UpdateRaftVoter is sent once per epoch (KIP-853).
        """
        replica = self.replica
        self._describe_later()
        if not replica.itself.endpoints:
            self.describe_at_ms = NEVER_MS
        elif replica.is_voter:
            if replica.voters.is_out_of_date(replica.itself) if replica.kraft_version else not self.is_described:
                replica.send(replica.leader_id, UpdateVoterRequest(replica.node_id, replica.epoch, replica.itself))
        elif replica.settings.auto_join and replica.kraft_version:
            lost = replica.voters.voter(replica.node_id)
            if lost is not None:
                replica.send(replica.leader_id, RemoveVoterRequest(replica.node_id, lost.key))
            else:
                replica.send(replica.leader_id, AddVoterRequest(replica.node_id, replica.itself))

    def on_voter_updated(self, leader_id: int) -> None:
        if leader_id == self.replica.leader_id:
            self.is_described = True
            self._restart_fetch_timeout()


def _fetch_request(replica: Replica) -> FetchRequest:
    return FetchRequest(
        replica.node_id,
        replica.epoch,
        replica.key,
        replica.log.end,
        replica.high_watermark,
        replica.settings.fetch_wait_max_ms,
        replica.settings.fetch_max_bytes,
    )


def on_begin_quorum_epoch(replica: Replica, request: BeginQuorumEpochRequest) -> None:
    """Follows the sender. A request that is addressed to another voter key also gets INVALID_VOTER_KEY."""
    error = ErrorCode.NONE
    if request.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not request.voter.is_same_voter(replica.key):
        error = ErrorCode.INVALID_VOTER_KEY
    replica.follow_if_later(request.epoch, request.source)
    if replica.leader_id == request.source and request.epoch == replica.epoch:
        replica.state.on_leader_announced(request.source)
    replica.send(request.source, BeginQuorumEpochResponse(replica.node_id, replica.epoch, replica.leader_id, error))


def on_end_quorum_epoch(replica: Replica, request: EndQuorumEpochRequest) -> None:
    """Leaves a leader that resigned: its first successor becomes prospective at once, each later one after a pause."""
    error = ErrorCode.NONE
    if request.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    else:
        if request.epoch > replica.epoch:
            replica.become_unattached(request.epoch)
        # A request that is repeated, because the response was lost, must not restart an election or its pause.
        is_first = replica.leader_id == NO_LEADER and replica.ended_epoch != request.epoch
        if (is_first or replica.leader_id == request.source) and replica.role not in (Role.LEADER, Role.RESIGNED):
            _on_leader_resigned(replica, request.successors)
    replica.send(request.source, EndQuorumEpochResponse(replica.node_id, replica.epoch, replica.leader_id, error))


def _on_leader_resigned(replica: Replica, successors: Sequence[ReplicaKey]) -> None:
    replica.ended_epoch = replica.epoch
    replica.become_unattached(replica.epoch)
    if not replica.may_be_elected:
        return
    pause_ms = _pause_of_successor(replica, successors)
    if pause_ms == 0:
        replica.become_prospective()
    else:
        replica.state.deadline_ms = replica.now_ms + pause_ms


def _pause_of_successor(replica: Replica, successors: Sequence[ReplicaKey]) -> int:
    """Pause in ms before an election: 0 for the first successor, then twice that of the one before (KIP-595).

    A leader that has restarted names no successors. In Kafka all voters then ask for votes at once and may split them;
    here each waits a random time up to `lost_leader_ms`.
    """
    longest_ms, lost_ms = replica.settings.election_backoff_max_ms, replica.settings.lost_leader_ms
    if not successors:
        return 1 + replica.random.randrange(lost_ms) if lost_ms else 0
    places = [number for number, key in enumerate(successors) if key.is_same_voter(replica.key)]
    if not places:
        return longest_ms
    shortest_ms = longest_ms >> (len(successors) - 1)
    return 0 if places[0] == 0 else min(longest_ms, shortest_ms << (places[0] - 1))
