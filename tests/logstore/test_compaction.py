"""Compaction by key: remaining records, tombstones and their horizon, producers, transactions, crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.logstore import compaction
from pykbroker.logstore.aborted_transactions import AbortedTransactions
from pykbroker.logstore.blocking_step import BlockingStep
from pykbroker.logstore.compaction import begin_compaction, plan_cleaning
from pykbroker.logstore.compaction_filter import BatchFilter, TransactionTracker
from pykbroker.logstore.errors import CorruptSegment, StorageError, StorageFull
from pykbroker.logstore.log_cleaner import LogCleaner
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.protocol.records.batch import RecordBatch, build_batch
from pykbroker.protocol.records.control import ControlRecordType, control_record_key
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import PIECE, finished
from tests.logstore.support import NOW_MS, Place, append, marker, offsets, read_all
from tests.support.compaction import compact
from tests.support.fake_filesystem import FakeFileSystem

OPTIONS: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 300,
    "delete_retention_ms": 1000,
    "file_delete_delay_ms": 0,
}


def put(log: PartitionLog, *pairs: tuple[str, str | None], time: int = NOW_MS, **more: Any) -> int:
    """Append one batch of (key, value) records; returns its base offset."""
    records = [Record(0, time, k.encode(), None if v is None else v.encode()) for k, v in pairs]
    return append(log, build_batch(records, **more)).first_offset


def state(log: PartitionLog) -> dict[str, str]:
    """Latest value of each key, as a consumer of the whole log finds it."""
    found: dict[str, str] = {}
    for batch in log.iter_batches():
        if not batch.is_control:
            for record in batch.records():
                assert record.key is not None
                if record.value is None:
                    found.pop(record.key.decode(), None)
                else:
                    found[record.key.decode()] = record.value.decode()
    return found


def run_step(step: BlockingStep | None) -> None:
    if step is not None:
        step.run()


def write_checkpoint(cleaner: LogCleaner) -> None:
    for step in cleaner.write_checkpoint():
        run_step(step)


def clean(log: PartitionLog, checkpoint: int | None = None, now_ms: int = NOW_MS) -> int:
    return compact(log, checkpoint, log.log_end_offset, now_ms)


def test_the_last_record_of_every_key_stays_at_its_offset(place: Place) -> None:
    """P-161."""
    log = place.open(**OPTIONS)
    for number in range(40):
        put(log, (f"k{number % 4}", f"v{number}"), codec=number % 5)
    before, size = state(log), log.size_bytes
    active = log.segment_base_offsets[-1]
    end = clean(log)
    assert end == active, "the active segment is never cleaned"
    assert state(log) == before
    assert log.size_bytes < size / 2
    kept = offsets(log)
    assert [offset for offset in kept if offset < active] == list(range(active - 4, active))
    assert log.log_end_offset == 40
    again = place.open(is_clean=True, **OPTIONS)
    assert state(again) == before
    assert offsets(place.open(**OPTIONS)) == kept, "and recovery accepts the gaps"


def test_reads_pass_over_gaps(place: Place) -> None:
    log = place.open(**OPTIONS)
    for number in range(30):
        put(log, ("k", f"v{number}"))
    clean(log)
    kept = offsets(log)
    result = log.read(0, 1000, 30, at_least_one=True)
    assert result.range is not None
    assert result.first_offset == kept[0] > 0
    result.range.release()
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == kept[0]


def test_part_of_a_batch_keeps_its_offset_range(place: Place) -> None:
    """P-57: the batch still has its producer's sequences."""
    log = place.open(**OPTIONS)
    put(log, ("a", "1"), ("b", "1"), ("c", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), ("c", "2"), producer_id=7, producer_epoch=0, base_sequence=3)
    log.roll(NOW_MS)
    clean(log)
    first, second = log.iter_batches()
    assert [(r.offset, r.key) for r in first.records()] == [(1, b"b")]
    assert (first.base_offset, first.last_offset, first.base_sequence, first.record_count) == (0, 2, 0, 1)
    assert first.verify_crc()
    assert second.record_count == 2
    assert place.open(**OPTIONS).producers.producers[7].last_sequence == 4


def test_an_empty_batch_stays_for_its_producer(place: Place) -> None:
    """P-57, P-163."""
    log = place.open(**OPTIONS)
    put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(log, ("a", "3"))
    put(log, ("a", "4"))
    log.roll(NOW_MS)
    put(log, ("a", "5"))
    log.roll(NOW_MS)
    compact(log, None, 5, NOW_MS)
    kept = [(b.base_offset, b.record_count) for b in log.iter_batches()]
    assert kept == [(1, 0), (4, 1)]
    again = place.open(**OPTIONS)
    assert again.producers.producers[7].last_sequence == 1
    again.producers.producers.pop(7)
    clean(again, 0)
    assert [b.base_offset for b in again.iter_batches()] == [4]


