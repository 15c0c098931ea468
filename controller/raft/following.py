"""What a follower does: fetch from its leader, one fetch at a time, and cut what the leader does not have.

A fetch from an offset says that everything before is durable here, so the next one leaves only after what came was
persisted. Voters without a leader wait to be told; observers ask the voters in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
)
from pykbroker.controller.raft.roles import NEVER_MS, Role

if TYPE_CHECKING:
    from pykbroker.controller.raft.core import RaftCore


class Following:
    """The state of a follower, or of an observer that looks for a leader.

    Attributes:
        has_fetched: whether the leader of this epoch has answered.
        is_behind_persist: whether records came that are not durable yet; the next fetch waits for them.
        retry_at_ms: when to fetch again although no answer came.
        asked: how many voters an observer asked in turn.
    """

    __slots__ = ("asked", "has_fetched", "is_behind_persist", "retry_at_ms")

    def __init__(self, asked: int = 0) -> None:
        self.has_fetched = False
        self.is_behind_persist = False
        self.retry_at_ms = NEVER_MS
        self.asked = asked


def fetch(core: RaftCore) -> None:
    """Asks the leader for what comes next."""
    core.following.is_behind_persist = False
    core.following.retry_at_ms = core.now_ms + core.settings.retry_ms
    core.send(core.leader_id, _request(core))


def look_for_leader(core: RaftCore) -> None:
    """An observer without a leader will ask the voters, one after another; the answers name the leader.

    Not at once, as two nodes may send it to and fro: one that still believes in a leader that resigned, and that one.
    """
    following = core.following = Following(core.following.asked)
    if not core.is_voter:
        following.retry_at_ms = core.now_ms + core.settings.retry_backoff_ms


def _ask_next_voter(core: RaftCore, following: Following) -> None:
    ids = core.voters.ids
    following.retry_at_ms = core.now_ms + core.settings.retry_ms
    node_id = ids[following.asked % len(ids)]
    following.asked += 1
    core.send(node_id, _request(core))


def _request(core: RaftCore) -> FetchRequest:
    return FetchRequest(core.key.node_id, core.epoch, core.key, core.log.end, core.high_watermark)


def tick(core: RaftCore) -> None:
    following = core.following
    if core.now_ms < following.retry_at_ms:
        return
    if core.leader_id == NO_LEADER:
        _ask_next_voter(core, following)
    elif not following.is_behind_persist:
        fetch(core)


def on_persisted(core: RaftCore) -> None:
    if core.following.is_behind_persist and core.log.persisted_offset == core.log.end_offset:
        fetch(core)


def on_begin_quorum_epoch(core: RaftCore, request: BeginQuorumEpochRequest) -> None:
    core.follow_if_later(request.epoch, request.source)
    if core.role is Role.PROSPECTIVE and core.leader_id == request.source and request.epoch == core.epoch:
        core.become_follower(request.source)  # the leader that it missed is there after all
    core.send(request.source, BeginQuorumEpochResponse(core.key.node_id, core.epoch, core.leader_id))


def on_end_quorum_epoch(core: RaftCore, request: EndQuorumEpochRequest) -> None:
    """The leader stops: its first successor stands at once, each later one after a longer pause."""
    if not core.follow_if_later(request.epoch, request.source) or core.leader_id != request.source:
        return
    core.become_unattached(core.epoch)
    if not core.is_voter:
        return
    position = (
        request.successors.index(core.key.node_id) if core.key.node_id in request.successors else len(core.voters)
    )
    if position == 0:
        core.become_prospective()
    else:
        pause_ms = core.settings.election_timeout_ms * position // len(core.voters)
        core.deadline_ms = core.now_ms + pause_ms + core.random.randrange(max(pause_ms, 1))


def on_fetch_response(core: RaftCore, response: FetchResponse) -> None:
    """Takes in what the leader sent, or what another node says about who leads."""
    had_leader = core.leader_id
    if not core.follow_if_later(response.epoch, response.leader_id):
        return
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
    core.deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
    if response.snapshot is not None:
        following.retry_at_ms = NEVER_MS
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


def _learn_high_watermark(core: RaftCore, response: FetchResponse) -> None:
    core.set_high_watermark(min(response.high_watermark, core.log.end_offset))
