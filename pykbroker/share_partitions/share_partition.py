"""One share partition as a pure state machine (KIP-932): which records are in flight, and where the next fetch begins.

Below the start offset all records are acknowledged or archived; from the start offset to the end offset records are in
flight, in batches; beyond the end offset nothing was fetched yet. Acquisitions are in `acquisition.py`,
acknowledgements in `acknowledgement.py`. Time is an argument, in milliseconds of any clock that does not go back.
Offsets are inclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pykbroker.named_tuple import NamedTuple
from pykbroker.share_partitions.in_flight import InFlightBatch, InFlightBatches, InFlightState, is_terminal
from pykbroker.share_partitions.lock_deadlines import LockDeadlines
from pykbroker.share_partitions.settings import SharePartitionSettings
from pykbroker.share_state.state import ACQUIRED, ARCHIVED, AVAILABLE, StateBatch


class InvalidState(Exception):
    """The state from the share coordinator is not valid."""


class GapWindow(NamedTuple):
    """Offsets between stored batches that were never acquired, and must be fetched before the end offset.

    Attributes:
        end_offset: the end offset at the time of the load; the window ends when the share partition's end moves.
        start_offset: the first offset that may be in a gap.
    """

    end_offset: int
    start_offset: int


class Change(NamedTuple):
    """A transition that has started, and what the share coordinator is to store for it."""

    state: InFlightState
    stored: StateBatch


class SharePartition:
    """The records in flight of one share group in one topic partition.

    Args:
        settings: returns the group's current settings.
        state_epoch: epoch of the stored state.
        start_offset: first offset that may be delivered; the stored one, or that of `share.auto.offset.reset`.
        stored: the stored batches, in order of offsets.

    Attributes:
        start_offset: first offset in flight, or the next one to be fetched if nothing is in flight.
        end_offset: last offset in flight, or the next one to be fetched if nothing is in flight.
        batches: the records in flight.
        delivery_complete_count: number of records in flight that are acknowledged or archived.
        must_search: True if `next_fetch_offset` must look for available records before the end offset.
        gap_window: None if there are no gaps between stored batches.
        locks: the times at which acquisition locks expire.

    Raises:
        InvalidState: the batches overlap the start offset, or end before they begin.
    """

    def __init__(
        self,
        settings: Callable[[], SharePartitionSettings],
        state_epoch: int,
        start_offset: int,
        stored: Sequence[StateBatch],
    ) -> None:
        self._settings = settings
        self.state_epoch = state_epoch
        self.start_offset = self.end_offset = start_offset
        self.batches = InFlightBatches()
        self.delivery_complete_count = 0
        self.must_search = False
        self.gap_window: GapWindow | None = None
        self.locks = LockDeadlines()
        gap_start, next_offset = -1, start_offset
        for batch in stored:
            if batch.first_offset < start_offset or batch.last_offset < batch.first_offset:
                raise InvalidState(f"the stored batch {tuple(batch)} is not valid with start offset {start_offset}")
            if gap_start < 0 and batch.first_offset > next_offset:
                gap_start = next_offset
            next_offset = batch.last_offset + 1
            state = InFlightState(batch.delivery_state, batch.delivery_count)
            self.batches.put(InFlightBatch(batch.first_offset, batch.last_offset, state))
            if is_terminal(batch.delivery_state):
                self.delivery_complete_count += batch.last_offset - batch.first_offset + 1
        if len(self.batches):
            self.must_search = True
            self.end_offset = self.batches.last.last_offset
            if gap_start >= 0:
                self.gap_window = GapWindow(self.end_offset, gap_start)
            self.advance_start()

    @property
    def settings(self) -> SharePartitionSettings:
        return self._settings()

    # Where to fetch

    def next_fetch_offset(self) -> int:
        """The first available offset in flight, the first gap, or the offset after the end."""
        if not len(self.batches) or self.start_offset > self.batches.last.last_offset:
            self.must_search = False
            return self.end_offset
        if self.must_search:
            found = self._first_available()
            if found is not None:
                return found
            self.must_search = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                # Offsets that do not exist, of a compacted topic, may be between two batches.
                gap_start = max(batch.last_offset + 1, gap_start)
            for offset, _, state in batch.ranges():
                if state.can_be_acquired:
                    return offset
        return None

    @property
    def gap_start(self) -> int | None:
        """First offset that may be in a gap between stored batches; None if none of them is left to be fetched."""
        window = self.gap_window
        if window is None or window.end_offset != self.end_offset:
            return None
        return max(window.start_offset, self.start_offset)

    def move_gap_start(self, offset: int) -> None:
        """Notes that gaps before an offset have been fetched; they stay so if earlier records are acquired again."""
        window = self.gap_window
        if window is not None:
            is_left = window.end_offset == self.end_offset and offset <= window.end_offset
            start_offset = max(offset, window.start_offset)
            self.gap_window = window._replace(start_offset=start_offset) if is_left else None

    def skip_gap(self, fetch_offset: int, found_offset: int) -> None:
        """Notes that the log has no records between the offset of a fetch and the first one found there."""
        gap_start = self.gap_start
        if gap_start is not None and fetch_offset <= gap_start < found_offset <= self.end_offset:
            self.move_gap_start(found_offset)
            self.advance_start()

    @property
    def count_in_flight(self) -> int:
        """Number of offsets from the start offset to the end offset."""
        return self.end_offset - self.start_offset + 1 if len(self.batches) else 0

    @property
    def can_acquire(self) -> bool:
        """True if records may be acquired: available ones in flight, or new ones within the limit of locks."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.count_in_flight < self.settings.record_locks_max

    # Outcome of transitions

    def complete(self, changes: Iterable[Change], *, is_stored: bool, now_ms: int) -> bool:
        """Ends transitions that the share coordinator has stored or refused; True if the start offset moved."""
        for change in changes:
            change.state.complete_transition(is_stored=is_stored, now_ms=now_ms)
            if change.state.state == AVAILABLE:
                self.must_search = True
            if not is_stored and is_terminal(change.stored.delivery_state) and not is_terminal(change.state.state):
                first, last = change.stored.first_offset, change.stored.last_offset
                self.delivery_complete_count -= self.count_from_start(first, last)
        return is_stored and self.advance_start()

    def count_from_start(self, first_offset: int, last_offset: int) -> int:
        """Number of offsets in a range that are not below the start offset."""
        return max(0, last_offset - max(self.start_offset, first_offset) + 1)

    def advance_start(self) -> bool:
        """Moves the start offset over acknowledged and archived records, and removes them; True if it moved."""
        if not self._can_advance():
            return False
        last_done, count = self._last_finished()
        if last_done < 0:
            return False
        last_in_flight = self.batches.last.last_offset
        if last_done == last_in_flight:
            # The start offset never goes back: it may have moved to a later log start meanwhile.
            self.start_offset = self.end_offset = max(last_in_flight + 1, self.start_offset)
            self.batches.clear()
            self.delivery_complete_count = 0
            return True
        batch = self.batches.floor(last_done)
        assert batch is not None
        if last_done == batch.last_offset:
            following = self.batches.first_offset_after(last_done)
            assert following is not None
            gap_start = self.gap_start
            if gap_start is not None:
                following = min(max(gap_start, last_done + 1), following)
            self.start_offset = max(following, self.start_offset)
            self.batches.remove_before(batch.last_offset + 1)
        else:
            self.start_offset = max(last_done + 1, self.start_offset)
            self.batches.remove_before(batch.first_offset)
        self.delivery_complete_count -= count
        return True

    def _can_advance(self) -> bool:
        if not len(self.batches):
            return False
        batch = self.batches.floor(self.start_offset)
        if batch is None:
            batch = self.batches.first
            gap_start = self.gap_start
            if gap_start is not None and gap_start < batch.first_offset:
                return False
        state = batch.state_of(self.start_offset)
        return not state.is_in_transition and is_terminal(state.state)

    def _last_finished(self) -> tuple[int, int]:
        """(last offset of finished records that the start offset can pass, -1 for none; number of these in flight)."""
        last_done, count = -1, 0
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    # Between them are records that were never delivered.
                    break
                gap_start = max(gap_start, batch.last_offset + 1)
            for first_offset, last_offset, state in batch.ranges():
                if state.is_in_transition or not is_terminal(state.state):
                    return last_done, count
                last_done = last_offset
                count += self.count_from_start(first_offset, last_offset)
        return last_done, count

    # Locks

    @property
    def next_expiry_ms(self) -> int | None:
        """Time at which `expire_locks` may have something to do; None for never."""
        self.locks.drop_before(self.batches.first.first_offset if len(self.batches) else self.end_offset + 1)
        return self.locks.first_ms

    def expire_locks(self, now_ms: int) -> list[StateBatch]:
        """Ends acquisitions whose lock has expired; returns their new states, which are to be stored.

        The acquisitions have ended even if the states cannot be stored. `advance_start` must be called after the write.
        """
        changed: list[StateBatch] = []
        limit = self.settings.delivery_count_limit
        for first_offset, last_offset in self.locks.pop_due(now_ms):
            floor = self.batches.floor(first_offset)
            begin = first_offset if floor is None else floor.first_offset
            for batch in self.batches.between(begin, last_offset):
                if batch.offset_states is None:
                    if batch.first_offset < self.start_offset <= batch.last_offset and batch.state.state == ACQUIRED:
                        batch.split()
                    else:
                        self._expire(batch.state, batch.first_offset, batch.last_offset, limit, now_ms, changed)
                        continue
                for offset, state in batch.states_between(first_offset, last_offset):
                    self._expire(state, offset, offset, limit, now_ms, changed)
        return changed

    def _expire(
        self, state: InFlightState, first: int, last: int, limit: int, now_ms: int, changed: list[StateBatch]
    ) -> None:
        if state.state != ACQUIRED or not 0 < state.lock_expires_ms <= now_ms:
            # Acknowledged meanwhile, or renewed.
            return
        state.release(ARCHIVED if last < self.start_offset else AVAILABLE, limit)
        append_state(changed, first, last, state)
        if state.state != ARCHIVED:
            self.must_search = True
        else:
            self.delivery_complete_count += self.count_from_start(first, last)

    # Records that are gone from the log

    def move_start(self, log_start_offset: int) -> None:
        """Archives available records below the log's new start offset; acquired ones stay with their members."""
        if log_start_offset <= self.start_offset:
            return
        if not len(self.batches):
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return
        removed = self._count_finished_below(log_start_offset)
        if self.archive(self.batches, self.start_offset, log_start_offset, AVAILABLE, counts=False):
            self.must_search = True
        self.start_offset = log_start_offset
        self.delivery_complete_count -= removed
        self.end_offset = max(self.end_offset, log_start_offset)

    def archive_compacted(self, fetch_offset: int, found_offset: int) -> None:
        """Archives available records between the offset of a fetch and the first record found (compaction)."""
        if not len(self.batches) or fetch_offset >= found_offset:
            return
        floor = self.batches.floor(fetch_offset)
        begin = fetch_offset
        if floor is not None and floor.last_offset >= fetch_offset:
            begin = floor.first_offset
        batches = self.batches.between(begin, found_offset - 1)
        if self.archive(batches, fetch_offset, found_offset, AVAILABLE, counts=True):
            self.must_search = True

    def archive(
        self, batches: Iterable[InFlightBatch], first_offset: int, end_offset: int, wanted: int, *, counts: bool
    ) -> bool:
        """Archives records in state `wanted` from `first_offset` to below `end_offset`; True if there were any.

        With `counts` they count as delivery complete.
        """
        is_any = False
        for batch in batches:
            if batch.first_offset >= end_offset:
                break
            if batch.offset_states is None:
                if batch.state.state != wanted:
                    continue
                if batch.is_within(first_offset, end_offset - 1):
                    batch.state.archive()
                    is_any = True
                    if counts:
                        self.delivery_complete_count += len(batch)
                    continue
                batch.split()
            for _, state in batch.states_between(first_offset, end_offset - 1):
                if state.state == wanted:
                    state.archive()
                    is_any = True
                    if counts:
                        self.delivery_complete_count += 1
        return is_any

    def _count_finished_below(self, end_offset: int) -> int:
        """Number of acknowledged and archived records between the start offset and another one."""
        count = 0
        for batch in self.batches:
            if batch.first_offset >= end_offset:
                break
            for first_offset, last_offset, state in batch.ranges():
                if is_terminal(state.state):
                    count += self.count_from_start(first_offset, min(last_offset, end_offset - 1))
        return count


def append_state(stored: list[StateBatch], first: int, last: int, state: InFlightState) -> None:
    """Appends a state for the share coordinator, to the last batch if it continues that."""
    before = stored[-1] if stored else None
    if (
        before is not None
        and before.last_offset + 1 == first
        and before.delivery_state == state.state
        and before.delivery_count == state.delivery_count
    ):
        stored[-1] = before._replace(last_offset=last)
    else:
        stored.append(StateBatch(first, last, state.state, state.delivery_count))