def test_the_last_batch_of_what_could_be_cleaned_stays_without_records(place: Place) -> None:
    """P-161: it ends where the next segment begins, at the first uncleanable offset; an earlier one is removed."""
    log = place.open(**OPTIONS | {"segment_bytes": 100})
    for key in ("a", "b"):
        put(log, (key, None))
        log.roll(NOW_MS)
    put(log, ("c", "1"))
    log.roll(NOW_MS)
    put(log, ("z", "1"))
    compact(log, None, 3, NOW_MS)
    # The last stable offset is in the third segment, so that the second one is the last that can be cleaned.
    compact(log, 0, 2, NOW_MS + 1000)
    kept = [(b.base_offset, b.record_count) for b in log.iter_batches()]
    assert kept == [(1, 0), (2, 1), (3, 1)]
    assert not next(log.iter_batches()).has_delete_horizon
    compact(log, 0, 3, NOW_MS + 1000)
    assert [b.base_offset for b in log.iter_batches()] == [2, 3]


def test_tombstones_stay_until_their_horizon(place: Place) -> None:
    """P-162: the first cleaning of a tombstone writes the horizon into its batch."""
    log = place.open(**OPTIONS)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    log.roll(NOW_MS)
    put(log, ("z", "1"))
    end = clean(log, now_ms=NOW_MS + 10)
    _, tombstone, _ = log.iter_batches()
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW_MS + 10 + 1000
    assert [(r.offset, r.timestamp, r.value) for r in tombstone.records()] == [(2, NOW_MS, None)]
    for now_ms, is_there in ((NOW_MS + 1009, True), (NOW_MS + 1010, False)):
        log.roll(NOW_MS)
        put(log, ("z", "1"))
        end = clean(log, end, now_ms=now_ms)
        assert offsets(log)[0] == 1
        assert (2 in offsets(log)) == is_there, now_ms
    assert state(log) == {"b": "1", "z": "1"}


