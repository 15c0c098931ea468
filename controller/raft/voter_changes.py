"""How a leader changes the voters: one change at a time, each a VotersRecord (KIP-853).

A change that brings a voter, or a new address of one, first asks the node at that address which kraft.versions it can
run: the driver is told to `probe`, and `on_probed` goes on. The set counts as soon as it is in the log; the next change
waits until it is committed. Errors and their texts are those of Kafka's handlers of these requests.

While kraft.version is 0 the voters are configured. What they say of themselves (UpdateRaftVoter) is kept in memory, for
the day on which the version is raised: then the log gets the voters with their directory ids.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.controller.raft.voter_history import KRaftVersion
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.raft.core import RaftCore

CAUGHT_UP_WITHIN_MS = 3_600_000
KRAFT_VERSION_MAX = 1


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"
    UPDATE = "update"


class ChangeAnswer(NamedTuple):
    """How a change ended, for who asked for it under `change_id`."""

    change_id: Hashable
    error: ErrorCode
    message: str | None = None


class Change:
    """The change that is under way. `offset`: of its VotersRecord, -1 while it waits for the probe."""

    __slots__ = ("acks_commit", "change_id", "deadline_ms", "is_answered", "kind", "offset", "voter")

    def __init__(
        self, kind: ChangeKind, change_id: Hashable, voter: Voter, deadline_ms: int, *, acks_commit: bool
    ) -> None:
        self.kind = kind
        self.change_id = change_id
        self.voter = voter
        self.deadline_ms = deadline_ms
        self.acks_commit = acks_commit
        self.offset = -1
        self.is_answered = False


# What is asked for


def add(core: RaftCore, change_id: Hashable, voter: Voter, *, acks_commit: bool) -> None:
    """A new voter; `acks_commit`: the answer waits until the set is committed."""
    refusal = _refusal(core, "adding")
    if refusal is None and voter.key.node_id in core.voters.ids:
        refusal = (
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {_show(voter.key)} is already part of the set of voters {_show_all(core.voters)}.",
        )
    if refusal is not None:
        core.answer(ChangeAnswer(change_id, *refusal))
        return
    _begin(core, Change(ChangeKind.ADD, change_id, voter, _deadline(core), acks_commit=acks_commit))
    core.probe(voter)


def remove(core: RaftCore, change_id: Hashable, key: ReplicaKey) -> None:
    """A voter less. A leader that removes itself leads until that is committed."""
    refusal = _refusal(core, "removing")
    if refusal is None and (key not in core.voters.keys or len(core.voters) == 1):
        refusal = (
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {_show(key)} from the set of voters {_show_all(core.voters)}",
        )
    if refusal is not None:
        core.answer(ChangeAnswer(change_id, *refusal))
        return
    change = Change(ChangeKind.REMOVE, change_id, Voter(key), _deadline(core), acks_commit=True)
    _begin(core, change)
    _append(core, change, core.voters.without(key.node_id))


def update(core: RaftCore, change_id: Hashable, voter: Voter) -> None:
    """What a voter says of itself: other endpoints, other versions."""
    error = _update_refusal(core)
    if error is not ErrorCode.NONE:
        core.answer(ChangeAnswer(change_id, error))
        return
    _begin(core, Change(ChangeKind.UPDATE, change_id, voter, _deadline(core), acks_commit=False))
    core.probe(voter)


def on_probed(core: RaftCore, node_id: int, versions: tuple[int, int] | None, error: ErrorCode) -> None:
    """What the node at the address says: the kraft.versions that it can run, None for no word of it; or an error."""
    change = core.leading.change
    if change is None or change.offset >= 0 or change.voter.key.node_id != node_id or change.kind is ChangeKind.REMOVE:
        return
    if change.kind is ChangeKind.ADD:
        _go_on_adding(core, change, versions, error)
    else:
        _go_on_updating(core, change, versions, error)


def _go_on_adding(core: RaftCore, change: Change, versions: tuple[int, int] | None, error: ErrorCode) -> None:
    who = _show(change.voter.key)
    if error is not ErrorCode.NONE:
        why = f"Aborted add voter operation for {who} since API_VERSIONS returned an error {error.name}"
        _end(core, ErrorCode.REQUEST_TIMED_OUT, why)
        return
    voter = change.voter._replace(kraft_versions=versions or (0, 0))
    if not voter.supports(core.kraft_version):
        low, high = voter.kraft_versions
        why = (
            f"Aborted add voter operation for {who} since the kraft.version range (min: {low}, max: {high}) doesn't "
            f"support the finalized version {core.kraft_version}"
        )
        _end(core, ErrorCode.INVALID_REQUEST, why)
    elif not _is_caught_up(core, voter.key):
        why = f"Aborted add voter operation for {who} since it is lagging behind"
        _end(core, ErrorCode.REQUEST_TIMED_OUT, why)
    else:
        _append(core, change, core.voters.with_voter(voter))
        if not change.acks_commit:
            _answer(core, change, ErrorCode.NONE)


def _go_on_updating(core: RaftCore, change: Change, versions: tuple[int, int] | None, error: ErrorCode) -> None:
    voter = change.voter
    known = core.voters if core.kraft_version else core.leading.volatile_voters
    offset = core.history.voters_offset
    if error is not ErrorCode.NONE:
        _end(core, ErrorCode.REQUEST_TIMED_OUT)
    elif versions != voter.kraft_versions or not voter.supports(core.kraft_version):
        _end(core, ErrorCode.INVALID_REQUEST)
    elif core.kraft_version and (offset is None or offset >= core.high_watermark):
        _end(core, ErrorCode.REQUEST_TIMED_OUT)
    elif (voter.key not in known) if core.kraft_version else (voter.key.node_id not in known.ids):
        _end(core, ErrorCode.VOTER_NOT_FOUND)
    elif core.kraft_version:
        _append(core, change, known.with_voter(voter))
        # It is answered before the commit, which may need its next Fetch.
        _answer(core, change, ErrorCode.NONE)
    else:
        core.leading.volatile_voters = known.with_voter(voter)
        _end(core, ErrorCode.NONE)


def upgrade(core: RaftCore, level: int, *, validate_only: bool = False) -> str | None:
    """Raises kraft.version; why it cannot be, or None when it was done, is under way, or holds already.

    The voters of the configuration go into the log with it, as they described themselves.
    """
    if core.kraft_version == level:
        return None
    change = f"Invalid upgrade of kraft.version from version {core.kraft_version} to {level}"
    if level < core.kraft_version:
        return f"{change} because the new version is a downgrade"
    voters = core.leading.volatile_voters
    if any(not voter.supports(level) for voter in voters.voters):
        return f"Invalid upgrade of kraft.version to {level} because not all of the voters support it"
    if any(key.directory_id == NO_DIRECTORY_ID for key in voters.keys):
        return f"Directory id must be known for all of the voters: {_show_all(voters)}"
    if not validate_only:
        core.append_control((KRaftVersion(level), voters))
    return None


# What comes of it


def on_high_watermark(core: RaftCore) -> None:
    """Ends a change whose set is committed now; a leader that is not in the committed set resigns."""
    change = core.leading.change
    if change is not None and 0 <= change.offset < core.high_watermark:
        _end(core, ErrorCode.NONE)


def must_resign(core: RaftCore) -> bool:
    """Whether this leader is not among the committed voters any more."""
    offset = core.history.voters_offset
    return not core.is_voter and offset is not None and offset < core.high_watermark


def tick(core: RaftCore) -> None:
    change = core.leading.change
    if change is not None and core.now_ms >= change.deadline_ms:
        _end(core, ErrorCode.REQUEST_TIMED_OUT)


def next_deadline_ms(core: RaftCore) -> int:
    return NEVER_MS if core.leading.change is None else core.leading.change.deadline_ms


def give_up(core: RaftCore, error: ErrorCode) -> None:
    """The change that is under way has no leader any more, or could not be written."""
    if core.leading.change is not None:
        _end(core, error)


# Helpers


def _refusal(core: RaftCore, what: str) -> tuple[ErrorCode, str | None] | None:
    if core.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    waiting = "Request timed out waiting for"
    if core.leading.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, f"{waiting} leader to handle previous voter change request"
    if not _is_established(core):
        return ErrorCode.REQUEST_TIMED_OUT, f"{waiting} leader to establish HWM and fence previous voter changes"
    if core.kraft_version == 0:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support {what} voter because the kraft.version feature is 0",
        )
    offset = core.history.voters_offset
    if offset is None or offset >= core.high_watermark:
        why = f"voters to commit the latest voter change at {offset} with HWM {core.high_watermark}"
        return ErrorCode.REQUEST_TIMED_OUT, f"{waiting} {why}"
    return None


def _update_refusal(core: RaftCore) -> ErrorCode:
    if core.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if core.leading.change is not None or not _is_established(core):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


def _is_established(core: RaftCore) -> bool:
    """Whether something of this leader's epoch is committed: what earlier leaders left behind is decided then."""
    return core.high_watermark > core.leading.epoch_start_offset


