"""VoterChanges: changes of the voters by the leader, one at a time, each by a VotersRecord (KIP-853).

A change that adds a voter, or changes one, begins with an ApiVersions request to that node: `Output.probes` names it,
and VersionsReceived has the response. A new set of voters is in force as soon as it is in the log, and the next change
waits until it is committed. Error codes are those of Kafka's handlers of these requests; the texts are the handlers'.

While kraft.version is 0 the voters are those of the configuration. Their UpdateRaftVoter requests are kept in memory,
and are written to the log with their directory ids when kraft.version is raised.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.raft.local_messages import (
    AddVoter,
    ChangeAnswer,
    ChangeFailure,
    Reason,
    RemoveVoter,
    UpdateVoter,
    UpgradeKRaftVersion,
    VersionsReceived,
)
from pykbroker.controller.raft.progress import Progress
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.replica import Replica
from pykbroker.controller.raft.roles import NEVER_MS
from pykbroker.controller.raft.voter_history import KRaftVersion
from pykbroker.protocol.error_codes import ErrorCode

CAUGHT_UP_WITHIN_MS = 3_600_000

Request = AddVoter | RemoveVoter | UpdateVoter


class Change:
    """The change that is under way. `offset` is that of its VotersRecord, -1 until the record is appended."""

    __slots__ = ("deadline_ms", "is_answered", "offset", "request")

    def __init__(self, request: Request, deadline_ms: int) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.offset = -1
        self.is_answered = False


class VoterChanges:
    """Changes of the voters in one epoch; part of the leader's state.

    Attributes:
        pending: the change that is under way.
        described: the voters as their UpdateRaftVoter requests describe them, while kraft.version is 0.
    """

    def __init__(self, replica: Replica, epoch_start_offset: int, observers: Mapping[ReplicaKey, Progress]) -> None:
        """`observers` is the leader's own mapping: a new voter must have caught up."""
        self._replica = replica
        self._epoch_start_offset = epoch_start_offset
        self._observers = observers
        self.pending: Change | None = None
        self.described = replica.voters.with_voter(replica.itself)

    # Requests

    def on_request(self, request: Request | UpgradeKRaftVersion) -> None:
        """Begins a change, or refuses it with the reason."""
        if isinstance(request, UpgradeKRaftVersion):
            self._upgrade(request)
            return
        refusal = self.refusal(request)
        if refusal is not None:
            error, reason = refusal
            # Kafka answers UpdateRaftVoter without a text.
            failure = None if isinstance(request, UpdateVoter) else self._failure(reason)
            self._replica.output.answers.append(ChangeAnswer(request.change_id, error, failure))
            return
        change = self.pending = Change(request, self._replica.now_ms + self._replica.settings.request_timeout_ms)
        if isinstance(request, RemoveVoter):
            # A leader that removes itself leads until that is committed.
            self._append(change, self._replica.voters.without(request.voter.node_id))
        else:
            self._replica.output.probes.append(request.voter)

    def refusal(self, request: Request) -> tuple[ErrorCode, Reason] | None:
        """The first condition for a change that does not hold, in the order of Kafka's checks; None if all hold."""
        if self.pending is not None:
            return ErrorCode.REQUEST_TIMED_OUT, Reason.CHANGE_PENDING
        if self._replica.high_watermark <= self._epoch_start_offset:
            # Records of earlier leaders are only known to be committed after the first commit of this epoch.
            return ErrorCode.REQUEST_TIMED_OUT, Reason.NOTHING_COMMITTED
        if isinstance(request, UpdateVoter):
            return None
        if self._replica.kraft_version == 0:
            return ErrorCode.UNSUPPORTED_VERSION, Reason.STATIC_QUORUM
        if not self._is_committed:
            return ErrorCode.REQUEST_TIMED_OUT, Reason.VOTERS_UNCOMMITTED
        voters = self._replica.voters
        if isinstance(request, AddVoter):
            is_known = request.voter.key.node_id in voters.ids
            return (ErrorCode.DUPLICATE_VOTER, Reason.DUPLICATE_VOTER) if is_known else None
        is_removable = request.voter in voters.keys and len(voters) > 1
        return None if is_removable else (ErrorCode.VOTER_NOT_FOUND, Reason.NOT_A_VOTER)

    def on_versions(self, response: VersionsReceived) -> None:
        """The node of the pending change has answered ApiVersions, or could not be reached."""
        change = self.pending
        if change is None or change.offset >= 0 or isinstance(change.request, RemoveVoter):
            return
        if change.request.voter.key.node_id != response.node_id:
            return
        if isinstance(change.request, AddVoter):
            self._continue_adding(change, change.request, response)
        else:
            self._continue_updating(change, change.request.voter, response)

    def _continue_adding(self, change: Change, request: AddVoter, response: VersionsReceived) -> None:
        voter = request.voter._replace(kraft_versions=response.versions or (0, 0))
        if response.error is not ErrorCode.NONE:
            self._end_change(ErrorCode.REQUEST_TIMED_OUT, self._failure(Reason.NO_VERSIONS, error=response.error))
        elif not voter.supports(self._replica.kraft_version):
            failure = self._failure(Reason.VERSION_UNSUPPORTED, versions=voter.kraft_versions)
            self._end_change(ErrorCode.INVALID_REQUEST, failure)
        elif not self._is_caught_up(voter.key):
            self._end_change(ErrorCode.REQUEST_TIMED_OUT, self._failure(Reason.LAGGING))
        else:
            self._append(change, self._replica.voters.with_voter(voter))
            if not request.acks_commit:
                self._answer(change, ErrorCode.NONE)

    def _continue_updating(self, change: Change, voter: Voter, response: VersionsReceived) -> None:
        level, voters = self._replica.kraft_version, self._replica.voters
        if response.error is not ErrorCode.NONE:
            self._end_change(ErrorCode.REQUEST_TIMED_OUT)
        elif response.versions != voter.kraft_versions or not voter.supports(level):
            self._end_change(ErrorCode.INVALID_REQUEST)
        elif level and not self._is_committed:
            self._end_change(ErrorCode.REQUEST_TIMED_OUT)
        elif (voter.key not in voters) if level else (voter.key.node_id not in self.described.ids):
            self._end_change(ErrorCode.VOTER_NOT_FOUND)
        elif level:
            self._append(change, voters.with_voter(voter))
            # Answered before the commit, which may need the next Fetch of this very voter.
            self._answer(change, ErrorCode.NONE)
        else:
            self.described = self.described.with_voter(voter)
            self._end_change(ErrorCode.NONE)

    def _upgrade(self, request: UpgradeKRaftVersion) -> None:
        """Appends the new kraft.version and `described`; appends nothing if the level is finalized already."""
        level, voters = self._replica.kraft_version, self.described
        reason: Reason | None = None
        if request.level < level:
            reason = Reason.DOWNGRADE
        elif request.level > level and any(not voter.supports(request.level) for voter in voters.voters):
            reason = Reason.VOTERS_TOO_OLD
        elif request.level > level and any(key.directory_id == NO_DIRECTORY_ID for key in voters.keys):
            reason = Reason.DIRECTORY_UNKNOWN
        error, failure = ErrorCode.NONE, None
        if reason is not None:
            error, failure = ErrorCode.INVALID_UPDATE_VERSION, self._failure(reason)._replace(voters=voters)
        elif request.level > level and not request.validate_only:
            self._replica.append_control((KRaftVersion(request.level), voters))
        answer = ChangeAnswer(request.change_id, error, failure, self._replica.log.end_offset)
        self._replica.output.answers.append(answer)

    # The end of a change

    def on_high_watermark(self) -> None:
        if self.pending is not None and 0 <= self.pending.offset < self._replica.high_watermark:
            self._end_change(ErrorCode.NONE)

    @property
    def is_removed(self) -> bool:
        """True if this leader is not one of the committed voters, so that it must resign."""
        return not self._replica.is_voter and self._is_committed

    def tick(self) -> None:
        if self._replica.now_ms >= self.next_deadline_ms:
            self._end_change(ErrorCode.REQUEST_TIMED_OUT)

    @property
    def next_deadline_ms(self) -> int:
        return NEVER_MS if self.pending is None else self.pending.deadline_ms

    def on_records_dropped(self) -> None:
        if self.pending is not None and self.pending.offset >= self._replica.log.end_offset:
            self.abort(ErrorCode.KAFKA_STORAGE_ERROR)

    def abort(self, error: ErrorCode) -> None:
        """Ends the pending change, if there is one, with an error."""
        if self.pending is not None:
            self._end_change(error)

    # Helpers

    @property
    def _is_committed(self) -> bool:
        """True if the newest VotersRecord is committed."""
        offset = self._replica.history.voters_offset
        return offset is not None and offset < self._replica.high_watermark

    def _is_caught_up(self, key: ReplicaKey) -> bool:
        progress = self._observers.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_fetch_ms > self._replica.now_ms - CAUGHT_UP_WITHIN_MS
        )

    def _append(self, change: Change, voters: VoterSet) -> None:
        change.offset = self._replica.log.end_offset
        self._replica.append_control((voters,))

    def _failure(
        self, reason: Reason, versions: tuple[int, int] = (0, 0), error: ErrorCode = ErrorCode.NONE
    ) -> ChangeFailure:
        replica = self._replica
        offset = replica.history.voters_offset
        return ChangeFailure(
            reason, replica.voters, offset, replica.high_watermark, replica.kraft_version, versions, error
        )

    def _answer(self, change: Change, error: ErrorCode, failure: ChangeFailure | None = None) -> None:
        if not change.is_answered:
            change.is_answered = True
            self._replica.output.answers.append(ChangeAnswer(change.request.change_id, error, failure))

    def _end_change(self, error: ErrorCode, failure: ChangeFailure | None = None) -> None:
        change, self.pending = self.pending, None
        assert change is not None
        self._answer(change, error, failure)