def transaction(log: PartitionLog, kind: ControlRecordType, *pairs: tuple[str, str], sequence: int = 0) -> int:
    put(log, *pairs, producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    return log.append_as_leader(marker(kind, 9, 0), 0, NOW_MS, AppendOrigin.COORDINATOR).first_offset


def test_aborted_records_go_and_do_not_hide_committed_ones(place: Place) -> None:
    """P-163."""
    log = place.open(**OPTIONS)
    put(log, ("a", "committed"))
    transaction(log, ControlRecordType.ABORT, ("a", "aborted"))
    put(log, ("b", "1"))
    log.roll(NOW_MS)
    clean(log)
    assert state(log) == {"a": "committed", "b": "1"}
    assert [b.base_offset for b in log.iter_batches() if b.is_control] == [2], "the marker holds the producer's epoch"
    log.producers.producers.clear()
    put(log, ("c", "1"))
    log.roll(NOW_MS)
    clean(log, 0, now_ms=NOW_MS + 5)
    assert log.aborted_transactions(0, 3), "the cleaning that removes the last data keeps the transaction"
    assert not any(b.has_delete_horizon for b in log.iter_batches())
    clean(log, 0, now_ms=NOW_MS + 6)
    assert not log.aborted_transactions(0, 3)
    assert [b.base_timestamp for b in log.iter_batches() if b.is_control] == [NOW_MS + 1006]
    clean(log, 0, now_ms=NOW_MS + 1006)
    assert not [b for b in log.iter_batches() if b.is_control], "a marker of nothing goes after the horizon"


def test_an_aborted_transaction_without_data_does_not_hide_the_producers_next_one(place: Place) -> None:
    """P-163: the cleaning that removed its data has left it in the index, in Apache Kafka's files too."""
    log = place.open(**OPTIONS)
    transaction(log, ControlRecordType.ABORT, ("a", "aborted"))
    transaction(log, ControlRecordType.COMMIT, ("a", "committed"), sequence=1)
    log.roll(NOW_MS)
    for later in range(3):
        clean(log, 0, now_ms=NOW_MS + later)
        assert state(log) == {"a": "committed"}
        assert bool(log.aborted_transactions(0, 4)) == (later == 0)


def test_an_aborted_transaction_in_the_clean_part_does_not_hide_what_the_producer_writes_later(place: Place) -> None:
    """P-163: a committed tombstone would have no effect, and the value before it would come back."""
    log = place.open(**OPTIONS)
    put(log, ("a", "value"))
    transaction(log, ControlRecordType.ABORT, ("b", "aborted"))
    log.roll(NOW_MS)
    checkpoint = clean(log)
    assert log.aborted_transactions(0, 3)
    put(log, ("a", None), producer_id=9, producer_epoch=0, base_sequence=1, is_transactional=True)
    log.append_as_leader(marker(ControlRecordType.COMMIT, 9, 0), 0, NOW_MS, AppendOrigin.COORDINATOR)
    log.roll(NOW_MS)
    checkpoint = clean(log, checkpoint)
    assert 0 not in offsets(log)
    put(log, ("z", "1"))
    log.roll(NOW_MS)
    clean(log, checkpoint, now_ms=NOW_MS + 5000)
    assert state(log) == {"z": "1"}


def test_markers_stay_while_their_data_does(place: Place) -> None:
    """P-163."""
    log = place.open(**OPTIONS)
    marker_offset = transaction(log, ControlRecordType.COMMIT, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"))
    log.roll(NOW_MS)
    log.producers.producers.clear()
    for later in (0, 100_000):
        clean(log, 0, now_ms=NOW_MS + later)
    assert marker_offset in offsets(log)
    put(log, ("b", "2"))
    log.roll(NOW_MS)
    for later in (0, 1, 100_000):
        assert marker_offset in offsets(log)
        clean(log, 0, now_ms=NOW_MS + later)
    assert marker_offset not in offsets(log)


def test_nothing_undecided_is_cleaned(place: Place) -> None:
    """Nothing above the last stable offset, in the active segment, or younger than min.compaction.lag.ms."""
    log = place.open(**OPTIONS | {"min_compaction_lag_ms": 1000})
    for number in range(20):
        put(log, ("a", f"{number}"))
    bases = log.segment_base_offsets
    assert plan_cleaning(log, None, bases[2] + 1, NOW_MS + 5000).first_uncleanable_offset == bases[2] + 1
    assert plan_cleaning(log, None, 20, NOW_MS + 5000).first_uncleanable_offset == bases[-1]
    assert plan_cleaning(log, None, 20, NOW_MS + 999).dirty_bytes == 0
    assert compact(log, None, 20, NOW_MS + 999) == 0
    assert compact(log, None, bases[2] + 1, NOW_MS + 5000) == bases[2]


def test_records_without_a_time_are_as_old_as_their_file(memory: Place) -> None:
    """P-161: for min.compaction.lag.ms, as for retention."""
    log = memory.open(**OPTIONS | {"min_compaction_lag_ms": 1000})
    for number in range(20):
        put(log, ("a", f"{number}"), time=-1)
    written_ms = memory.filesystem.modified_ms(f"{log.path}/{0:020d}.log")
    assert plan_cleaning(log, None, 20, written_ms + 999).dirty_bytes == 0
    assert plan_cleaning(log, None, 20, written_ms + 1000).dirty_bytes > 0


def test_what_waits_too_long_may_be_above_what_can_be_cleaned(place: Place) -> None:
    """P-161: as LogCleanerManager.maxCompactionDelay, which covers all segments but the active one."""
    log = place.open(**OPTIONS | {"min_compaction_lag_ms": 1000, "max_compaction_lag_ms": 50_000})
    for time in (NOW_MS - 2000, NOW_MS, NOW_MS - 60_000):
        put(log, ("a", "1"), time=time)
        log.roll(NOW_MS)
    plan = plan_cleaning(log, 0, 3, NOW_MS)
    assert plan.first_uncleanable_offset == 1
    assert plan.is_overdue


def test_when_it_is_worth_doing(place: Place) -> None:
    """P-161: by the ratio of dirty bytes, or when a record waits longer than max.compaction.lag.ms."""
    log = place.open(**OPTIONS)
    for number in range(20):
        put(log, ("a", f"{number}"))
    plan = plan_cleaning(log, None, 20, NOW_MS)
    assert plan.dirty_ratio == 1
    assert plan.is_due(log.config)
    checkpoint = clean(log)
    assert not plan_cleaning(log, checkpoint, 20, NOW_MS).is_due(log.config)
    for number in range(4):
        put(log, (f"a{number}", "x" * 200))
    plan = plan_cleaning(log, checkpoint, 24, NOW_MS)
    assert 0 < plan.dirty_ratio <= 1
    log.config = place.open(**OPTIONS | {"min_cleanable_dirty_ratio": 1.0}).config
    assert not plan.is_due(log.config)
    log.config = place.open(**OPTIONS | {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 10}).config
    assert plan_cleaning(log, checkpoint, 24, NOW_MS + 11).is_due(log.config)
    assert plan_cleaning(log, 10**6, 24, NOW_MS).first_dirty_offset == 0, (
        "a checkpoint beyond the end counts for nothing"
    )


def test_a_segment_that_is_dirty_in_part_counts_twice(place: Place) -> None:
    """P-161: as LogToClean; with the default ratio of 0.5 a single such segment is not cleaned."""
    log = place.open(**OPTIONS | {"segment_bytes": 10_000, "min_cleanable_dirty_ratio": 0.5})
    for number in range(4):
        put(log, ("a", f"{number}"))
    log.roll(NOW_MS)
    assert plan_cleaning(log, None, 4, NOW_MS).dirty_ratio == 1
    log.advance_log_start(2)
    plan = plan_cleaning(log, None, 4, NOW_MS)
    assert plan.clean_bytes == plan.dirty_bytes > 0
    assert not plan.is_due(log.config)
    put(log, ("b", "1"))
    log.roll(NOW_MS)
    assert plan_cleaning(log, None, 5, NOW_MS).is_due(log.config)


def test_small_segments_are_merged(place: Place) -> None:
    log = place.open(**OPTIONS)
    for number in range(60):
        put(log, ("k", f"{number}"))
    count = len(log.segment_base_offsets)
    end = clean(log)
    for _ in range(6):
        end = clean(log, end)
        put(log, ("k", "again"))
        log.roll(NOW_MS)
    assert len(log.segment_base_offsets) < count / 2
    log.delete_due_files(NOW_MS)
    names = [name for name in place.names() if name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in log.segment_base_offsets]


@pytest.mark.parametrize("count", [15, 16, 17, 18, 60])
def test_more_segments_become_one_than_files_are_kept_open(place: Place, count: int) -> None:
    """P-161: the new segment's file stays open; its descriptor would be that of the next file that is opened."""
    log = place.open(**OPTIONS | {"segment_bytes": 1 << 20})
    for number in range(count):
        put(log, (f"k{number}", "x" * number), (f"k{number}", "end"))
        log.roll(NOW_MS)
    before, size = state(log), log.size_bytes
    clean(log)
    assert log.segment_base_offsets == (0, 2 * count)
    assert state(log) == before
    assert len(offsets(log)) == count
    assert log.size_bytes < size
    assert state(place.open(**OPTIONS | {"segment_bytes": 1 << 20})) == before


def test_a_log_that_changed_meanwhile_is_left_alone(place: Place) -> None:
    log = place.open(**OPTIONS)
    for number in range(20):
        put(log, ("k", f"{number}"))
    plan = plan_cleaning(log, None, 20, NOW_MS)
    work = begin_compaction(log, plan, NOW_MS)
    work.run()
    log.truncate_to(3)
    assert work.finish(NOW_MS) == 0
    assert offsets(log) == [0, 1, 2]
    assert not [name for name in place.names() if name.endswith((".cleaned", ".swap"))]


def test_a_full_disk_leaves_the_log_as_it_was(memory: Place) -> None:
    log = memory.open(**OPTIONS)
    for number in range(40):
        put(log, (f"k{number % 7}", f"{number}"))
    filesystem = memory.filesystem
    assert isinstance(filesystem, FakeFileSystem)
    before = offsets(log)
    for spare in range(0, 400, 40):
        filesystem.capacity_bytes = filesystem.used_bytes() + spare
        with pytest.raises(StorageFull):
            clean(log)
        filesystem.capacity_bytes = None
        assert offsets(log) == before
        log = memory.open(**OPTIONS)
        assert offsets(log) == before
        assert not [name for name in memory.names() if name.endswith(".cleaned")]


def test_files_of_a_failed_cleaning_that_could_not_be_removed_are_not_continued(memory: Place) -> None:
    """The next cleaning keeps fewer records, so that its file is shorter."""
    log = memory.open(**{**OPTIONS, "segment_bytes": 3000})
    for number in range(40):
        put(log, (f"k{number}", f"{number}"))
    log.roll(NOW_MS)
    filesystem = memory.filesystem
    assert isinstance(filesystem, FakeFileSystem)
    filesystem.fail_next |= {"sync": StorageError("file", "no sync"), "remove": StorageError("file", "no removal")}
    with pytest.raises(StorageError, match="no removal"):
        clean(log)
    [left] = [name for name in memory.names() if name.endswith(".log.cleaned")]
    size = len(memory.content(left))
    for number in range(40):
        put(log, (f"k{number % 4}" if number < 36 else f"k{number}", "later"))
    log.roll(NOW_MS)
    before = state(log)
    clean(log)
    assert not [name for name in memory.names() if name.endswith(".cleaned")]
    assert len(memory.content(left.removesuffix(".cleaned"))) < size
    assert state(memory.open(**OPTIONS)) == before


class Crash(Exception):
    """The process ends here."""


def test_a_crash_at_any_step_leaves_the_old_or_the_new_segments() -> None:
    """In every mixture of `.cleaned`, `.swap` and `.deleted` files that a kill -9 between two renames can leave."""
    steps = 0
    for step in range(1, 200):
        filesystem = FakeFileSystem()
        place = Place(filesystem, "/logs")
        log = place.open(**OPTIONS)
        for number in range(40):
            put(log, (f"k{number % 5}", f"{number}"), time=NOW_MS + number)
        before = state(log)
        left = [step]
        original = filesystem._called

        def counted(method: str, left: list[int] = left, original: Any = original) -> None:
            if method in ("rename", "append", "truncate", "remove", "write_file"):
                left[0] -= 1
                if left[0] == 0:
                    raise Crash
            original(method)

        filesystem._called = counted  # type: ignore[method-assign]
        try:
            clean(log)
        except Crash:
            steps = step
        filesystem._called = original  # type: ignore[method-assign]
        log = place.open(**OPTIONS)
        assert state(log) == before
        assert log.log_end_offset == 40
        there = offsets(log)
        for number in range(40):
            found = log.offset_for_timestamp(NOW_MS + number)
            assert found is not None
            assert found.offset == min(offset for offset in there if offset >= number), "indexes fit their segments"
        assert not [name for name in place.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        clean(log)
        assert state(log) == before
        if steps < step:
            break
    assert 20 < steps < 199


def test_an_io_error_while_cleaning_is_reported(memory: Place) -> None:
    log = memory.open(**OPTIONS)
    for number in range(20):
        put(log, ("k", f"{number}"))
    memory.filesystem.fail_next["sync"] = StorageError("x", "Input/output error")  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        clean(log)
    assert len(offsets(log)) == 20


@settings(max_examples=80, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["1", "2", None])), min_size=1, max_size=4),
        min_size=1,
        max_size=30,
    ),
    cleanings=st.lists(st.integers(0, 3000), max_size=4),
    every=st.integers(1, 10),
)
def test_the_final_state_is_never_changed(
    batches: list[list[tuple[str, str | None]]], cleanings: list[int], every: int
) -> None:
    """P-161, P-162: for any records and any cleanings a reader gets the same final state."""
    log = Place(FakeFileSystem(), "/logs").open(**OPTIONS)
    expected: dict[str, str] = {}
    checkpoint: int | None = None
    now_ms = NOW_MS
    times = iter(cleanings)
    for number, pairs in enumerate(batches):
        put(log, *pairs)
        for key, value in pairs:
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        if number % every == 0:
            now_ms += next(times, 0)
            checkpoint = clean(log, checkpoint, now_ms)
        assert state(log) == expected


