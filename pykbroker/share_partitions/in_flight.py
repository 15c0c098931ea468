"""Records of a share partition that are in flight: their delivery states, by batch or offset by offset.

A batch has one state for all its offsets until they differ; from then on each offset has a state of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pykbroker.share_state.state import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE

NO_MEMBER = ""
"""Member id of records that no member holds."""
NO_LOCK = 0


def is_terminal(state: int) -> bool:
    """True if records in this state are not delivered again."""
    return state in (ACKNOWLEDGED, ARCHIVED)


class InFlightState:
    """Delivery state of a batch or of one offset.

    A transition, which an acknowledgement starts, shows the new state at once; it is rolled back if the share
    coordinator cannot store it.

    Attributes:
        state: AVAILABLE, ACQUIRED, ACKNOWLEDGED or ARCHIVED.
        delivery_count: number of deliveries, the present one included.
        member_id: the member that holds the records, `NO_MEMBER` for none.
        lock_expires_ms: end of the acquisition lock, `NO_LOCK` without one.
    """

    __slots__ = ("_before", "_is_archived_for_good", "delivery_count", "lock_expires_ms", "member_id", "state")

    def __init__(
        self, state: int, delivery_count: int, member_id: str = NO_MEMBER, lock_expires_ms: int = NO_LOCK
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_expires_ms = lock_expires_ms
        # State, member and delivery count limit before the transition in progress.
        self._before: tuple[int, str, int] | None = None
        self._is_archived_for_good = False

    @property
    def is_in_transition(self) -> bool:
        """True until the outcome of the last transition is known."""
        return self._before is not None

    @property
    def can_be_acquired(self) -> bool:
        return self.state == AVAILABLE and self._before is None

    def copy(self) -> InFlightState:
        """The same state for one offset of a batch. As in Kafka, the copy is not part of a transition in progress."""
        return InFlightState(self.state, self.delivery_count, self.member_id, self.lock_expires_ms)

    def acquire(self, member_id: str, lock_expires_ms: int) -> None:
        """Acquires the records for a member; `can_be_acquired` must be true."""
        self.state = ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock_expires_ms = lock_expires_ms

    def release(self, state: int, delivery_count_limit: int) -> None:
        """Ends an acquisition without a transition, with AVAILABLE or ARCHIVED; `state` must be ACQUIRED."""
        self._end_acquisition(state, delivery_count_limit)
        self.lock_expires_ms = NO_LOCK

    def start_transition(self, state: int, delivery_count_limit: int) -> None:
        """Starts a transition of records in state ACQUIRED."""
        before = (self.state, self.member_id, delivery_count_limit)
        self._end_acquisition(state, delivery_count_limit)
        self._before = before

    def _end_acquisition(self, state: int, delivery_count_limit: int) -> None:
        """Ends the acquisition; after the last allowed delivery the records become ARCHIVED instead of AVAILABLE."""
        # A transition leaves ACQUIRED when it starts, and nothing is acquired until it has ended.
        assert self.state == ACQUIRED
        assert self._before is None
        self.state = self._state_after_limit(state, delivery_count_limit)
        self.member_id = NO_MEMBER

    def _state_after_limit(self, state: int, delivery_count_limit: int) -> int:
        """`state`, or ARCHIVED in place of AVAILABLE after the last delivery that is allowed."""
        return ARCHIVED if state == AVAILABLE and self.delivery_count >= delivery_count_limit else state

    def complete_transition(self, *, is_stored: bool, now_ms: int) -> None:
        """Ends the transition. If it is rolled back after the lock has expired, the acquisition ends with it."""
        before, self._before = self._before, None
        if is_stored or self._is_archived_for_good or before is None:
            self.lock_expires_ms = NO_LOCK
            return
        state, member_id, limit = before
        if NO_LOCK != self.lock_expires_ms <= now_ms:
            self.state = self._state_after_limit(AVAILABLE, limit)
            self.lock_expires_ms = NO_LOCK
        else:
            self.state, self.member_id = state, member_id

    def archive(self) -> None:
        """Archives records that are gone from the log; the end of a transition in progress does not undo this."""
        self._is_archived_for_good = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.lock_expires_ms = NO_LOCK


class InFlightBatch:
    """Offsets from `first_offset` to `last_offset`.

    Attributes:
        state: the state of all offsets; not valid if there are `offset_states`.
        offset_states: the state of each offset in order; None while they have one in common.
        is_by_offset: True if a member has acknowledged the offsets one by one and their states are still alike. Kafka
            has a state for each offset then, which shows in error texts alone.
    """

    __slots__ = ("first_offset", "is_by_offset", "last_offset", "offset_states", "state")

    def __init__(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.offset_states: list[InFlightState] | None = None
        self.is_by_offset = False

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split(self) -> list[InFlightState]:
        """The states of the offsets, which may differ from now on."""
        if self.offset_states is None:
            self.offset_states = [self.state.copy() for _ in range(len(self))]
        return self.offset_states

    def split_after(self, last_acquired_offset: int) -> None:
        """Makes the offsets above one available, as only those up to it were acquired at their first delivery."""
        acquired = last_acquired_offset - self.first_offset + 1
        states = [self.state.copy() for _ in range(acquired)]
        states += [InFlightState(AVAILABLE, self.state.delivery_count - 1) for _ in range(len(self) - acquired)]
        self.offset_states = states

    def ranges(self) -> Iterator[tuple[int, int, InFlightState]]:
        """(first offset, last offset, state): the whole batch, or each offset of one that was split."""
        if self.offset_states is None:
            yield self.first_offset, self.last_offset, self.state
        else:
            for offset, state in enumerate(self.offset_states, self.first_offset):
                yield offset, offset, state

    def states_between(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, InFlightState]]:
        """Offsets in a range, bounds included, with their states; the batch is split."""
        assert self.offset_states is not None
        first = max(first_offset, self.first_offset)
        last = min(last_offset, self.last_offset)
        states = self.offset_states
        for index in range(first - self.first_offset, last - self.first_offset + 1):
            yield self.first_offset + index, states[index]

    def state_of(self, offset: int) -> InFlightState:
        """The state that an offset has, or the last offset if it is beyond."""
        if self.offset_states is None:
            return self.state
        return self.offset_states[min(max(offset - self.first_offset, 0), len(self) - 1)]

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """True if all its offsets are in a range, bounds included."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset


