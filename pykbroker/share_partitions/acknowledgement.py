"""Acknowledgements of a member, and the release of all that a member holds, on a share partition (KIP-932, KIP-1222).

Each starts transitions and returns them. They are completed when the share coordinator has stored or refused them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.share_partitions.in_flight import NO_MEMBER, InFlightBatch, InFlightState, is_terminal
from pykbroker.share_partitions.share_partition import Change, SharePartition
from pykbroker.share_state.state import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, StateBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgement; a gap is an offset at which the member found no record."""

STATE_OF_TYPE = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_PAST_END = "Batch record not found. The first offset in request is past acquired records."
LAST_PAST_END = "Batch record not found. The last offset in request is past acquired records."
BATCH_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
NOT_OWNER_OF_BATCH = "Member is not the owner of batch record"
NOT_OWNER_OF_OFFSET = "Member is not the owner of offset"
CANNOT_RENEW = "Renewing acquisition locks is not enabled for the group."


class Refused(Exception):
    """The acknowledgement of a share partition is refused as a whole; the texts are Kafka's.

    Attributes:
        changes: transitions that had started and must be rolled back.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.changes: Sequence[Change] = ()


class AcknowledgedBatch(NamedTuple):
    """Offsets with one type of acknowledgement for all of them, or with one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        """Type of the acknowledgement of an offset."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first_offset]


def acknowledge(
    shares: SharePartition, member_id: str, acknowledged: Sequence[AcknowledgedBatch], now_ms: int
) -> list[Change]:
    """Starts the transitions that a member's acknowledgements ask for; renewed locks need none.

    Raises:
        Refused: INVALID_RECORD_STATE, INVALID_REQUEST; the changes in the exception must be rolled back.
    """
    steps = _Acknowledgement(shares, member_id, now_ms)
    try:
        for batch in acknowledged:
            if batch.last_offset >= shares.start_offset:
                steps.acknowledge(batch)
    except Refused as error:
        error.changes = steps.changes
        raise
    return steps.changes


def release(shares: SharePartition, member_id: str) -> list[Change]:
    """Starts the release of all records that a member holds, when it leaves or its session ends."""
    changes: list[Change] = []
    limit = shares.settings.delivery_count_limit
    for batch in shares.batches:
        if batch.offset_states is None:
            state = batch.state
            if state.state != ACQUIRED or state.member_id != member_id:
                continue
            if not batch.first_offset < shares.start_offset <= batch.last_offset:
                wanted = ARCHIVED if batch.last_offset < shares.start_offset else AVAILABLE
                _start(shares, state, wanted, batch.first_offset, batch.last_offset, limit, changes)
                continue
            batch.split()
        for offset, state in batch.states_between(batch.first_offset, batch.last_offset):
            if state.state == ACQUIRED and state.member_id == member_id:
                wanted = ARCHIVED if offset < shares.start_offset else AVAILABLE
                _start(shares, state, wanted, offset, offset, limit, changes)
    return changes


class _Acknowledgement:
    """The acknowledgements of one request for one share partition."""

    def __init__(self, shares: SharePartition, member_id: str, now_ms: int) -> None:
        self._shares = shares
        self._member_id = member_id
        settings = shares.settings
        self._limit = settings.delivery_count_limit
        self._may_renew = settings.may_renew
        self._expires_ms = now_ms + settings.record_lock_duration_ms
        self.changes: list[Change] = []

    def acknowledge(self, acknowledged: AcknowledgedBatch) -> None:
        start_offset = self._shares.start_offset
        is_by_offset = len(acknowledged.types) > 1
        if len(set(acknowledged.types)) == 1:
            # All offsets have the same type of acknowledgement: the batch need not be split.
            acknowledged = acknowledged._replace(types=acknowledged.types[:1])
        for batch in self._find(acknowledged):
            if batch.last_offset < start_offset:
                continue
            if batch.offset_states is None:
                self._check_owner(batch)
            if is_by_offset:
                batch.is_by_offset = True
            is_whole = (
                batch.is_within(acknowledged.first_offset, acknowledged.last_offset)
                and batch.offset_states is None
                and len(acknowledged.types) == 1
                and not batch.first_offset < start_offset <= batch.last_offset
            )
            if is_whole:
                self._change(batch.state, acknowledged.types[0], batch.first_offset, batch.last_offset)
                continue
            batch.split()
            self._acknowledge_offsets(acknowledged, batch)

    def _find(self, acknowledged: AcknowledgedBatch) -> list[InFlightBatch]:
        """The batches in flight that overlap the acknowledged offsets."""
        batches, first, last = self._shares.batches, acknowledged.first_offset, acknowledged.last_offset
        floor = batches.floor(first)
        if floor is None and first < self._shares.start_offset <= last:
            floor = batches.floor(self._shares.start_offset)
        if floor is None:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        found = batches.between(floor.first_offset, last)
        if found[-1].last_offset < first:
            raise Refused(ErrorCode.INVALID_REQUEST, FIRST_PAST_END)
        if last > found[-1].last_offset:
            raise Refused(ErrorCode.INVALID_REQUEST, LAST_PAST_END)
        return found

    def _check_owner(self, batch: InFlightBatch) -> None:
        state = batch.state
        if state.member_id == NO_MEMBER:
            message = OFFSET_NOT_ACQUIRED if batch.is_by_offset else BATCH_NOT_ACQUIRED
            raise Refused(ErrorCode.INVALID_RECORD_STATE, message)
        if state.member_id != self._member_id:
            message = NOT_OWNER_OF_OFFSET if batch.is_by_offset else NOT_OWNER_OF_BATCH
            raise Refused(ErrorCode.INVALID_RECORD_STATE, message)
        assert state.state == ACQUIRED, "only acquired records that are in no transition have an owner"

    def _acknowledge_offsets(self, acknowledged: AcknowledgedBatch, batch: InFlightBatch) -> None:
        first = max(acknowledged.first_offset, self._shares.start_offset)
        for offset, state in batch.states_between(first, acknowledged.last_offset):
            if state.state != ACQUIRED:
                raise Refused(ErrorCode.INVALID_RECORD_STATE, OFFSET_NOT_ACQUIRED)
            if state.member_id != self._member_id:
                raise Refused(ErrorCode.INVALID_RECORD_STATE, NOT_OWNER_OF_OFFSET)
            self._change(state, acknowledged.type_of(offset), offset, offset)

    def _change(self, state: InFlightState, kind: int, first_offset: int, last_offset: int) -> None:
        if kind == RENEW:
            if not self._may_renew:
                raise Refused(ErrorCode.INVALID_RECORD_STATE, CANNOT_RENEW)
            state.lock_expires_ms = self._expires_ms
            self._shares.locks.add(self._expires_ms, first_offset, last_offset)
            return
        _start(self._shares, state, STATE_OF_TYPE[kind], first_offset, last_offset, self._limit, self.changes)


def _start(
    shares: SharePartition,
    state: InFlightState,
    wanted: int,
    first_offset: int,
    last_offset: int,
    limit: int,
    changes: list[Change],
) -> None:
    """Starts the transition of acquired records that are in no other transition."""
    state.start_transition(wanted, limit)
    changes.append(Change(state, StateBatch(first_offset, last_offset, state.state, state.delivery_count)))
    if is_terminal(state.state):
        shares.delivery_complete_count += shares.count_from_start(first_offset, last_offset)