def test_the_cleaner_takes_the_dirtiest_log_and_notes_how_far_it_came(place: Place) -> None:
    """One cleaning at a time, by dirty ratio, of compacted logs that were used; the checkpoint is Kafka's file."""
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    configs = {"a": compacted, "b": compacted, "d": LogConfig(segment_bytes=300), "idle": compacted}
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    directory.load_logs(configs.__getitem__, NOW_MS)
    for topic, config in configs.items():
        log = directory.create_log(topic, 0, None, config, NOW_MS)
        for number in range(20 if topic != "idle" else 0):
            put(log, ("k", f"{number}"))

    def stable_offset(topic: str, partition: int) -> int | None:
        return 20

    cleaner = LogCleaner(directory)
    done = []
    while (work := finished(cleaner.begin(NOW_MS, stable_offset))) is not None:
        work.run()
        done.append((work.topic_partition, cleaner.finish(work, NOW_MS)))
        write_checkpoint(cleaner)
    assert sorted(topic for (topic, _), _ in done) == ["a", "b"]
    cleaned = directory.get("a", 0)
    assert cleaned is not None
    last = cleaned.segment_base_offsets[-1]
    assert {end for _, end in done} == {last}
    lines = (place.filesystem.read_file(f"{place.folder}/data/cleaner-offset-checkpoint") or b"").splitlines()
    assert sorted(lines[2:]) == [b"a 0 %d" % last, b"b 0 %d" % last]
    assert finished(LogCleaner(directory).begin(NOW_MS, stable_offset)) is None, (
        "a new cleaner knows what the last one did"
    )
    assert finished(LogCleaner(directory).begin(NOW_MS, lambda topic, partition: None)) is None
    directory.close()