class InFlightBatches:
    """The batches in flight, in order of offsets."""

    __slots__ = ("_batches", "_first_offsets")

    def __init__(self) -> None:
        self._first_offsets: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> InFlightBatch:
        return self._batches[0]

    @property
    def last(self) -> InFlightBatch:
        return self._batches[-1]

    def put(self, batch: InFlightBatch) -> None:
        """Adds a batch; it replaces one with the same first offset."""
        first = batch.first_offset
        if not self._first_offsets or first > self._first_offsets[-1]:
            self._first_offsets.append(first)
            self._batches.append(batch)
            return
        index = bisect_left(self._first_offsets, first)
        if self._first_offsets[index] == first:
            self._batches[index] = batch
        else:
            self._first_offsets.insert(index, first)
            self._batches.insert(index, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at an offset or before; it may end before the offset."""
        index = bisect_right(self._first_offsets, offset)
        return self._batches[index - 1] if index else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Batches that begin in a range of offsets, bounds included."""
        begin = bisect_left(self._first_offsets, first_offset)
        return self._batches[begin : bisect_right(self._first_offsets, last_offset)]

    def first_offset_after(self, offset: int) -> int | None:
        """First offset of the next batch that begins after an offset."""
        index = bisect_right(self._first_offsets, offset)
        return self._first_offsets[index] if index < len(self._first_offsets) else None

    def remove_before(self, offset: int) -> None:
        """Removes the batches that begin before an offset."""
        index = bisect_left(self._first_offsets, offset)
        del self._first_offsets[:index], self._batches[:index]

    def clear(self) -> None:
        self._first_offsets.clear()
        self._batches.clear()
