"""What a leader does: make itself known, answer fetches, and know what a majority has.

The high watermark is the offset that a majority of the voters has durably, the leader among them; it only counts once
it lies behind the epoch's first record, so that nothing of an earlier epoch is committed by counting (Raft, 5.4.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft import resigning, voter_changes
from pykbroker.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    KRaftVersion,
    LeaderChange,
)
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, VoterSet, offset_of_majority
from pykbroker.controller.raft.roles import NEVER_MS, ReplicaDescription, Role
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.raft.core import RaftCore


OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""After what time without a Fetch an observer is not shown any more, as in Kafka."""


class Progress:
    """What a leader knows of one other replica. Times are -1 before its first fetch.

    Attributes:
        end_offset: its log is durable below it, -1 when unknown.
        last_fetch_ms: when it fetched last.
        last_heard_ms: when it fetched last, or got a piece of a checkpoint: it goes with this leader.
        last_caught_up_ms: the latest moment at which it had all that the leader had then.
        end_at_last_fetch: the leader's end offset when it fetched last.
    """

    __slots__ = ("end_at_last_fetch", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms", "last_heard_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.last_fetch_ms = -1
        self.last_heard_ms = -1
        self.last_caught_up_ms = -1
        self.end_at_last_fetch = -1

    def note_fetch(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 <= self.end_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = fetch_offset
        self.last_fetch_ms = self.last_heard_ms = now_ms
        self.end_at_last_fetch = leader_end


class WaitingFetch:
    """A fetch that has nothing to be answered with yet."""

    __slots__ = ("answer_at_ms", "request")

    def __init__(self, request: FetchRequest, answer_at_ms: int) -> None:
        self.request = request
        self.answer_at_ms = answer_at_ms


class Leading:
    """The state of a leader; empty on other nodes."""

    __slots__ = (
        "announce_at_ms",
        "change",
        "epoch_start_offset",
        "observers",
        "quorum_seen_ms",
        "volatile_voters",
        "voters",
        "waiting",
    )

    def __init__(self) -> None:
        self.epoch_start_offset = 0
        self.voters: dict[int, Progress] = {}
        self.observers: dict[ReplicaKey, Progress] = {}
        self.waiting: dict[int, WaitingFetch] = {}
        self.announce_at_ms = 0
        self.quorum_seen_ms = 0
        self.change: voter_changes.Change | None = None
        # What the voters of a static quorum said of themselves, for the day when kraft.version is raised.
        self.volatile_voters = VoterSet(())


def become_leader(core: RaftCore) -> None:
    """Begins the epoch: its first record says who leads, and every other voter is told."""
    core.role = Role.LEADER
    core.leader_id = core.key.node_id
    core.deadline_ms = NEVER_MS
    leading = core.leading = Leading()
    leading.epoch_start_offset = core.log.end_offset
    leading.voters = {key.node_id: Progress(key) for key in core.voters.keys if key.node_id != core.key.node_id}
    leading.quorum_seen_ms = core.now_ms
    leading.volatile_voters = core.voters.with_voter(core.itself)
    granted = tuple(key for key in core.voters.keys if key.node_id in core.votes.granted)
    records: list[ControlRecord] = [LeaderChange(core.key.node_id, tuple(core.voters.keys), granted)]
    if core.kraft_version and _must_write_voters(core):
        itself = [core.itself] if core.itself.endpoints else []
        records += [KRaftVersion(core.kraft_version), VoterSet([*core.voters.voters, *itself])]
    core.append_control(records)
    _announce(core)


def _must_write_voters(core: RaftCore) -> bool:
    """Whether the log does not say yet who votes, only the checkpoint of the format step; or says it wrongly of this
    leader, which cannot tell itself by an UpdateRaftVoter."""
    is_wrong = bool(core.itself.endpoints) and core.voters.is_out_of_date(core.itself)
    return core.history.voters_offset == -1 or is_wrong


def on_voters(core: RaftCore) -> None:
    """Other voters: what is known of each replica goes along."""
    leading = core.leading
    old = leading.voters
    leading.voters = {}
    for key in core.voters.keys:
        if key.node_id == core.key.node_id:
            continue
        progress = leading.observers.pop(key, None)
        known = old.get(key.node_id)
        if progress is None and known is not None and known.key.directory_id in (NO_DIRECTORY_ID, key.directory_id):
            progress = old.pop(key.node_id)
            progress.key = key
        leading.voters[key.node_id] = progress or Progress(key)
    for progress in old.values():
        if progress.key != core.key and leading.voters.get(progress.key.node_id) is not progress:
            leading.observers[progress.key] = progress
    # Whoever is new has the time of a new leader's voters to be heard of.
    leading.quorum_seen_ms = core.now_ms
    leading.announce_at_ms = core.now_ms


def resign(core: RaftCore) -> None:
    """Gives up the epoch and names the successors, those with the longest logs first (KIP-595)."""
    progress = sorted(core.leading.voters.values(), key=lambda p: (-p.end_offset, p.key.node_id))
    core.role = Role.RESIGNED
    core.leader_id = NO_LEADER
    core.deadline_ms = core.now_ms + core.random_timeout()
    resigning.begin(core, [p.key for p in progress], core.deadline_ms)
    core.end_leading()
    if not core.may_stand:
        core.become_unattached(core.epoch)  # it looks for its successor: it will not be told


def tick(core: RaftCore) -> None:
    """What is due: answers to fetches that waited long enough, announcements, and the check for a majority."""
    voter_changes.tick(core)
    leading = core.leading
    for node_id, waiting in list(leading.waiting.items()):
        if core.now_ms >= waiting.answer_at_ms:
            del leading.waiting[node_id]
            _answer(core, waiting.request)
    if core.now_ms >= leading.announce_at_ms:
        _announce(core)
    if core.now_ms >= _resign_at_ms(core):
        resign(core)


def next_deadline_ms(core: RaftCore) -> int:
    leading = core.leading
    deadlines = [waiting.answer_at_ms for waiting in leading.waiting.values()]
    deadlines += [leading.announce_at_ms, _resign_at_ms(core), voter_changes.next_deadline_ms(core)]
    return min(deadlines)


def _announce(core: RaftCore) -> None:
    """Tells the voters that do not fetch who leads, for as long as they do not: they may have come back since."""
    interval_ms = max(core.settings.fetch_timeout_ms // 2, 1)
    for progress in core.leading.voters.values():
        if progress.last_fetch_ms < 0 or core.now_ms - progress.last_fetch_ms >= interval_ms:
            core.send(progress.key.node_id, BeginQuorumEpochRequest(core.key.node_id, core.epoch, progress.key))
    core.leading.announce_at_ms = core.now_ms + interval_ms if core.leading.voters else NEVER_MS


def _resign_at_ms(core: RaftCore) -> int:
    """When to give up because a majority was not heard of: it may have elected another leader by then."""
    # This node and the best of the others are a majority since the fetch of the last one that is needed for it.
    # A leader that is being removed is none of the majority.
    needed = core.voters.majority - (1 if core.is_voter else 0)
    if needed == 0:
        return NEVER_MS
    heard = sorted((p.last_heard_ms for p in core.leading.voters.values()), reverse=True)
    majority_heard_ms = heard[needed - 1]
    return max(majority_heard_ms, core.leading.quorum_seen_ms) + core.settings.fetch_timeout_ms * 3 // 2


def on_begin_quorum_epoch_response(core: RaftCore, response: BeginQuorumEpochResponse) -> None:
    core.follow_if_later(response.epoch, response.leader_id)


def on_fetch_request(core: RaftCore, request: FetchRequest) -> None:
    """Takes note of how far a replica is, and answers: with records, with where it diverges, or later."""
    error = _fetch_refusal(core, request)
    if error is not ErrorCode.NONE:
        refuse(core, request, error)
        return
    log = core.log
    offset, epoch = request.log_end
    if log.is_before_start(request.log_end):
        core.send(request.source, _response(core, request)._replace(snapshot=log.start))
        return
    diverging = log.divergence(offset, epoch)
    if diverging is not None:
        core.send(request.source, _response(core, request)._replace(diverging=diverging))
        return
    if request.source >= 0:  # others only read
        _progress_of(core, request.replica).note_fetch(offset, log.end_offset, core.now_ms)
    wait_ms = min(request.max_wait_ms, core.settings.fetch_wait_max_ms)
    core.leading.waiting[request.source] = WaitingFetch(request, core.now_ms + wait_ms)
    if request.replica in core.voters:
        advance_high_watermark(core)
    if core.role is Role.LEADER:
        answer_waiting(core)
        waiting = core.leading.waiting.get(request.source)
        if wait_ms == 0 and waiting is not None:
            del core.leading.waiting[request.source]
            _answer(core, request)


def _fetch_refusal(core: RaftCore, request: FetchRequest) -> ErrorCode:
    """Who fetches knows the epoch from its leader or from a vote, so it is no news here: a later one is not joined."""
    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if core.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Another node with the id of this one.
    return ErrorCode.UNKNOWN_SERVER_ERROR if request.source == core.key.node_id else ErrorCode.NONE


def on_snapshot_fetch(core: RaftCore, replica: ReplicaKey) -> None:
    """A replica got a piece of a checkpoint. A voter that takes a long one over does not fetch, and yet is there."""
    progress = core.leading.voters.get(replica.node_id)
    if progress is not None and replica in core.voters:
        progress.last_heard_ms = core.now_ms


def _progress_of(core: RaftCore, key: ReplicaKey) -> Progress:
    if key in core.voters and key.node_id in core.leading.voters:
        return core.leading.voters[key.node_id]
    progress = core.leading.observers.get(key)
    if progress is None:
        progress = core.leading.observers[key] = Progress(key)
    return progress


def advance_high_watermark(core: RaftCore) -> None:
    """Moves the high watermark to what a majority has, and lets the followers that wait know."""
    leading = core.leading
    ends = [progress.end_offset for progress in leading.voters.values()]
    if core.is_voter:
        ends.append(core.log.persisted_offset)
    reached = offset_of_majority(ends)
    if reached > leading.epoch_start_offset and reached > core.high_watermark:
        core.set_high_watermark(reached)
        answer_waiting(core)
        voter_changes.on_high_watermark(core)
        if voter_changes.must_resign(core):
            resign(core)


def answer_waiting(core: RaftCore) -> None:
    """Answers the waiting fetches for which there are records or a new high watermark now."""
    leading = core.leading
    for node_id, waiting in list(leading.waiting.items()):
        request = waiting.request
        if request.log_end.offset < core.log.end_offset or request.high_watermark < core.high_watermark:
            del leading.waiting[node_id]
            _answer(core, request)


def _answer(core: RaftCore, request: FetchRequest) -> None:
    core.send(request.source, _response(core, request))


def refuse(core: RaftCore, request: FetchRequest, error: ErrorCode) -> None:
    """Says why a fetch is not served, and who leads if that is known."""
    core.send(
        request.source,
        FetchResponse(core.key.node_id, core.epoch, core.leader_id, log_start=core.log.start.offset, error=error),
    )


def _response(core: RaftCore, request: FetchRequest) -> FetchResponse:
    return FetchResponse(
        core.key.node_id,
        core.epoch,
        core.leader_id,
        core.high_watermark,
        request.log_end.offset,
        log_start=core.log.start.offset,
        max_bytes=request.max_bytes,
    )


def describe(core: RaftCore, now_ms: int) -> tuple[tuple[ReplicaDescription, ...], tuple[ReplicaDescription, ...]]:
    """Voters by node id, this leader among them as of now, and observers."""

    def of(progress: Progress) -> ReplicaDescription:
        return ReplicaDescription(progress.key, progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms)

    voters = [of(progress) for progress in core.leading.voters.values()]
    heard_of = [
        progress
        for progress in core.leading.observers.values()
        if now_ms - progress.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS
    ]
    core.leading.observers = {progress.key: progress for progress in heard_of}
    observers = [of(progress) for progress in heard_of]
    # As the set of voters has it: without a directory in kraft.version 0, like the others.
    key = next((key for key in core.voters.keys if core.is_voter and key.node_id == core.key.node_id), core.key)
    itself = ReplicaDescription(key, core.log.end_offset, now_ms, now_ms)
    (voters if core.is_voter else observers).append(itself)
    return tuple(sorted(voters)), tuple(sorted(observers))
