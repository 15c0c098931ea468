"""Random sequences of operations on a log against a list of records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.logstore.errors import OffsetOutOfRange, StorageError, StorageFull
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.records.batch import iter_batches
from tests.logstore.support import NOW_MS, Place, append, batch, offsets
from tests.support.fake_filesystem import FakeFileSystem

OPTIONS: dict[str, Any] = {
    "segment_bytes": 700,
    "index_interval_bytes": 100,
    "retention_ms": 50,
    "file_delete_delay_ms": 0,
}

# Readers and truncations are mostly near the end.
PLACES = st.one_of(st.just(1.0), st.floats(0.8, 1), st.floats(0, 1))


class LogMachine(RuleBasedStateMachine):
    """The model: (base offset, count, timestamp) of each batch, log start and end, sequence of one producer."""

    def __init__(self) -> None:
        super().__init__()
        self.filesystem = FakeFileSystem()
        self.place = Place(self.filesystem, "/logs")
        self.log = self.place.open(**OPTIONS)
        self.batches: list[tuple[int, int, int]] = []
        self.start = 0
        self.end = 0
        self.sequence = -1
        self.next_read = 0
        self.now_ms = NOW_MS

    @initialize(limit=st.sampled_from([2, 100]))
    def few_descriptors(self, limit: int) -> None:
        self.log = self.place.open(limit=limit, **OPTIONS)

    def appended(self, count: int) -> None:
        self.batches.append((self.end, count, self.now_ms))
        self.end += count

    @rule(count=st.integers(1, 8), codec=st.sampled_from([0, 0, 4]), later=st.integers(0, 5))
    def append(self, count: int, codec: int, later: int) -> None:
        self.now_ms += later
        result = append(self.log, batch(count, codec=codec, timestamp=self.now_ms), now_ms=self.now_ms)
        assert (result.first_offset, result.last_offset) == (self.end, self.end + count - 1)
        self.appended(count)

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count: int) -> None:
        data = batch(count, timestamp=self.now_ms, producer_id=5, producer_epoch=0, base_sequence=self.sequence + 1)
        result = append(self.log, data, now_ms=self.now_ms)
        assert not result.is_duplicate
        self.appended(count)
        self.sequence += count
        again = append(self.log, data, now_ms=self.now_ms)
        assert again.is_duplicate
        assert again.first_offset == result.first_offset

    @rule(counts=st.lists(st.integers(1, 2), min_size=1, max_size=3))
    def append_several(self, counts: list[int]) -> None:
        data = b"".join(batch(count, timestamp=self.now_ms) for count in counts)
        self.log.append_as_leader(data, 0, self.now_ms, AppendOrigin.COORDINATOR)
        for count in counts:
            self.appended(count)

    @rule(count=st.integers(1, 8))
    def append_on_a_full_disk(self, count: int) -> None:
        self.filesystem.trim_idle()  # appends could still use the space that is allocated ahead
        self.filesystem.capacity_bytes = self.filesystem.used_bytes()
        with pytest.raises(StorageFull):
            append(self.log, batch(count, timestamp=self.now_ms), now_ms=self.now_ms)
        self.filesystem.capacity_bytes = None

    @rule(fraction=PLACES, size_max=st.integers(1, 900), bound=PLACES, at_least_one=st.booleans())
    def read(self, fraction: float, size_max: int, bound: float, at_least_one: bool) -> None:
        offset = self.start + int(fraction * (self.end - self.start))
        self.read_at(offset, size_max, bound, at_least_one)

    @rule(size_max=st.integers(1, 900), bound=st.one_of(st.just(1.0), PLACES), at_least_one=st.booleans())
    def read_on(self, size_max: int, bound: float, at_least_one: bool) -> None:
        """Reads from the end of the last read on, as a consumer does."""
        self.read_at(min(max(self.next_read, self.start), self.end), size_max, bound, at_least_one)

    def read_at(self, offset: int, size_max: int, bound: float, at_least_one: bool) -> None:
        bound_offset = self.start + int(bound * (self.end - self.start))
        result = self.log.read(offset, size_max, bound_offset, at_least_one=at_least_one)
        data = b"" if result.range is None else result.range.read()
        if result.range is not None:
            result.range.release()
        expected = [b for b in self.batches if b[0] + b[1] > offset and b[0] + b[1] <= bound_offset]
        found = [(one.base_offset, one.record_count) for one in iter_batches(data)]
        assert found == [b[:2] for b in expected][: len(found)]
        if found:
            self.next_read = sum(found[-1])
        assert len(data) <= size_max or (at_least_one and len(found) == 1)
        if expected and at_least_one and offset < bound_offset:
            assert found

    @rule(distance=st.integers(1, 5))
    def read_out_of_range(self, distance: int) -> None:
        for offset in (self.start - distance, self.end + distance):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, self.end, at_least_one=True)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        self.start += int(fraction * (self.end - self.start))
        self.log.advance_log_start(self.start)

    @rule(later=st.integers(0, 100))
    def retention(self, later: int) -> None:
        self.now_ms += later
        self.log.delete_old_segments(self.now_ms, self.end)
        self.log.delete_due_files(self.now_ms)
        start = self.log.log_start_offset
        gone = [b for b in self.batches if b[0] + b[1] <= start and b[0] >= self.start]
        assert all(self.now_ms - when > 50 for _, _, when in gone)
        self.start = max(self.start, start)

    @rule(fraction=PLACES)
    def truncate(self, fraction: float) -> None:
        offset = self.start + int(fraction * (self.end - self.start))
        self.log.truncate_to(offset, self.now_ms)
        self.batches = [b for b in self.batches if b[0] + b[1] <= offset]
        self.end = self.log.log_end_offset
        assert self.end <= max(offset, self.start)
        assert self.end == max([b[0] + b[1] for b in self.batches], default=self.end)
        self.start = min(self.start, self.end)
        entry = self.log.producers.producers.get(5)
        self.sequence = entry.last_sequence if entry is not None else -1

    @rule(is_clean=st.booleans(), limit=st.sampled_from([2, 100]))
    def restart(self, is_clean: bool, limit: int) -> None:
        if is_clean:
            self.log.flush()
            self.log.close()
        else:
            self.log.close_files()
        self.log = self.place.open(
            is_clean=is_clean,
            limit=limit,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
            end_offset=self.end if is_clean else None,
            now_ms=self.now_ms,
            **OPTIONS,
        )

    @precondition(lambda self: self.end > self.start)
    @rule(size=st.integers(1, 40))
    def torn_tail(self, size: int) -> None:
        """kill -9 while bytes were written to the file: they are gone, as if never sent."""
        name = f"{self.log.segment_base_offsets[-1]:020d}.log"
        self.log.close_files()
        self.place.overwrite(name, (self.filesystem.read_file(f"/logs/t-0/{name}") or b"") + batch(9)[:size])
        point = self.log.recovery_point
        self.log = self.place.open(recovery_point=point, log_start_offset=self.start, now_ms=self.now_ms, **OPTIONS)

    @rule()
    def damaged_read(self) -> None:
        """An I/O error is reported and has no other effect."""
        self.filesystem.fail_next["append"] = StorageError("x", "Input/output error")
        with pytest.raises(StorageError):
            append(self.log, batch(1, timestamp=self.now_ms), now_ms=self.now_ms)

    @invariant()
    def agrees(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        entry = self.log.producers.producers.get(5)
        if entry is not None and entry.batches:
            assert entry.last_sequence == self.sequence
        assert [o for o in offsets(self.log) if o >= self.start] == [
            o for base, count, _ in self.batches for o in range(base, base + count) if o >= self.start
        ]


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLog = LogMachine.TestCase
