"""Prospective and Candidate: ask the voters for pre-votes and votes. `on_vote_request`: grants them to others.

A node grants one vote per epoch, to a candidate whose log is not behind its own, and none while it knows a leader of
the epoch. It does not check whether candidate or itself are voters: it may be behind and not know yet that they are
(KIP-853). The candidate counts the votes of voters only.
A pre-vote (KIP-996) changes nothing at the node that grants it. A follower refuses it while its leader responds.
"""

from __future__ import annotations

from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, VoteRequest, VoteResponse
from pykbroker.controller.raft.replica import Replica, RoleState
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode


class Nominee(RoleState):
    """One round of vote requests, with an election timeout of its own.

    Attributes:
        granted, rejected: ids of voters by their responses.
        retry_at_ms: when to ask again those that have not responded.
    """

    is_pre_vote: bool

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.granted: set[int] = set()
        self.rejected: set[int] = set()
        self.retry_at_ms = NEVER_MS

    def begin(self) -> None:
        if self.replica.is_voter:
            self.granted.add(self.replica.node_id)
        self.grant_time()
        self._request_votes()
        self.count()

    def _request_votes(self) -> None:
        replica = self.replica
        self.retry_at_ms = replica.now_ms + replica.settings.retry_ms
        answered = self.granted | self.rejected
        for voter in replica.voters.keys:
            if voter.node_id != replica.node_id and voter.node_id not in answered:
                replica.send(
                    voter.node_id,
                    VoteRequest(replica.node_id, replica.epoch, replica.key, voter, replica.log.end, self.is_pre_vote),
                )

    def count(self) -> None:
        """Calls `win` or `lose` if a majority of the voters has granted or rejected."""
        majority = self.replica.voters.majority
        if len(self.granted) >= majority:
            self.win()
        elif len(self.rejected) >= majority:
            self.lose()

    def win(self) -> None:
        raise NotImplementedError

    def lose(self) -> None:
        """A candidate waits for its election timeout: the winner announces itself, or there is another round."""

    @property
    def next_deadline_ms(self) -> int:
        return self.retry_at_ms

    def tick(self) -> None:
        if self.replica.now_ms < self.retry_at_ms:
            return
        if len(self.rejected) >= self.replica.voters.majority:
            self.retry_at_ms = NEVER_MS
        else:
            self._request_votes()

    def on_vote_response(self, response: VoteResponse) -> None:
        if response.is_pre_vote == self.is_pre_vote and response.source in self.replica.voters.ids:
            (self.granted if response.is_granted else self.rejected).add(response.source)
            self.count()

    def on_unreachable(self, node_id: int, *, is_refused: bool, retry_at_ms: int) -> None:
        self.retry_at_ms = min(self.retry_at_ms, retry_at_ms)


class Prospective(Nominee):
    """Asks for pre-votes in the present epoch. The replica keeps the `leader_id` of the leader that it lost, if any."""

    role = Role.PROSPECTIVE
    is_pre_vote = True

    def win(self) -> None:
        self.replica.become_candidate()

    def lose(self) -> None:
        """Follows its leader again, or waits for one."""
        replica = self.replica
        if replica.leader_id != NO_LEADER:
            replica.become_follower(replica.leader_id)
        else:
            replica.become_unattached(replica.epoch)

    on_election_timeout = lose

    def on_leader_announced(self, leader_id: int) -> None:
        self.replica.become_follower(leader_id)

    def on_pre_vote_unsupported(self) -> None:
        # A voter without KIP-996 would read a pre-vote as a vote in this epoch, so this node asks for real votes.
        if self.replica.is_voter:
            self.replica.become_candidate()


class Candidate(Nominee):
    """Asks for votes in the new epoch that it has begun, in which it has voted for itself."""

    role = Role.CANDIDATE
    is_pre_vote = False

    def win(self) -> None:
        self.replica.become_leader(self.granted)


def on_vote_request(replica: Replica, request: VoteRequest) -> None:
    """Grants or refuses a vote or pre-vote. A later epoch is adopted in either case."""
    if request.epoch > replica.epoch:
        replica.become_unattached(request.epoch)
    error, is_granted = ErrorCode.NONE, False
    if request.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not request.voter.is_same_voter(replica.key):
        error = ErrorCode.INVALID_VOTER_KEY
    else:
        is_granted = may_grant(replica, request)
    if is_granted and not request.is_pre_vote:
        replica.voted = request.candidate
        replica.state.grant_time()
    replica.send(
        request.source,
        VoteResponse(replica.node_id, replica.epoch, replica.leader_id, is_granted, request.is_pre_vote, error),
    )


def may_grant(replica: Replica, request: VoteRequest) -> bool:
    """True if a candidate of the present epoch gets this node's vote, or pre-vote."""
    is_up_to_date = is_not_behind(request.log_end, replica.log.end)
    if request.is_pre_vote:
        return is_up_to_date and replica.state.may_grant_pre_votes
    if not replica.state.may_grant_votes:
        return False
    if replica.voted is not None:
        return replica.voted.is_same_voter(request.candidate)
    return replica.leader_id == NO_LEADER and is_up_to_date


def is_not_behind(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    """True if a log that ends at `candidate` is at least as up to date as one that ends at `own`.

    The log whose last record has the later epoch is more up to date; with equal epochs, the one with the larger offset.
    """
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)
