"""One classic consumer group as a state machine: states, transitions, timers.

Requests are handled in `joins`, `syncs` and `leaves`, which call the methods of `Group`. Nothing here reads a clock:
every event gets `now_ms`, and `expire_due` must be called at `wake_ms`.

    Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
      ▲            │    ▲ ▲                   │                │
      └────────────┘    │ └───────────────────┘                │        any ──► Dead
     (all have left)    └──────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pykbroker.config.values import GroupValues
from pykbroker.groups.classic.members import ANSWERED, Member, Members, Waiter
from pykbroker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from pykbroker.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pykbroker.protocol.messages.sync_group import SyncGroupResponse

GROUP_METADATA_VALUE_VERSION = 3
"""Version that Kafka 4.3 writes; version 4 may be read but is never written (KIP-915)."""


class GroupState(Enum):
    """Kafka's names, as ListGroups and DescribeGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


POSTPONED_JOIN_MIN_MS = 1_000
"""Minimum extension, in ms, of a join phase that no member has joined; the rebalance timeouts may be shorter."""

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({STABLE, COMPLETING, EMPTY}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset(GroupState),
}
"""States from which each state can be entered."""


class Group:
    """A classic group. Its public attributes are for reading; only methods change them."""

    def __init__(self, group_id: str, settings: GroupValues, now_ms: int) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms: int | None = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.subscribed_topics: frozenset[str] | None = None
        """Topics of all members, known after a rebalance of consumers; None if they are unknown (P-114)."""
        self.wake_ms: int | None = None
        """Time of the next `expire_due`, in ms since 1970; not after the first deadline. None: no timer runs."""
        self._joined_since_delay = False
        self._join_deadline_ms: int | None = None
        self._initial_delay_ms = 0
        self._initial_remaining_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._rebalance_reason = ""

    # Properties and records

    @property
    def is_consumer_group(self) -> bool:
        """True if the protocol type is "consumer", so that the members' metadata contain their topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic; a consumer group with unknown topics is taken to consume all."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocol_names: list[str]) -> bool:
        """True if a client with these protocols could be a member (P-98)."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocol_names)
        return self.protocol_type == protocol_type and self.members.support_any(protocol_names)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE if the member id is current and owns the instance id, if there is one; else the error (P-101)."""
        if group_instance_id is not None:
            owner_id = self.members.static_ids.get(group_instance_id)
            if owner_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def join_response(self, member_id: str) -> JoinGroupResponse:
        """JoinGroup response with the current generation; only the leader gets the members' metadata (P-97)."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader_id or "",
            member_id=member_id,
            members=self.described_members() if member_id == self.members.leader_id else [],
        )

    def described_members(self) -> list[JoinGroupResponseMember]:
        """All members with their metadata for the chosen protocol."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members
        ]

    def metadata_record(self, assignments: dict[str, bytes]) -> LogRecord:
        """Record of the group's metadata, with these assignments by member id."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader_id,
            current_state_timestamp=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in self.members
            ],
        )
        return LogRecord(GroupMetadataKey(group=self.group_id), value, GROUP_METADATA_VALUE_VERSION)

    def size_of_metadata(self, assignments: Mapping[str, bytes]) -> int:
        """Bytes of what clients have put into `metadata_record`, nearly its size."""
        return sum(
            len(member.metadata(self.protocol_name)) + len(assignments[member.member_id]) for member in self.members
        )

    # Transitions

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Enters a state.

        Raises:
            AssertionError: the state cannot follow the current one.
        """
        assert self.state in PREVIOUS_STATES[state], f"group {self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def rebalance_or_complete_join(self, reason: str, now_ms: int, result: GroupResult) -> None:
        """Begins a rebalance after a change of members; in a join phase, ends the phase if all members have joined."""
        if self.state in PREVIOUS_STATES[PREPARING]:
            self.prepare_rebalance(reason, now_ms, result)
        else:
            self.maybe_complete_join(now_ms, result)

    def prepare_rebalance(self, reason: str, now_ms: int, result: GroupResult) -> None:
        """Begins a rebalance, which all members have to join; an Empty group first waits for more of them (P-94)."""
        if self.state is COMPLETING:
            self.reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now_ms, result)
        self.members.pending_syncs.clear()
        self._sync_deadline_ms = None
        is_initial = self.state is EMPTY
        self.transition(PREPARING, now_ms)
        self._rebalance_reason = reason
        result.details.append(
            f"group {self.group_id}: preparing to rebalance, old generation {self.generation_id}: {reason}"
        )
        if is_initial:
            self._joined_since_delay = False
            delay_ms = self.settings.initial_rebalance_delay_ms
            remaining_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_initial_join(delay_ms, remaining_ms, now_ms)
        elif self.members.have_all_joined:
            self.complete_join(now_ms, result)
        else:
            self._schedule_join(now_ms)

    def maybe_complete_join(self, now_ms: int, result: GroupResult) -> None:
        """Ends the join phase early if all members have joined; the initial one lasts its delay in any case."""
        if self.state is PREPARING and self.previous_state is not EMPTY and self.members.have_all_joined:
            self.complete_join(now_ms, result)

    def complete_join(self, now_ms: int, result: GroupResult) -> None:
        """Ends the join phase: removes dynamic members that have not joined (P-96) and begins the next generation."""
        self._join_deadline_ms = self._initial_remaining_ms = None
        for member in [m for m in self.members if m.join_waiter is None and not m.is_static]:
            self.members.remove(member.member_id)
            result.notes.append(f"group {self.group_id}: member {member.member_id} is removed, as it has not joined")
        if self.members.elect_joined_leader() or not self.members:
            self._begin_generation(now_ms, result)
        else:
            # Only static members are left and none has joined: they stay until their sessions expire.
            self._schedule_join(now_ms, POSTPONED_JOIN_MIN_MS)

    def _begin_generation(self, now_ms: int, result: GroupResult) -> None:
        self.generation_id += 1
        self.members.pending_syncs.clear()
        self.protocol_name = self.members.select_protocol() if self.members else None
        self.subscribed_topics = subscribed_topics(self.protocol_type, self.protocol_name, self.members)
        if not self.members:
            self.transition(EMPTY, now_ms)
            result.records.append(self.metadata_record({}))
            result.details.append(f"group {self.group_id}: empty in generation {self.generation_id}")
            return
        self.transition(COMPLETING, now_ms)
        for member in self.members:
            self.answer_join(member, self.join_response(member.member_id), result)
            self.schedule_session(member, now_ms)
            member.is_new = False
            self.members.pending_syncs.add(member.member_id)
        self._sync_deadline_ms = self._wake_at(now_ms + self.members.rebalance_timeout_ms)
        result.notes.append(
            f"group {self.group_id}: generation {self.generation_id} begins with {len(self.members)} member(s): "
            f"{self._rebalance_reason}"
        )

    def add_member(self, member: Member, waiter: Waiter | None) -> None:
        """Adds a member; the first one sets the group's protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.state is PREPARING and self.previous_state is EMPTY:
            self._joined_since_delay = True  # extends the initial delay (P-94)
        self.members.add(member, waiter)

    # Responses to parked requests

    def answer_join(self, member: Member, response: JoinGroupResponse, result: GroupResult) -> None:
        """Answers the parked join of the member, if there is one."""
        if member.join_waiter is not None:
            if member.join_waiter is not ANSWERED:
                result.reply(member.join_waiter, response)
            self.members.park_join(member, None)

    def answer_sync(self, member: Member, response: SyncGroupResponse, result: GroupResult) -> bool:
        """Answers the parked sync of the member; False if there is none."""
        if member.sync_waiter is None:
            return False
        if member.sync_waiter is not ANSWERED:
            result.reply(member.sync_waiter, response)
        member.sync_waiter = None
        return True

    def park_join(self, member: Member, waiter: Waiter, result: GroupResult) -> None:
        """Parks a join. An earlier one is answered: it is from a connection that the client has given up."""
        self.answer_join(
            member,
            JoinGroupResponse(member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS),
            result,
        )
        self.members.park_join(member, waiter)

    def dismiss(self, member_id: str, error: ErrorCode, result: GroupResult) -> None:
        """Removes a member and answers its parked requests with the error."""
        self.answer_with_error(self.members.by_id[member_id], error, result)
        self.members.remove(member_id)

    def answer_with_error(self, member: Member, error: ErrorCode, result: GroupResult) -> None:
        """Answers the parked requests of a member with the error.

        With UNKNOWN_MEMBER_ID the join response has no member id, so that the client joins as a new member.
        """
        member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        self.answer_join(member, JoinGroupResponse(member_id=member_id, error_code=error), result)
        self.answer_sync(member, SyncGroupResponse(error_code=error), result)

    def answer_parked(self, error: ErrorCode, now_ms: int, result: GroupResult) -> None:
        """Answers all parked requests with the error and restarts the sessions, which do not expire while one waits."""
        for member in self.members:
            self.answer_with_error(member, error, result)
            self.schedule_session(member, now_ms)

    def refuse_parked(self, waiter: Waiter, error: ErrorCode, result: GroupResult) -> None:
        """Answers one parked request with the error, if it still waits.

        Its member stays, and counts as one whose request waits, until the phase ends (P-391, P-392).
        """
        for member in self.members:
            if member.join_waiter is waiter:
                self.answer_join(member, JoinGroupResponse(error_code=error), result)
                self.members.park_join(member, ANSWERED)
            elif member.sync_waiter is waiter:
                self.answer_sync(member, SyncGroupResponse(error_code=error), result)
                member.sync_waiter = ANSWERED

    def reset_assignments(self, error: ErrorCode, now_ms: int, result: GroupResult) -> None:
        """Clears all assignments and answers parked syncs with the error."""
        for member in self.members:
            member.assignment = b""
            if self.answer_sync(member, SyncGroupResponse(error_code=error), result):
                self.schedule_session(member, now_ms)

    # Heartbeats and timers

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Restarts a member's session; REBALANCE_IN_PROGRESS if it has to join again (P-101, P-102)."""
        error = self.validate_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.schedule_session(self.members.by_id[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def schedule_session(self, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        """Restarts the member's session, with its session timeout unless another one is given."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline_ms = self._wake_at(now_ms + timeout_ms)

    def schedule_pending_join(self, member_id: str, now_ms: int, timeout_ms: int) -> None:
        """Reserves a member id that was given out until a client joins with it, at most for `timeout_ms` (P-93)."""
        self.members.pending_joins[member_id] = self._wake_at(now_ms + timeout_ms)

    def end_sync_wait(self) -> None:
        """Stops the timer of the sync phase if all members have synced."""
        if not self.members.pending_syncs:
            self._sync_deadline_ms = None

    def expire_due(self, now_ms: int) -> GroupResult:
        """Runs every timer that is due, and sets `wake_ms` to the next deadline."""
        result = GroupResult()
        for member_id in [member_id for member_id, at in self.members.pending_joins.items() if at <= now_ms]:
            self._expire_pending_join(member_id, now_ms, result)
        for member in [m for m in self.members if _is_due(m.session_deadline_ms, now_ms)]:
            self._expire_session(member, now_ms, result)
        if _is_due(self._join_deadline_ms, now_ms):
            self._expire_join(now_ms, result)
        if _is_due(self._sync_deadline_ms, now_ms):
            self._expire_sync(now_ms, result)
        deadlines = [self._join_deadline_ms, self._sync_deadline_ms, *self.members.pending_joins.values()]
        deadlines += [member.session_deadline_ms for member in self.members]
        self.wake_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
        return result

    def _expire_pending_join(self, member_id: str, now_ms: int, result: GroupResult) -> None:
        self.members.remove(member_id)
        result.notes.append(
            f"group {self.group_id}: pending member {member_id} is removed, as it has not joined in time"
        )
        if self.state is PREPARING and self.members.have_all_joined:
            self.complete_join(now_ms, result)

    def _expire_session(self, member: Member, now_ms: int, result: GroupResult) -> None:
        if self.members.by_id.get(member.member_id) is not member:
            return
        member.session_deadline_ms = None
        if member.ignores_session_expiry:
            return
        self.dismiss(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, result)
        reason = f"member {member.member_id} has not sent a heartbeat in {member.session_timeout_ms} ms"
        result.notes.append(f"group {self.group_id}: {reason}")
        if self.state in (STABLE, COMPLETING):
            self.rebalance_or_complete_join(reason, now_ms, result)
        elif self.state is PREPARING and self.members.have_all_joined:
            self.complete_join(now_ms, result)

    def _expire_join(self, now_ms: int, result: GroupResult) -> None:
        remaining_ms = self._initial_remaining_ms
        if not remaining_ms or not self._joined_since_delay:
            self.complete_join(now_ms, result)
            return
        self._joined_since_delay = False
        delay_ms = min(self.settings.initial_rebalance_delay_ms, remaining_ms)
        self._schedule_initial_join(delay_ms, max(remaining_ms - self._initial_delay_ms, 0), now_ms)

    def _expire_sync(self, now_ms: int, result: GroupResult) -> None:
        late = sorted(self.members.pending_syncs)
        self._sync_deadline_ms = None
        if self.state not in (COMPLETING, STABLE) or not late:
            return
        for member_id in late:
            self.dismiss(member_id, ErrorCode.UNKNOWN_MEMBER_ID, result)
        reason = f"members {late} have not sent SyncGroup in time"
        result.notes.append(f"group {self.group_id}: {reason}")
        self.prepare_rebalance(reason, now_ms, result)

    def _schedule_initial_join(self, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        self._initial_delay_ms = delay_ms
        self._initial_remaining_ms = remaining_ms
        self._join_deadline_ms = self._wake_at(now_ms + delay_ms)

    def _schedule_join(self, now_ms: int, at_least_ms: int = 0) -> None:
        self._join_deadline_ms = self._wake_at(now_ms + max(self.members.rebalance_timeout_ms, at_least_ms))

    def _wake_at(self, deadline_ms: int) -> int:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    # Unloading

    def stop_timers(self) -> None:
        """Stops all timers, for a group that becomes Dead."""
        self.wake_ms = self._join_deadline_ms = self._sync_deadline_ms = None
        self.members.pending_joins.clear()
        for member in self.members:
            member.session_deadline_ms = None

    def unload(self, now_ms: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> GroupResult:
        """Answers all parked requests with the error; the members then look for the coordinator (P-90).

        The group becomes Dead.
        """
        result = GroupResult()
        self.answer_parked(error, now_ms, result)
        self.transition(DEAD, now_ms)
        self.stop_timers()
        return result


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
