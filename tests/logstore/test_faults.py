"""Any call to the file system may fail, once, a few times, or until there is space: no acknowledged record is lost.

One scenario of all operations of a log runs again and again, with another call failing each time. A failed operation
raises StorageError and is repeated. After every step the log has exactly the acknowledged records, and so it has after
a kill and after a clean stop.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker.logstore.compaction import begin_compaction, plan_cleaning
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.protocol.records.control import ControlRecordType
from tests.logstore.support import NOW_MS, Place, append, batch, marker, read_all
from tests.support.fake_filesystem import FakeFileSystem

OPTIONS = {
    "segment_bytes": 600,
    "index_interval_bytes": 60,
    "retention_ms": -1,
    "file_delete_delay_ms": 0,
    "min_cleanable_dirty_ratio": 0.0,
}
WRITES = frozenset({"append", "write_file", "make_directory"})
BURST = 4
FULL_FOR = 6


class Scenario:
    """A log and its acknowledged records: of each record its offset and the first bytes of its value."""

    # Whether a step that failed leaves the log as it was, or as the step should have left it.
    is_usable_after_failure = True

    def __init__(self, faults: range, methods: frozenset[str] | None = None) -> None:
        self.filesystem = FakeFileSystem()
        self.place = Place(self.filesystem, "/logs")
        self.filesystem.fault_clock = 0
        self.filesystem.faults = faults
        self.filesystem.fault_methods = methods
        self.reads_must_work = methods is not None
        self.expected: dict[int, bytes] = {}
        self.log: PartitionLog
        self.sequence = 0
        self.epochs: list[tuple[int, int]] = []
        # First offset of the transaction that was aborted.
        self.aborted = -1

    def until_done(self, step: Callable[[], object]) -> None:
        """Repeats a step until it succeeds, as a client does, or the broker in its next round."""
        for _ in range(40):
            try:
                step()
            except StorageError:
                if self.is_usable_after_failure:
                    self.check()
            else:
                self.check()
                return
        raise AssertionError("still failing, though the disk works again")

    def open(self, *, is_clean: bool = False, **more: int) -> None:
        def step() -> None:
            self.log = self.place.open(is_clean=is_clean, **OPTIONS, **more)  # type: ignore[arg-type]

        for _ in range(40):
            try:
                step()
                self.log.leader_epochs.latest_epoch  # noqa: B018  loads it
            except StorageError:
                continue
            self.check()
            return
        raise AssertionError("the log cannot be opened, though the disk works again")

    def check(self) -> None:
        """Asserts that the readable records from the log start on are the acknowledged ones."""
        faults, clock = self.filesystem.faults, self.filesystem.fault_clock
        if not self.reads_must_work:
            self.filesystem.faults = ()
        try:
            log = self.log
            start = log.log_start_offset
            found = {
                record.offset: bytes(record.value or b"")
                for one in read_all(log)
                if not one.is_control
                for record in one.records()
                if record.offset >= start
            }
            assert found == {offset: value for offset, value in self.expected.items() if offset >= start}
            # An epoch may be noted whose first batch could not be written: it begins where that batch will be.
            known = [entry for entry in log.leader_epochs.entries if entry[1] < log.log_end_offset]
            assert [epoch for epoch, _ in known] == [epoch for epoch, end in self.epoch_ends() if end > start]
            for number, (epoch, offset) in enumerate(known):
                assert (epoch, offset) in self.epochs or (number == 0 and offset == start)
        finally:
            self.filesystem.faults, self.filesystem.fault_clock = faults, clock

    def epoch_ends(self) -> list[tuple[int, int]]:
        """Each epoch and the offset after its last record."""
        ends = [offset for _, offset in self.epochs[1:]]
        return [(epoch, end) for (epoch, _), end in zip(self.epochs, [*ends, 1 << 62], strict=False)]

    def append(self, count: int, epoch: int) -> None:
        value_size = 10 + self.sequence % 7
        data = batch(
            count,
            key=b"k%d" % (self.sequence % 3),
            value_size=value_size,
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
        )

        def step() -> None:
            result = append(self.log, data, epoch=epoch)
            # The first answer that is no error: what failed before had left nothing behind.
            assert not result.is_duplicate
            if not self.epochs or self.epochs[-1][0] != epoch:
                self.epochs.append((epoch, result.first_offset))
            for number in range(count):
                self.expected[result.first_offset + number] = bytes([65 + number % 26]) * value_size

        self.until_done(step)
        self.sequence += count

    def abort_a_transaction(self, epoch: int) -> None:
        offset = self.log.log_end_offset
        data = batch(1, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)

        def begin() -> None:
            append(self.log, data, epoch=epoch)
            self.expected[offset] = b"A" * 10

        def end() -> None:
            self.log.append_as_leader(marker(ControlRecordType.ABORT, 9, 0), epoch, NOW_MS, AppendOrigin.COORDINATOR)

        self.until_done(begin)
        self.until_done(end)
        self.aborted = offset

    def run(self) -> None:
        self.open()
        for number in range(12):
            self.append(1 + number % 3, epoch=number // 5)
        self.until_done(self.log.flush)
        self.abort_a_transaction(2)
        for _ in range(4):
            self.append(2, epoch=2)
        self.until_done(lambda: self.log.advance_log_start(6))
        self.until_done(lambda: self.log.delete_old_segments(NOW_MS, self.log.log_end_offset))
        self.until_done(lambda: self.log.delete_due_files(NOW_MS))
        self.until_done(lambda: self.log.offset_for_timestamp(NOW_MS))
        self.until_done(self.log.flush)
        for _ in range(3):
            self.append(2, epoch=3)
        assert self.log.log_start_offset == 6

    def crash(self) -> None:
        """Ends the process as kill -9 does, and starts again."""
        producer = self.log.producers.producers[7]
        recovery_point, start = self.log.recovery_point, self.log.log_start_offset
        self.open(recovery_point=recovery_point, log_start_offset=start)
        assert self.log.producers.producers[7].last_sequence == producer.last_sequence == self.sequence - 1
        assert self.log.log_start_offset == start
        assert [one.first_offset for one in self.log.aborted_transactions(0, 1 << 60)] == [self.aborted]

    def stop(self) -> None:
        """Stops in order, repeated until the file system allows it, and starts again."""
        self.until_done(self.log.flush)
        self.until_done(self.log.close)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.open(is_clean=True, log_start_offset=start, end_offset=end)
        assert self.log.producers.producers[7].last_sequence == self.sequence - 1
        assert self.log.log_start_offset == start
        assert [one.first_offset for one in self.log.aborted_transactions(0, 1 << 60)] == [self.aborted]

    def whole(self) -> None:
        """The whole scenario, with both kinds of end and appends after each."""
        self.run()
        self.crash()
        for _ in range(3):
            self.append(2, epoch=4)
        self.stop()
        self.append(1, epoch=5)


class Compaction(Scenario):
    """A compacted log: the last record of each key stays, and only acknowledged records are there."""

    clean_to = 0

    def check(self) -> None:
        self.filesystem.faults, faults = (), self.filesystem.faults
        clock = self.filesystem.fault_clock
        found = {record.offset: bytes(record.value or b"") for one in read_all(self.log) for record in one.records()}
        assert found.items() <= self.expected.items()
        assert set(sorted(self.expected)[-3:]) <= set(found)
        assert self.log.log_end_offset == len(self.expected)
        self.filesystem.faults, self.filesystem.fault_clock = faults, clock

    def compact(self) -> None:
        """Runs the cleaner once, with its checkpoint in memory."""

        def step() -> None:
            end = self.log.log_end_offset
            plan = plan_cleaning(self.log, self.clean_to, end, NOW_MS)
            if plan.dirty_bytes == 0:
                return
            work = begin_compaction(self.log, plan, NOW_MS)
            try:
                work.run()
            finally:
                self.clean_to = work.finish(NOW_MS)

        self.until_done(step)

    def whole(self) -> None:
        self.open()
        for _ in range(30):
            self.append(1, epoch=0)
        self.compact()
        self.until_done(lambda: self.log.delete_due_files(NOW_MS))
        self.append(1, epoch=0)
        self.open()
        self.append(1, epoch=0)
        self.compact()
        self.until_done(lambda: self.log.delete_due_files(NOW_MS))
        assert self.log.size_bytes < 1500
        self.until_done(self.log.flush)
        self.until_done(self.log.close)
        self.open(is_clean=True)


class Truncation(Scenario):
    """A log whose end is truncated and written again, as happens to the metadata log and a follower's.

    A truncation that failed is repeated before the log is used.
    """

    is_usable_after_failure = False

    def whole(self) -> None:
        self.open()
        for number in range(14):
            self.append(1, epoch=number // 5)
        self.until_done(self.log.flush)
        for offset in (13, 4):

            def cut(offset: int = offset) -> None:
                self.log.truncate_to(offset, NOW_MS)
                self.expected = {at: value for at, value in self.expected.items() if at < offset}
                self.epochs = [entry for entry in self.epochs if entry[1] < offset]

            self.until_done(cut)
            assert self.log.log_end_offset == offset
            self.sequence = offset
            self.append(1, epoch=7 + offset)
            self.append(1, epoch=7 + offset)
        self.open()
        self.append(1, epoch=30)

        def begin_anew() -> None:
            self.log.truncate_fully_and_start_at(40, NOW_MS)
            self.expected, self.epochs = {}, []

        self.until_done(begin_anew)
        self.append(1, epoch=31)
        self.open()
        assert self.log.log_start_offset == 40


def calls(kind: type[Scenario], methods: frozenset[str] | None = None) -> int:
    """Number of calls to the file system in a scenario, each of which can fail."""
    scenario = kind(range(0), methods)
    scenario.whole()
    return scenario.filesystem.fault_clock


kinds = pytest.mark.parametrize("kind", [Scenario, Compaction, Truncation])


@kinds
@pytest.mark.parametrize("length", [1, BURST], ids=["once", "some times"])
def test_every_call_may_fail(kind: type[Scenario], length: int) -> None:
    count = calls(kind)
    assert count > 100
    for number in range(0, count, length):
        scenario = kind(range(number, number + length))
        try:
            scenario.whole()
        except BaseException as error:
            error.add_note(f"with call {number} failing")
            raise


@kinds
def test_a_full_disk_stops_writes_and_not_reads(kind: type[Scenario]) -> None:
    """From some write on there is no space, and later there is again."""
    for number in range(0, calls(kind, WRITES), 2):
        scenario = kind(range(number, number + FULL_FOR), WRITES)
        try:
            scenario.whole()
        except BaseException as error:
            error.add_note(f"with no space from write {number} on")
            raise
