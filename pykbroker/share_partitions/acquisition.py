"""Acquisition of fetched records of a share partition by a member (KIP-932, KIP-1206).

In batch-optimized mode whole batches of the log are acquired, so that a member may get more than max_records; in
record-limit mode never more. Records with a high delivery count are delivered a few at a time, so that a record
that no member can process does not bring the records around it to the delivery count limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from pykbroker.named_tuple import NamedTuple
from pykbroker.share_partitions.in_flight import InFlightBatch, InFlightState
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker.share_state.state import ACQUIRED

THROTTLED_FROM_MIN = 2
"""Delivery count from which on records are delivered a few at a time."""


class FetchedBatch(NamedTuple):
    """A batch of the log that was read for an acquisition: its offsets."""

    base_offset: int
    last_offset: int


class Acquired(NamedTuple):
    """Offsets that a member has acquired, with their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class Acquisition:
    """One acquisition on a share partition.

    Args:
        shares: the share partition.
        member_id: the member that acquires.
        now_ms: the time.
        records_max: number of records after which it stops; with `is_record_limit` exactly, else at a batch's end.
        is_record_limit: True in record-limit mode.
        batch_size: largest number of offsets in one batch of new records, if the batches of the log allow it.
    """

    def __init__(
        self,
        shares: SharePartition,
        member_id: str,
        now_ms: int,
        *,
        records_max: int,
        is_record_limit: bool = False,
        batch_size: int,
    ) -> None:
        self._shares = shares
        self._member_id = member_id
        self._is_record_limit = is_record_limit
        self._batch_size = batch_size
        self._wanted = records_max
        settings = shares.settings
        self._limit = settings.delivery_count_limit
        self._throttled_from = max(THROTTLED_FROM_MIN, ceil(settings.delivery_count_limit / 2))
        self._locks_max = settings.record_locks_max
        self._expires_ms = now_ms + settings.record_lock_duration_ms
        self._fetched: Sequence[FetchedBatch] = ()
        self._acquired: list[Acquired] = []
        self._count = 0

    def acquire(self, fetch_offset: int, fetched: Sequence[FetchedBatch]) -> list[Acquired]:
        """Acquires records of batches that were read at an offset, in order of offsets."""
        shares = self._shares
        if not fetched or self._wanted <= 0:
            return []
        shares.skip_gap(fetch_offset, fetched[0].base_offset)
        if fetched[-1].last_offset < shares.start_offset:
            return []
        last_offset = self._limit_by_locks(fetch_offset, fetched[-1].last_offset)
        if self._wanted <= 0:
            return []
        self._fetched = fetched
        first_fetched = base_offset = fetched[0].base_offset
        shares.archive_compacted(fetch_offset, base_offset)
        floor = shares.batches.floor(base_offset)
        if floor is None:
            # The log start may be within a batch.
            base_offset = max(base_offset, shares.start_offset)
        elif floor.last_offset >= base_offset:
            base_offset = floor.first_offset
        in_flight = shares.batches.between(min(first_fetched, base_offset), last_offset)
        if not in_flight:
            self._acquire_new(base_offset, last_offset)
            return self._acquired
        self._acquire_in_flight(in_flight, base_offset, last_offset)
        end = in_flight[-1].last_offset
        if self._count < self._wanted and end < last_offset:
            self._acquire_new(end + 1, last_offset)
        if self._acquired:
            shares.move_gap_start(self._acquired[-1].last_offset + 1)
        return self._acquired

    def _limit_by_locks(self, fetch_offset: int, last_offset: int) -> int:
        """Limits the number of records by the records in flight; returns the last offset to acquire.

        At the limit of records in flight, available ones among them may still be acquired.
        """
        shares = self._shares
        records_max = self._wanted
        self._wanted = min(records_max, self._locks_max - shares.count_in_flight)
        if self._wanted <= 0 and fetch_offset <= shares.end_offset:
            self._wanted = min(records_max, shares.end_offset - fetch_offset + 1)
            return min(last_offset, shares.end_offset)
        return last_offset

    # Records in flight

    def _acquire_in_flight(self, batches: Sequence[InFlightBatch], base_offset: int, last_offset: int) -> None:
        shares, first_fetched = self._shares, self._fetched[0].base_offset
        gap_start = base_offset
        for batch in batches:
            if self._count >= self._wanted:
                return
            if shares.gap_start is not None:
                if gap_start < batch.first_offset:
                    self._acquire_new(gap_start, batch.first_offset - 1)
                gap_start = batch.last_offset + 1
                if self._count >= self._wanted:
                    return
            is_throttled = self._must_throttle(batch, first_fetched, last_offset)
            if is_throttled and self._count > 0:
                # Records that failed before are not delivered along with others.
                self._wanted = 0
                return
            is_partly = self._is_record_limit and len(batch) > self._wanted - self._count
            is_within = batch.is_within(first_fetched, last_offset)
            if batch.offset_states is None and not batch.state.can_be_acquired:
                continue
            if is_within and batch.offset_states is None and not is_partly and not is_throttled:
                self._acquire_state(batch.state, batch.first_offset, batch.last_offset)
                self._append(batch.first_offset, batch.last_offset, batch.state.delivery_count)
                continue
            batch.split()
            count = self._acquire_offsets(batch, first_fetched, last_offset)
            if is_throttled and count > 0:
                self._wanted = 0
                return

    def _must_throttle(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> bool:
        """True if a batch has available records that were delivered often already."""
        if batch.offset_states is None:
            return batch.state.can_be_acquired and batch.state.delivery_count >= self._throttled_from
        return any(
            state.can_be_acquired and state.delivery_count >= self._throttled_from
            for _, state in batch.states_between(first_offset, last_offset)
        )

    def _acquire_offsets(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> int:
        """Acquires available offsets of a batch one by one; returns their number."""
        acquired: list[Acquired] = []
        remaining = self._wanted - self._count
        throttled_max = -1
        for offset, state in batch.states_between(first_offset, last_offset):
            if not state.can_be_acquired:
                continue
            before = state.delivery_count
            if self._limit > 2 and before == self._limit - 1 and acquired:
                # The last delivery of a record is of this record alone.
                break
            if before >= self._throttled_from and throttled_max < 0:
                throttled_max = max(1, len(batch) >> (before - self._throttled_from + 1))
            self._acquire_state(state, offset, offset, is_planned=False)
            acquired.append(Acquired(offset, offset, state.delivery_count))
            count = len(acquired)
            if state.delivery_count == self._limit > 2 or count == throttled_max:
                break
            if self._is_record_limit and count == remaining:
                break
        for run in _runs(acquired):
            self._shares.locks.add(self._expires_ms, run.first_offset, run.last_offset)
            self._append(*run)
        return len(acquired)

    def _acquire_state(
        self, state: InFlightState, first_offset: int, last_offset: int, *, is_planned: bool = True
    ) -> None:
        state.acquire(self._member_id, self._expires_ms)
        if is_planned:
            self._shares.locks.add(self._expires_ms, first_offset, last_offset)

    def _append(self, first_offset: int, last_offset: int, delivery_count: int) -> None:
        found = Acquired(first_offset, last_offset, delivery_count)
        self._acquired.append(found)
        self._count += found.record_count

    # New records

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquires offsets that are not in flight, from `first_offset` up to `last_offset`."""
        shares, wanted = self._shares, self._wanted - self._count
        if not len(shares.batches):
            # An offset before the end offset is acknowledged or archived already, if its batch was fetched again.
            first_offset = max(first_offset, shares.end_offset)
        if wanted < last_offset - first_offset + 1:
            end_of_batch = self._last_offset_of_batch_with(first_offset + wanted - 1)
            last_offset = min(end_of_batch, last_offset) if shares.gap_start is not None else end_of_batch
        acquired = self._put_new(first_offset, last_offset, wanted)
        if shares.batches.first.first_offset == first_offset:
            shares.start_offset = first_offset
        shares.end_offset = max(shares.end_offset, last_offset)
        for found in acquired:
            self._append(*found)
        shares.move_gap_start(acquired[-1].last_offset + 1)

    def _put_new(self, first_offset: int, last_offset: int, wanted: int) -> list[Acquired]:
        shares = self._shares
        if self._is_record_limit and last_offset - first_offset + 1 > wanted:
            # The rest of the last batch is in flight too, and available.
            last_acquired = first_offset + wanted - 1
            batch = self._new_batch(first_offset, last_offset)
            batch.split_after(last_acquired)
            shares.batches.put(batch)
            shares.locks.add(self._expires_ms, first_offset, last_acquired)
            shares.must_search = True
            return [Acquired(first_offset, last_acquired, 1)]
        starts = [first_offset]
        if not self._is_record_limit and last_offset - first_offset + 1 > self._batch_size:
            for fetched in self._fetched:
                if fetched.base_offset > last_offset:
                    break
                if fetched.base_offset - starts[-1] >= self._batch_size:
                    starts.append(fetched.base_offset)
        ends = [start - 1 for start in starts[1:]] + [last_offset]
        for start, end in zip(starts, ends, strict=True):
            shares.batches.put(self._new_batch(start, end))
            shares.locks.add(self._expires_ms, start, end)
        return [Acquired(start, end, 1) for start, end in zip(starts, ends, strict=True)]

    def _new_batch(self, first_offset: int, last_offset: int) -> InFlightBatch:
        return InFlightBatch(first_offset, last_offset, InFlightState(ACQUIRED, 1, self._member_id, self._expires_ms))

    def _last_offset_of_batch_with(self, offset: int) -> int:
        """The last offset of the batch of the log that has an offset; the offset itself if none has it."""
        found = None
        for fetched in self._fetched:
            if fetched.base_offset > offset:
                break
            found = fetched
        return offset if found is None or offset > found.last_offset else found.last_offset


def _runs(acquired: Sequence[Acquired]) -> list[Acquired]:
    """The acquired offsets, with consecutive ranges of the same delivery count joined into one."""
    runs: list[Acquired] = []
    for found in acquired:
        last = runs[-1] if runs else None
        if (
            last is not None
            and found.first_offset == last.last_offset + 1
            and found.delivery_count == last.delivery_count
        ):
            runs[-1] = last._replace(last_offset=found.last_offset)
        else:
            runs.append(found)
    return runs