def _is_caught_up(core: RaftCore, key: ReplicaKey) -> bool:
    progress = core.leading.observers.get(key)
    return (
        progress is not None
        and progress.last_caught_up_ms >= 0
        and progress.last_fetch_ms > core.now_ms - CAUGHT_UP_WITHIN_MS
    )


def _deadline(core: RaftCore) -> int:
    return core.now_ms + core.settings.request_timeout_ms


def _begin(core: RaftCore, change: Change) -> None:
    core.leading.change = change


def _append(core: RaftCore, change: Change, voters: VoterSet) -> None:
    change.offset = core.log.end_offset
    core.append_control((voters,))


def _answer(core: RaftCore, change: Change, error: ErrorCode, message: str | None = None) -> None:
    if not change.is_answered:
        change.is_answered = True
        core.answer(ChangeAnswer(change.change_id, error, message))


def _end(core: RaftCore, error: ErrorCode, message: str | None = None) -> None:
    change = core.leading.change
    assert change is not None
    core.leading.change = None
    _answer(core, change, error, message)


def _show(key: ReplicaKey) -> str:
    from pykbroker.protocol.uuids import uuid_to_text

    directory = "<undefined>" if key.directory_id == NO_DIRECTORY_ID else uuid_to_text(key.directory_id)
    return f"ReplicaKey(id={key.node_id}, directoryId={directory})"


def _show_all(voters: VoterSet) -> str:
    return f"[{', '.join(map(_show, voters.keys))}]"
