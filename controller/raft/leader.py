"""Leader: announces itself, answers Fetch requests, and commits the records that a majority of the voters has.

The high watermark is the offset below which a majority of the voters has all records durably, the leader among them. It
counts only once it is greater than the offset of the epoch's first record, so that no record of an earlier epoch is
committed by counting replicas (Raft, section 5.4.2).
"""

from __future__ import annotations

from typing import Any

from pykbroker.controller.raft.local_messages import (
    AddVoter,
    RemoveVoter,
    UpdateVoter,
    UpgradeKRaftVersion,
    VersionsReceived,
)
from pykbroker.controller.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse, LeaderChange
from pykbroker.controller.raft.progress import Progress
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, VoterSet, offset_of_majority
from pykbroker.controller.raft.replica import Replica, RoleState
from pykbroker.controller.raft.roles import NEVER_MS, ReplicaDescription, Role
from pykbroker.controller.raft.voter_changes import VoterChanges
from pykbroker.controller.raft.voter_history import ControlRecord, KRaftVersion
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""Time since its last Fetch after which an observer is no longer described, as in Kafka."""


class WaitingFetch(NamedTuple):
    """A Fetch that cannot be answered with records or a new high watermark yet."""

    request: FetchRequest
    answer_at_ms: int


class Leader(RoleState):
    """The role of the leader.

    Attributes:
        epoch_start_offset: offset of the epoch's first record, the LeaderChange.
        voters: the other voters by node id.
        observers: all other replicas that fetch.
        waiting: Fetch requests that wait, by node id.
        announce_at_ms: time of the next BeginQuorumEpoch.
        quorum_since_ms: time of the last change of the voters, or of the epoch's beginning. From then on a majority has
            one and a half fetch timeouts for its first Fetch.
        changes: the change of the voters that is under way.
    """

    role = Role.LEADER
    may_grant_votes = False

    def __init__(self, replica: Replica, granting_ids: set[int]) -> None:
        super().__init__(replica)
        self._granting_ids = granting_ids
        self.epoch_start_offset = replica.log.end_offset
        self.voters = {key.node_id: Progress(key) for key in replica.voters.keys if key.node_id != replica.node_id}
        self.observers: dict[ReplicaKey, Progress] = {}
        self.waiting: dict[int, WaitingFetch] = {}
        self.announce_at_ms = 0
        self.quorum_since_ms = replica.now_ms
        self.changes = VoterChanges(replica, self.epoch_start_offset, self.observers)

    @property
    def may_grant_pre_votes(self) -> bool:
        return False

    def begin(self) -> None:
        replica = self.replica
        voters = replica.voters
        granting = tuple(key for key in voters.keys if key.node_id in self._granting_ids)
        records: list[ControlRecord] = [LeaderChange(replica.node_id, tuple(voters.keys), granting)]
        if replica.kraft_version and self._must_write_voters():
            itself = [replica.itself] if replica.itself.endpoints else []
            records += [KRaftVersion(replica.kraft_version), VoterSet([*voters.voters, *itself])]
        replica.append_control(records)
        self._send_begin_quorum_epoch()

    def _must_write_voters(self) -> bool:
        """True if only the snapshot of the format step has the voters, or the record of this leader is out of date.

        A leader cannot send UpdateRaftVoter to itself.
        """
        replica = self.replica
        is_out_of_date = bool(replica.itself.endpoints) and replica.voters.is_out_of_date(replica.itself)
        return replica.history.voters_offset == -1 or is_out_of_date

    def end(self) -> None:
        self.changes.abort(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for fetch in self.waiting.values():
            is_fenced = fetch.request.epoch < self.replica.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.replica.refuse_fetch(fetch.request, error)

    def resign(self) -> None:
        """Names the voters with the longest logs first as successors (KIP-595)."""
        progress = sorted(self.voters.values(), key=lambda p: (-p.end_offset, p.key.node_id))
        self.replica.become_resigned([p.key for p in progress])

    # Time

    def tick(self) -> None:
        now_ms = self.replica.now_ms
        self.changes.tick()
        for node_id, waiting in list(self.waiting.items()):
            if now_ms >= waiting.answer_at_ms:
                del self.waiting[node_id]
                self._answer(waiting.request)
        if now_ms >= self.announce_at_ms:
            self._send_begin_quorum_epoch()
        if now_ms >= self._resign_at_ms():
            self.resign()

    @property
    def next_deadline_ms(self) -> int:
        deadlines = [waiting.answer_at_ms for waiting in self.waiting.values()]
        return min([*deadlines, self.announce_at_ms, self._resign_at_ms(), self.changes.next_deadline_ms])

    def _send_begin_quorum_epoch(self) -> None:
        """Sends BeginQuorumEpoch to the voters that do not fetch, and repeats it: they may have restarted since."""
        replica = self.replica
        interval_ms = max(replica.settings.fetch_timeout_ms // 2, 1)
        for progress in self.voters.values():
            if progress.last_fetch_ms < 0 or replica.now_ms - progress.last_fetch_ms >= interval_ms:
                node_id = progress.key.node_id
                replica.send(node_id, BeginQuorumEpochRequest(replica.node_id, replica.epoch, progress.key))
        self.announce_at_ms = replica.now_ms + interval_ms if self.voters else NEVER_MS

    def _resign_at_ms(self) -> int:
        """Time in ms at which the leader resigns.

        A majority of voters has not fetched for one and a half fetch timeouts, and may have elected another leader.
        """
        # The fetches of this many voters are needed for a majority. A leader that is being removed is not part of it.
        needed = self.replica.voters.majority - (1 if self.replica.is_voter else 0)
        if needed == 0:
            return NEVER_MS
        heard = sorted((p.last_heard_ms for p in self.voters.values()), reverse=True)
        majority_heard_ms = heard[needed - 1]
        return max(majority_heard_ms, self.quorum_since_ms) + self.replica.settings.fetch_timeout_ms * 3 // 2

    # Fetch

    def on_fetch_request(self, request: FetchRequest) -> None:
        """Notes the replica's log end offset. Answers with records, a divergence or a snapshot, or lets the Fetch wait.

        A request of a later epoch is refused, and the epoch is not adopted: the replica has it from a leader or from a
        vote, and this leader gets it from their requests too.
        """
        replica, log = self.replica, self.replica.log
        error = replica.epoch_error(request.epoch)
        if error is ErrorCode.NONE and request.source == replica.node_id:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # another node with the id of this one
        if error is not ErrorCode.NONE:
            replica.refuse_fetch(request, error)
            return
        if log.is_before_start(request.log_end):
            replica.send(request.source, self._response(request)._replace(snapshot=log.start))
            return
        diverging = log.divergence(*request.log_end)
        if diverging is not None:
            replica.send(request.source, self._response(request)._replace(diverging=diverging))
            return
        if request.source >= 0:  # a consumer of the metadata log has no node id
            self._progress_of(request.replica).note_fetch(request.log_end.offset, log.end_offset, replica.now_ms)
        wait_ms = min(request.max_wait_ms, replica.settings.fetch_wait_max_ms)
        self.waiting[request.source] = WaitingFetch(request, replica.now_ms + wait_ms)
        if request.replica in replica.voters:
            self.advance_high_watermark()
        if replica.state is self:
            self.answer_waiting()
            if wait_ms == 0 and self.waiting.pop(request.source, None) is not None:
                self._answer(request)

    def _progress_of(self, key: ReplicaKey) -> Progress:
        if key in self.replica.voters and key.node_id in self.voters:
            return self.voters[key.node_id]
        return self.observers.setdefault(key, Progress(key))

    def on_snapshot_served(self, key: ReplicaKey) -> None:
        """Counts a voter for the majority while it downloads a long snapshot, during which it does not fetch."""
        progress = self.voters.get(key.node_id)
        if progress is not None and key in self.replica.voters:
            progress.last_heard_ms = self.replica.now_ms

    def on_persisted(self) -> None:
        self.advance_high_watermark()

    def advance_high_watermark(self) -> None:
        """Raises the high watermark to the offset that a majority has, and answers the followers that wait for it."""
        ends = [progress.end_offset for progress in self.voters.values()]
        if self.replica.is_voter:
            ends.append(self.replica.log.persisted_offset)
        reached = offset_of_majority(ends)
        if reached > self.epoch_start_offset and reached > self.replica.high_watermark:
            self.replica.set_high_watermark(reached)
            self.answer_waiting()
            self.changes.on_high_watermark()
            if self.changes.is_removed:
                self.resign()

    @property
    def high_watermark(self) -> int:
        """The high watermark in messages to other nodes: -1 until a record of this epoch is committed, as in Kafka.

        Until then followers may know a higher one, from the leader of the last epoch. The raft thread of Apache Kafka
        ends when a response has a lower high watermark than its own.
        """
        known = self.replica.high_watermark
        return known if known > self.epoch_start_offset else -1

    def append(self, payload: Any, record_count: int) -> None:
        """Appends proposed records as one batch."""
        self.replica.append(payload, record_count)
        self.answer_waiting()

    def answer_waiting(self) -> None:
        """Answers the waiting Fetch requests for which there are records, or a higher high watermark, now."""
        end_offset, high_watermark = self.replica.log.end_offset, self.high_watermark
        for node_id, waiting in list(self.waiting.items()):
            request = waiting.request
            if request.log_end.offset < end_offset or request.high_watermark < high_watermark:
                del self.waiting[node_id]
                self._answer(request)

    def _answer(self, request: FetchRequest) -> None:
        self.replica.send(request.source, self._response(request))

    def _response(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            self.replica.node_id,
            self.replica.epoch,
            self.replica.leader_id,
            self.high_watermark,
            request.log_end.offset,
            log_start=self.replica.log.start.offset,
            max_bytes=request.max_bytes,
        )

    # Voters

    def on_voter_request(self, request: AddVoter | RemoveVoter | UpdateVoter | UpgradeKRaftVersion) -> None:
        self.changes.on_request(request)
        self.answer_waiting()

    def on_versions_received(self, response: VersionsReceived) -> None:
        self.changes.on_versions(response)
        self.answer_waiting()

    def on_records_dropped(self) -> None:
        self.changes.on_records_dropped()

    def on_voters_changed(self) -> None:
        """Takes over the new set of voters; the progress of each replica is kept."""
        replica = self.replica
        old = self.voters
        self.voters = {}
        for key in replica.voters.keys:
            if key.node_id == replica.node_id:
                continue
            progress = self.observers.pop(key, None)
            known = old.get(key.node_id)
            if progress is None and known is not None and known.key.directory_id in (NO_DIRECTORY_ID, key.directory_id):
                progress = old.pop(key.node_id)
                progress.key = key
            self.voters[key.node_id] = progress or Progress(key)
        for progress in old.values():
            if progress.key != replica.key and self.voters.get(progress.key.node_id) is not progress:
                self.observers[progress.key] = progress
        # A new voter gets as much time for its first Fetch as the voters of a new leader.
        self.quorum_since_ms = self.announce_at_ms = replica.now_ms

    def describe(self, now_ms: int) -> tuple[list[ReplicaDescription], list[ReplicaDescription]]:
        """Voters and observers with their progress; the leader itself is caught up at `now_ms`.

        Removes the observers that have not fetched for OBSERVER_SESSION_TIMEOUT_MS.
        """
        replica = self.replica
        for key, progress in list(self.observers.items()):
            if now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_TIMEOUT_MS:
                del self.observers[key]
        voters = [progress.describe() for progress in self.voters.values()]
        observers = [progress.describe() for progress in self.observers.values()]
        # The key as in the set of voters: without a directory id while kraft.version is 0.
        recorded = replica.voters.voter(replica.node_id) if replica.is_voter else None
        key = replica.key if recorded is None else recorded.key
        (voters if replica.is_voter else observers).append(
            ReplicaDescription(key, replica.log.end_offset, now_ms, now_ms)
        )
        return sorted(voters), sorted(observers)