def compacted_logs(place: Place, count: int) -> LogDirectory:
    """A data directory with compacted logs t0, t1, ... of two full segments each, and 12 records."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    for number in range(count):
        log = directory.create_log(f"t{number}", 0, None, config, NOW_MS)
        for value in range(12):
            put(log, ("k", f"{value}"))
    return directory


def test_very_many_logs_are_looked_at_in_steps(place: Place) -> None:
    directory = compacted_logs(place, 3 * PIECE)
    steps = LogCleaner(directory).begin(NOW_MS, lambda topic, partition: 12)
    assert sum(1 for _ in steps) == 3
    directory.close()


def test_a_log_that_is_deleted_before_the_last_step_is_not_cleaned(place: Place) -> None:
    directory = compacted_logs(place, PIECE)
    asked = []

    def stable_offset(topic: str, partition: int) -> int:
        asked.append(topic)
        return 12

    cleaner = LogCleaner(directory)
    steps = cleaner.begin(NOW_MS, stable_offset)
    next(steps)
    assert asked == [f"t{number}" for number in range(PIECE)]
    directory.delete_log("t0", 0, NOW_MS)  # the first of equally dirty ones
    assert finished(steps) is None
    work = finished(cleaner.begin(NOW_MS, stable_offset))
    assert work is not None
    assert work.topic_partition == ("t1", 0)
    work.run()
    cleaner.finish(work, NOW_MS)
    directory.close()


def test_a_log_that_is_truncated_before_the_last_step_is_planned_again(place: Place) -> None:
    """Records that the truncation has removed are not in the segments that are cleaned."""
    directory = compacted_logs(place, PIECE)
    cleaner = LogCleaner(directory)
    steps = cleaner.begin(NOW_MS, lambda topic, partition: 12)
    next(steps)
    log = directory.get("t0", 0)
    assert log is not None
    log.truncate_to(1)
    for value in range(12):
        put(log, ("k", f"again {value}"))
    work = finished(steps)
    assert work is not None
    assert work.topic_partition == ("t0", 0)
    work.run()
    assert cleaner.finish(work, NOW_MS) == log.segment_base_offsets[-1]
    assert [record.value for batch in read_all(log) for record in batch.records()][-1] == b"again 11"
    directory.close()


def test_a_log_made_anew_is_cleaned_from_its_beginning(place: Place) -> None:
    """The cleaner offset of a deleted log does not apply to a new log of the same name."""
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    cleaner = LogCleaner(directory)
    for _ in range(2):
        log = directory.create_log("a", 0, None, compacted, NOW_MS)
        for number in range(20):
            put(log, ("k", f"{number}"))
        work = finished(cleaner.begin(NOW_MS, lambda topic, partition: 20))
        assert work is not None
        work.run()
        assert cleaner.finish(work, NOW_MS) == log.segment_base_offsets[-1]
        write_checkpoint(cleaner)
        assert offsets(log) == list(range(log.segment_base_offsets[-1] - 1, 20)), "of the clean part the last is left"
        assert directory.cleaner_offsets() == {("a", 0): log.segment_base_offsets[-1]}
        directory.delete_log("a", 0, NOW_MS)
    directory.create_log("a", 0, None, compacted, NOW_MS)
    assert directory.cleaner_offsets() == {}
    directory.close()


class CleanedLog:
    """A compacted log in a data directory, with offsets 0 to 20; its cleaner has cleaned it up to `clean_to`.

    Of key "k" the last value is left, "end", and of "t" its only one.
    """

    def __init__(self, place: Place) -> None:
        config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300, delete_retention_ms=1000)
        self.directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
        self.log = self.directory.create_log("a", 0, None, config, NOW_MS)
        self.cleaner = LogCleaner(self.directory)
        put(self.log, ("t", "value"))
        for number in range(19):
            put(self.log, ("k", f"{number}"))
        put(self.log, ("k", "end"))
        self.clean_to = self.clean()

    def clean(self, now_ms: int = NOW_MS) -> int:
        work = finished(self.cleaner.begin(now_ms, lambda topic, partition: self.log.log_end_offset))
        assert work is not None
        work.run()
        end_offset = self.cleaner.finish(work, now_ms)
        write_checkpoint(self.cleaner)
        return end_offset


@pytest.mark.parametrize("has_restarted_cleaner", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
def test_what_comes_after_a_truncation_is_not_clean(memory: Place, is_full: bool, has_restarted_cleaner: bool) -> None:
    """P-161: a tombstone below the former checkpoint hides the value before it, and must be removed together with it.

    Kafka truncates the cleaner's checkpoint (LogCleanerManager.maybeTruncateCheckpoint).
    """
    one = CleanedLog(memory)
    log = one.log
    if is_full:
        log.truncate_fully_and_start_at(1, NOW_MS)
        put(log, ("t", "value"))
    else:
        log.truncate_to(1, NOW_MS)
    assert log.log_end_offset < one.clean_to
    assert one.directory.cleaner_offsets()["a", 0] <= log.log_end_offset
    if has_restarted_cleaner:
        one.cleaner = LogCleaner(one.directory)
    put(log, ("t", None))
    for number in range(40):
        put(log, (f"k{number % 2}", f"{number}"))
    assert log.segment_base_offsets[-1] > one.clean_to
    assert one.clean() == log.segment_base_offsets[-1]
    assert "t" not in state(log)
    for number in range(40):
        put(log, (f"k{number % 2}", f"{number}"))
    one.clean(NOW_MS + 5000)
    assert "t" not in state(log), "the value is not back"
    one.directory.close()


def test_a_truncation_while_a_log_is_cleaned(memory: Place) -> None:
    """P-161: above the truncation nothing counts as clean."""
    one = CleanedLog(memory)
    for number in range(40):
        put(one.log, (f"k{number % 2}", f"{number}"))
    work = finished(one.cleaner.begin(NOW_MS, lambda topic, partition: one.log.log_end_offset))
    assert work is not None
    work.run()
    one.log.truncate_to(one.clean_to - 2, NOW_MS)
    assert one.cleaner.finish(work, NOW_MS) <= one.log.log_end_offset
    write_checkpoint(one.cleaner)
    assert one.directory.cleaner_offsets()["a", 0] <= one.log.log_end_offset


def test_a_checkpoint_that_cannot_be_written_hinders_the_truncation(memory: Place) -> None:
    """P-161."""
    one = CleanedLog(memory)

    def cannot(log: PartitionLog, offset: int) -> None:
        raise StorageError("cleaner-offset-checkpoint", "no")

    one.log.on_clean_part_cut = cannot
    with pytest.raises(StorageError):
        one.log.truncate_to(5, NOW_MS)
    assert one.log.log_end_offset == 21
    assert one.log.truncate_to(20, NOW_MS), "nothing of the active segment is clean"


def test_the_checkpoint_waits_if_a_log_is_removed_while_it_is_written(place: Place) -> None:
    """Else the offset of the removed log would count for a new log of its name."""
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    cleaner = LogCleaner(directory)
    for topic in ("a", "b"):
        log = directory.create_log(topic, 0, None, compacted, NOW_MS)
        for number in range(20):
            put(log, ("k", f"{number}"))
        work = finished(cleaner.begin(NOW_MS, lambda topic, partition: 20))
        assert work is not None
        work.run()
        cleaner.finish(work, NOW_MS)
    steps = cleaner.write_checkpoint()
    run_step(next(steps))
    directory.delete_log("a", 0, NOW_MS)
    directory.create_log("a", 0, None, compacted, NOW_MS)
    assert list(steps) == []
    assert directory.cleaner_offsets() == {}
    write_checkpoint(cleaner)
    assert list(directory.cleaner_offsets()) == [("b", 0)]
    directory.close()


def test_compacted_logs_roll_in_time_for_the_cleaner(place: Place) -> None:
    """P-165: max.compaction.lag.ms also limits the age of the active segment."""
    log = place.open(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000)
    for later in (0, 1000, 1001):
        append(log, build_batch([Record(0, NOW_MS + later, b"k", b"v")]), now_ms=NOW_MS + later)
    assert log.segment_base_offsets == (0, 2)


def test_a_log_that_cannot_be_read_is_reported_once_and_passed_over(place: Place) -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    log = directory.create_log("a", 0, None, compacted, NOW_MS)
    junk = bytearray(build_batch([Record(0, NOW_MS, b"k", b"v" * 40)]))
    junk[61] = 0x7F
    for _ in range(10):
        log.append_as_leader(junk, 0, NOW_MS, AppendOrigin.COORDINATOR)
    cleaner = LogCleaner(directory)
    work = finished(cleaner.begin(NOW_MS, lambda topic, partition: 10))
    assert work is not None
    with pytest.raises(CorruptSegment, match=rf"{0:020d}\.log"):
        work.run()
    assert cleaner.finish(work, NOW_MS) == 0
    assert finished(cleaner.begin(NOW_MS, lambda topic, partition: 10)) is None
    assert log.log_end_offset == 10


def test_a_log_with_more_keys_than_fit_in_memory_is_cleaned_in_parts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cleaning takes as many segments as their keys fit, at least one, and returns the offset that it reached."""
    monkeypatch.setattr(compaction, "KEY_BYTES_MAX", 300)
    log = place.open(**OPTIONS)
    for number in range(40):
        put(log, (f"k{number % 10}", f"v{number}"))
    log.roll(NOW_MS)
    before = state(log)
    ends = [0]
    while ends[-1] < log.log_end_offset:
        ends.append(clean(log, ends[-1]))
        assert ends[-1] > ends[-2]
        assert state(log) == before
    assert len(ends) > 3
    assert offsets(log) == list(range(30, 40))


