"""What a follower does: fetch from its leader, one fetch at a time, and cut what the leader does not have.

A fetch from an offset says that everything before is durable here, so the next one leaves only after what came was
persisted. Nodes without a leader ask the voters in turn, and voters are told by the leader besides.

A leader whose machine refuses connections has stopped: nothing listens there. A follower that sees this does not wait
for the whole fetch timeout before it asks for votes, and no longer stands by that leader when others ask. It is a
pre-vote that follows (KIP-996), so a leader that only this node does not reach stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    UpdateVoterResponse,
)
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.controller.raft.core import RaftCore


LOOK_BACKOFFS = 5
"""After how many `retry_backoff_ms` a node without a leader asks the next voter."""


DESCRIBE_INTERVAL_FETCH_TIMEOUTS = 2


class Following:
    """The state of a follower, or of an observer that looks for a leader.

    Attributes:
        has_fetched: whether the leader of this epoch has answered.
        is_behind_persist: whether records came that are not durable yet; the next fetch waits for them.
        retry_at_ms: when to fetch again although no answer came.
        asked: how many voters were asked in turn who leads.
        is_leader_gone: whether the leader's machine refused a connection since it answered last.
        leaderless: nodes that said that they know of no leader either.
        describe_at_ms: when to look next whether the leader knows this voter as it is, or to ask to become one.
        is_described: whether the leader has taken note in this epoch.
        downloads_from: the leader whose snapshot is on its way here, -1 for none; nothing is fetched meanwhile.
        ended_epoch: the last epoch of which a leader said that it is over.
    """

    __slots__ = (
        "asked",
        "describe_at_ms",
        "downloads_from",
        "ended_epoch",
        "has_fetched",
        "is_behind_persist",
        "is_described",
        "is_leader_gone",
        "leaderless",
        "retry_at_ms",
    )

    def __init__(self, asked: int = 0, ended_epoch: int = -1) -> None:
        self.has_fetched = False
        self.is_behind_persist = False
        self.is_leader_gone = False
        self.leaderless: set[int] = set()
        self.retry_at_ms = NEVER_MS
        self.describe_at_ms = NEVER_MS
        self.is_described = False
        self.downloads_from = NO_LEADER
        self.ended_epoch = ended_epoch
        self.asked = asked


def fetch(core: RaftCore) -> None:
    """Asks the leader for what comes next."""
    core.following.is_behind_persist = False
    core.following.downloads_from = NO_LEADER
    core.following.retry_at_ms = core.now_ms + core.settings.retry_ms
    core.send(core.leader_id, _request(core))


def look_for_leader(core: RaftCore) -> None:
    """A node without a leader will ask the voters, one after another; the answers name the leader.

    Not at once, as two nodes may send it to and fro: one that still believes in a leader that resigned, and that one.
    """
    following = core.following = Following(core.following.asked, core.following.ended_epoch)
    following.retry_at_ms = core.now_ms + core.settings.retry_backoff_ms


def _ask_next_voter(core: RaftCore, following: Following) -> None:
    ids = [node_id for node_id in (*core.voters.ids, *core.bootstrap_ids) if node_id != core.key.node_id]
    following.retry_at_ms = core.now_ms + core.settings.retry_ms if ids else NEVER_MS
    if not ids:
        return
    node_id = ids[following.asked % len(ids)]
    following.asked += 1
    core.send(node_id, _request(core))


def _request(core: RaftCore) -> FetchRequest:
    return FetchRequest(
        core.key.node_id,
        core.epoch,
        core.key,
        core.log.end,
        core.high_watermark,
        core.settings.fetch_wait_max_ms,
        core.settings.fetch_max_bytes,
    )


def next_deadline_ms(core: RaftCore) -> int:
    return min(core.following.retry_at_ms, core.following.describe_at_ms)


def tick(core: RaftCore) -> None:
    following = core.following
    if core.now_ms >= following.describe_at_ms:
        _describe_itself(core)
    if core.now_ms < following.retry_at_ms:
        return
    if core.leader_id == NO_LEADER:
        _ask_next_voter(core, following)
    elif not following.is_behind_persist:
        fetch(core)


def on_persisted(core: RaftCore) -> None:
    if core.following.is_behind_persist and core.log.persisted_offset == core.log.end_offset:
        fetch(core)


def _describe_itself(core: RaftCore) -> None:
    """Tells the leader how this voter stands if its record is out of date; an observer that may be a voter asks for it.

    While kraft.version is 0 there is no record, and the leader is told once per epoch (KIP-853).
    """
    following = core.following
    following.describe_at_ms = core.now_ms + DESCRIBE_INTERVAL_FETCH_TIMEOUTS * core.settings.fetch_timeout_ms
    if not core.itself.endpoints:
        following.describe_at_ms = NEVER_MS
    elif core.is_voter:
        must_tell = core.voters.is_out_of_date(core.itself) if core.kraft_version else not following.is_described
        if must_tell:
            core.send(core.leader_id, UpdateVoterRequest(core.key.node_id, core.epoch, core.itself))
    elif core.settings.auto_join and core.kraft_version:
        lost = core.voters.voter(core.key.node_id)
        if lost is not None:
            core.send(core.leader_id, RemoveVoterRequest(core.key.node_id, lost.key))
        else:
            core.send(core.leader_id, AddVoterRequest(core.key.node_id, core.itself))


def on_update_voter_response(core: RaftCore, response: UpdateVoterResponse) -> None:
    if not core.follow_if_later(response.epoch, response.leader_id):
        return
    if response.is_done and core.role is Role.FOLLOWER and response.source == core.leader_id:
        core.following.is_described = True
        core.deadline_ms = core.now_ms + core.settings.fetch_timeout_ms


def on_begin_quorum_epoch(core: RaftCore, request: BeginQuorumEpochRequest) -> None:
    """Follows who leads, even if it takes this node for another: then it is told so besides."""
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not request.voter.is_same_voter(core.key):
        error = ErrorCode.INVALID_VOTER_KEY
    core.follow_if_later(request.epoch, request.source)
    if core.role is Role.PROSPECTIVE and core.leader_id == request.source and request.epoch == core.epoch:
        core.become_follower(request.source)  # the leader that it missed is there after all
    core.send(request.source, BeginQuorumEpochResponse(core.key.node_id, core.epoch, core.leader_id, error))


def on_end_quorum_epoch(core: RaftCore, request: EndQuorumEpochRequest) -> None:
    """The leader stops: its first successor stands at once, each later one after a longer pause."""
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    else:
        if request.epoch > core.epoch:
            core.become_unattached(request.epoch)
        # Said again, as the answer was not heard, it must not put off or begin anew what is under way.
        is_news = core.leader_id == NO_LEADER and core.following.ended_epoch != request.epoch
        if (is_news or core.leader_id == request.source) and core.role not in (Role.LEADER, Role.RESIGNED):
            _lose_leader(core, request.successors)
    core.send(request.source, EndQuorumEpochResponse(core.key.node_id, core.epoch, core.leader_id, error))


def _lose_leader(core: RaftCore, successors: Sequence[ReplicaKey]) -> None:
    core.following.ended_epoch = core.epoch
    core.become_unattached(core.epoch)
    if not core.may_stand:
        return
    pause_ms = _pause_of_successor(core, successors)
    if pause_ms == 0:
        core.become_prospective()
    else:
        core.deadline_ms = core.now_ms + pause_ms


def _pause_of_successor(core: RaftCore, successors: Sequence[ReplicaKey]) -> int:
    """After what time to stand: none for the first, twice as long for each as for the one before, as in Kafka.

    A leader that has restarted names nobody. Then Kafka's voters all stand at once, and may split the votes.
    """
    longest_ms, lost_ms = core.settings.election_backoff_max_ms, core.settings.lost_leader_ms
    if not successors:
        return 1 + core.random.randrange(lost_ms) if lost_ms else 0
    places = [number for number, key in enumerate(successors) if key.is_same_voter(core.key)]
    if not places:
        return longest_ms
    shortest_ms = longest_ms >> (len(successors) - 1)
    return 0 if places[0] == 0 else min(longest_ms, shortest_ms << (places[0] - 1))


def on_fetch_response(core: RaftCore, response: FetchResponse) -> None:
    """Takes in what the leader sent, or what another node says about who leads."""
    had_leader = core.leader_id
    if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        # It is behind: it knows of nobody who leads this epoch.
        if core.role is Role.UNATTACHED and response.epoch < core.epoch:
            _on_leaderless(core, response.source)
        return
    if not core.follow_if_later(response.epoch, response.leader_id):
        return
    if core.role is Role.UNATTACHED and core.leader_id == NO_LEADER:
        _on_leaderless(core, response.source)
    if core.role is not Role.FOLLOWER or response.source != core.leader_id:
        return
    following = core.following
    if response.leader_id != response.source:
        # It leads no longer; whoever does will say so, or an election will.
        core.become_unattached(core.epoch)
        return
    if response.offset != core.log.end_offset or had_leader != core.leader_id or following.is_behind_persist:
        return
    following.has_fetched = True
    following.is_leader_gone = False
    core.deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
    if response.snapshot is not None:
        following.retry_at_ms = NEVER_MS
        following.downloads_from = core.leader_id
        core.download_snapshot(core.leader_id, response.snapshot)
    elif response.diverging is not None:
        core.truncate(core.log.truncation_offset(response.diverging))
        fetch(core)
    elif response.entries:
        core.append_fetched(response.entries)
        following.is_behind_persist = True
        _learn_high_watermark(core, response)
    else:
        _learn_high_watermark(core, response)
        fetch(core)


def on_snapshot_piece(core: RaftCore, leader_id: int) -> None:
    """The leader is there: that a long snapshot takes its time is no reason to ask for votes."""
    if core.role is Role.FOLLOWER and core.leader_id == leader_id == core.following.downloads_from:
        core.deadline_ms = core.now_ms + core.settings.fetch_timeout_ms


def on_snapshot_failed(core: RaftCore, leader_id: int, *, is_local: bool) -> None:
    """The leader is asked what to do: soon, unless it is this node that cannot take the snapshot."""
    following, settings = core.following, core.settings
    if core.role is Role.FOLLOWER and core.leader_id == leader_id == following.downloads_from:
        following.downloads_from = NO_LEADER
        following.retry_at_ms = core.now_ms + (settings.retry_ms if is_local else settings.retry_backoff_ms)


def _on_leaderless(core: RaftCore, node_id: int) -> None:
    """A node knows of no leader in this epoch either. The next one is asked, not at once.

    A voter that has heard so from a majority need not wait for its election timeout, which gives a leader time to make
    itself known: there is none.
    """
    following, settings = core.following, core.settings
    following.leaderless.add(node_id)
    pause_ms = settings.retry_backoff_ms * LOOK_BACKOFFS
    if core.may_stand and len(following.leaderless) + 1 >= core.voters.majority:
        pause_ms = settings.retry_ms
        if settings.lost_leader_ms:
            core.deadline_ms = min(core.deadline_ms, core.now_ms + 1 + core.random.randrange(settings.lost_leader_ms))
    following.retry_at_ms = min(following.retry_at_ms, core.now_ms + pause_ms)


def on_unreachable(core: RaftCore, node_id: int, *, is_gone: bool, again_ms: int) -> None:
    """A request to a node had no answer. `is_gone`: its machine said that nothing listens there."""
    following, settings = core.following, core.settings
    if core.role is Role.UNATTACHED and core.leader_id == NO_LEADER:
        following.retry_at_ms = min(following.retry_at_ms, again_ms)
    if core.role is not Role.FOLLOWER or node_id != core.leader_id or following.retry_at_ms == NEVER_MS:
        return
    following.retry_at_ms = min(following.retry_at_ms, again_ms)
    if is_gone and settings.lost_leader_ms and core.may_stand and not following.is_leader_gone:
        following.is_leader_gone = True
        following.has_fetched = False
        pause_ms = 1 + core.random.randrange(settings.lost_leader_ms)
        core.deadline_ms = min(core.deadline_ms, core.now_ms + pause_ms)


def _learn_high_watermark(core: RaftCore, response: FetchResponse) -> None:
    core.set_high_watermark(min(response.high_watermark, core.log.end_offset))
