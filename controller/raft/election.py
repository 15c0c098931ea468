"""Votes asked for and given.

A vote is given once per epoch, to a candidate whose log is not behind, and never while a leader of the epoch is known.
Who votes for whom is not asked: a node that is behind may not know yet that the candidate, or itself, is a voter
(KIP-853). Who counts votes counts those of voters.
A pre-vote (KIP-996) binds nobody; a follower refuses it while it has its leader's answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft import leadership
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, VoteRequest, VoteResponse
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.raft.core import RaftCore


class Votes:
    """The answers that one round of asking got: ids of voters."""

    __slots__ = ("granted", "rejected", "retry_at_ms")

    def __init__(self) -> None:
        self.granted: set[int] = set()
        self.rejected: set[int] = set()
        self.retry_at_ms = NEVER_MS


def become_prospective(core: RaftCore) -> None:
    """Asks the others whether they would vote for this node, without raising the epoch."""
    if not core.may_stand:
        core.become_unattached(core.epoch)
        return
    core.role = Role.PROSPECTIVE
    _ask(core, is_pre_vote=True)
    _count(core)


def become_candidate(core: RaftCore) -> None:
    """Raises the epoch, votes for itself and asks the others."""
    core.epoch += 1
    core.leader_id = NO_LEADER
    core.voted = core.key
    core.role = Role.CANDIDATE
    _ask(core, is_pre_vote=False)
    _count(core)


def give_up_pre_vote(core: RaftCore) -> None:
    """Nobody would vote for this node: back to the leader it had, if any, or wait for one."""
    if core.leader_id != NO_LEADER:
        core.become_follower(core.leader_id)
    else:
        core.become_unattached(core.epoch)


def on_vote_request(core: RaftCore, request: VoteRequest) -> None:
    if request.epoch > core.epoch:
        core.become_unattached(request.epoch)
    error, is_granted = ErrorCode.NONE, False
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not request.voter.is_same_voter(core.key):
        error = ErrorCode.INVALID_VOTER_KEY
    else:
        is_granted = _may_vote(core, request)
    if is_granted and not request.is_pre_vote:
        core.voted = request.candidate
        if core.role is not Role.FOLLOWER:
            # Whoever has just voted gives the candidate time to win.
            core.deadline_ms = core.now_ms + core.random_timeout()
    core.send(
        request.source,
        VoteResponse(core.key.node_id, core.epoch, core.leader_id, is_granted, request.is_pre_vote, error),
    )


def _may_vote(core: RaftCore, request: VoteRequest) -> bool:
    is_up_to_date = _is_not_behind(request.log_end, core.log.end)
    if core.role is Role.LEADER:
        return False
    if request.is_pre_vote:
        return is_up_to_date and not (core.role is Role.FOLLOWER and core.following.has_fetched)
    if core.role is Role.RESIGNED:
        return False
    if core.voted is not None:
        return core.voted.is_same_voter(request.candidate)
    return core.leader_id == NO_LEADER and is_up_to_date


def _is_not_behind(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)


def on_vote_response(core: RaftCore, response: VoteResponse) -> None:
    if response.error is ErrorCode.UNSUPPORTED_VERSION:
        # A voter of before KIP-996 would take a pre-vote for a vote in this epoch. So it is asked for a real one.
        if core.role is Role.PROSPECTIVE and core.is_voter:
            become_candidate(core)
        return
    if not core.follow_if_later(response.epoch, response.leader_id) or response.error is not ErrorCode.NONE:
        return
    expected = Role.PROSPECTIVE if response.is_pre_vote else Role.CANDIDATE
    if core.role is not expected or response.source not in core.voters.ids:
        return
    (core.votes.granted if response.is_granted else core.votes.rejected).add(response.source)
    _count(core)


def _ask(core: RaftCore, *, is_pre_vote: bool) -> None:
    core.votes = Votes()
    if core.is_voter:
        core.votes.granted.add(core.key.node_id)
    core.deadline_ms = core.now_ms + core.random_timeout()
    _ask_those_who_have_not_answered(core, is_pre_vote=is_pre_vote)


def _ask_those_who_have_not_answered(core: RaftCore, *, is_pre_vote: bool) -> None:
    core.votes.retry_at_ms = core.now_ms + core.settings.retry_ms
    answered = core.votes.granted | core.votes.rejected
    for voter in core.voters.keys:
        if voter.node_id != core.key.node_id and voter.node_id not in answered:
            core.send(
                voter.node_id,
                VoteRequest(core.key.node_id, core.epoch, core.key, voter, core.log.end, is_pre_vote),
            )


def tick(core: RaftCore) -> None:
    """Asks again those that have not answered, for as long as the election can be won."""
    votes = core.votes
    if core.now_ms < votes.retry_at_ms:
        return
    if len(votes.rejected) >= core.voters.majority:
        votes.retry_at_ms = NEVER_MS
    else:
        _ask_those_who_have_not_answered(core, is_pre_vote=core.role is Role.PROSPECTIVE)


def on_unreachable(core: RaftCore, *, again_ms: int) -> None:
    """A request to a node had no answer: those that have not answered are asked again sooner."""
    if core.role in (Role.PROSPECTIVE, Role.CANDIDATE):
        core.votes.retry_at_ms = min(core.votes.retry_at_ms, again_ms)


def _count(core: RaftCore) -> None:
    majority = core.voters.majority
    if len(core.votes.granted) >= majority:
        if core.role is Role.PROSPECTIVE:
            become_candidate(core)
        else:
            leadership.become_leader(core)
    elif len(core.votes.rejected) >= majority and core.role is Role.PROSPECTIVE:
        give_up_pre_vote(core)
    # A candidate that lost waits for its deadline: the winner makes itself known, or it is time for another round.