def test_large_segments_are_written_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WRITE_SIZE", 500)
    log = place.open(**{**OPTIONS, "segment_bytes": 100_000})
    for number in range(60):
        put(log, (f"k{number % 50}", f"v{number}" * 10))
    log.roll(NOW_MS)
    before = state(log)
    clean(log)
    assert state(log) == before
    assert offsets(log) == list(range(10, 60))
    again = place.open(is_clean=False, recovery_point=0, **{**OPTIONS, "segment_bytes": 100_000})
    assert offsets(again) == list(range(10, 60)), "each batch is where the index and the CRC say"


def test_a_control_record_of_another_kind_stays(place: Place) -> None:
    log = place.open(**OPTIONS)
    put(log, ("a", "1"))
    record = Record(0, NOW_MS, control_record_key(ControlRecordType.LEADER_CHANGE), b"")
    log.append_as_follower(build_batch([record], base_offset=1, is_control=True), NOW_MS, 0)
    log.roll(NOW_MS)
    for later in (0, 100_000):
        clean(log, 0, now_ms=NOW_MS + later)
    assert offsets(log) == [0, 1]


def test_records_above_the_cleaned_part_stay_whatever_their_key() -> None:
    kept = BatchFilter({b"a": 3}, 4, {}, 9, NOW_MS, 1000, TransactionTracker(()))
    batch = build_batch([Record(offset, NOW_MS, b"a", b"v") for offset in range(5)], base_offset=1)
    filtered = kept.filtered(RecordBatch(batch))
    assert filtered is not None
    assert [record.offset for record in RecordBatch(filtered).records()] == [3, 4, 5]


def as_decoded(
    batch: RecordBatch, latest: dict[bytes, int], end_offset: int, now_ms: int, retention_ms: int
) -> bytes | None:
    """The remaining bytes of a data batch, with each record read and written by itself."""
    horizon_ms = batch.base_timestamp if batch.has_delete_horizon else None
    is_past = horizon_ms is not None and horizon_ms <= now_ms
    kept = [
        record
        for record in batch.records()
        if record.offset >= end_offset
        or (
            record.key is not None
            and latest.get(record.key, -1) <= record.offset
            and not (record.value is None and is_past)
        )
    ]
    if not kept:
        return None
    if horizon_ms is None and any(record.value is None for record in kept):
        horizon_ms = now_ms + retention_ms
    elif len(kept) == batch.record_count:
        return batch.to_bytes()
    return build_batch(
        kept,
        base_offset=batch.base_offset,
        keep_offsets=True,
        last_offset_delta=batch.last_offset_delta,
        codec=batch.compression_codec,
        timestamp_type=int(batch.is_log_append_time),
        log_append_time=batch.max_timestamp,
        delete_horizon_ms=horizon_ms,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )


KEYS = st.sampled_from([None, b"", b"a", b"b", b"c" * 70])
TIMES = st.sampled_from([-1, 0, NOW_MS, NOW_MS + 1, NOW_MS - 70, 2**62])
FILTERED = st.builds(
    lambda key, time, value, headers: Record(0, time, key, value, headers),
    KEYS,
    TIMES,
    st.sampled_from([None, b"v", b"v" * 200]),
    st.sampled_from([(), (("name", b"1"),)]),
)


@given(
    st.lists(FILTERED, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from([b"", b"a", b"b", b"c" * 70]), st.integers(95, 110)),
    st.integers(95, 110),
    st.integers(0, 4),
    st.sampled_from([None, NOW_MS - 1, NOW_MS + 1]),
    st.booleans(),
)
def test_what_stays_is_what_single_records_would_give(
    records: list[Record],
    latest: dict[bytes, int],
    end_offset: int,
    codec: int,
    horizon_ms: int | None,
    has_append_time: bool,
) -> None:
    """Copied bytes are the same as those of writing each kept record again."""
    batch = RecordBatch(
        build_batch(
            records,
            base_offset=100,
            codec=codec,
            delete_horizon_ms=horizon_ms,
            timestamp_type=int(has_append_time),
            log_append_time=NOW_MS,
            producer_id=7,
            producer_epoch=1,
            base_sequence=3,
        )
    )
    batch_filter = BatchFilter(latest, end_offset, {}, 0, NOW_MS, 1000, TransactionTracker([]))
    assert batch_filter.filtered(batch) == as_decoded(batch, latest, end_offset, NOW_MS, 1000)


def test_aborted_transactions_that_could_not_be_written_at_once_are_written_with_the_rest(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = memory.open(**OPTIONS)
    transaction(log, ControlRecordType.ABORT, ("a", "1"))
    for number in range(20):
        put(log, ("k", f"{number}"))
    aborted = log.aborted_transactions(0, 1000)
    assert aborted
    monkeypatch.setattr(AbortedTransactions, "_write_or_later", lambda self: None)
    clean(log)
    kept = log.aborted_transactions(0, 1000)
    indexes = [memory.content(name) for name in memory.names() if name.endswith(".txnindex")]
    assert sum(map(len, indexes)) == AbortedTransactions.entry_size * len(kept) > 0


def test_a_segment_that_is_damaged_is_not_cleaned_again(memory: Place) -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
    directory = LogDirectory.open(f"{memory.folder}/data", filesystem=memory.filesystem)
    log = directory.create_log("a", 0, None, compacted, NOW_MS)
    for number in range(10):
        put(log, ("k" * 40, f"{number}"))
    cleaner = LogCleaner(directory)
    work = finished(cleaner.begin(NOW_MS, lambda topic, partition: 10))
    assert work is not None
    name = f"{memory.folder}/data/a-0/{0:020}.log"
    content = memory.filesystem.read_file(name)
    assert content is not None
    memory.filesystem.write_file(name, content[:8] + bytes(4) + content[12:])
    with pytest.raises(CorruptSegment):
        work.run()
    assert cleaner.finish(work, NOW_MS) == 0
    assert finished(cleaner.begin(NOW_MS, lambda topic, partition: 10)) is None
