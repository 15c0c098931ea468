"""Searches by timestamp and by leader epoch."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from tests.logstore.support import NOW_MS, Place, append, batch
from tests.support.fake_filesystem import FakeFileSystem


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=30),
    is_reopened=st.booleans(),
    start=st.integers(0, 20),
    limit=st.sampled_from([1, 100]),
)
def test_first_record_at_or_after_a_time(batches: list[list[int]], is_reopened: bool, start: int, limit: int) -> None:
    """P-83: like a scan of all records in the first segment that reaches the time; P-81: the largest timestamp."""
    place = Place(FakeFileSystem(), "/logs")
    options = {"segment_bytes": 400, "index_interval_bytes": 60, "limit": limit}
    log = place.open(**options)  # type: ignore[arg-type]
    records: list[tuple[int, int]] = []
    for times in batches:
        append(log, build_batch([Record(0, NOW_MS + time, b"k", b"v") for time in times]))
        records += [(len(records) + n, NOW_MS + time) for n, time in enumerate(times)]
    start = min(start, len(records))
    log.advance_log_start(start)
    if is_reopened:
        log.close()
        log = place.open(is_clean=True, log_start_offset=start, **options)  # type: ignore[arg-type]
    bases = [*log.segment_base_offsets, len(records)]
    segments = [[r for r in records if low <= r[0] < high] for low, high in itertools.pairwise(bases)]
    for time in (*range(0, 52, 3), 50, 51):
        target = NOW_MS + time
        expected = None
        for segment in segments:
            if segment and max(t for _, t in segment) >= target:
                expected = next(((o, t) for o, t in segment if t >= target and o >= start), None)
                break
        found = log.offset_for_timestamp(target)
        assert (found and found[:2]) == expected
    largest = max(t for _, t in records)
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (largest, next(o for o, t in records if t == largest))


def test_the_largest_time_where_no_record_has_one(place: Place) -> None:
    """P-81: the first record has it as well as any."""
    log = place.open(segment_bytes=150)
    for _ in range(3):
        append(log, build_batch([Record(0, -1, None, bytes(60), [])]))
    assert len(log.segments) == 3
    log.advance_log_start(0)
    assert log.max_timestamp_offset() == (0, -1, 0)
    append(log, batch(1))
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest.offset == 3


def test_times_in_an_empty_log(place: Place) -> None:
    """P-83: nothing found is None."""
    log = place.open()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    append(log, batch(1))
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.leader_epoch == 0
    assert log.offset_for_timestamp(NOW_MS + 1) is None


def test_compressed_batches_are_searched_inside(place: Place) -> None:
    """P-83."""
    log = place.open()
    for codec in range(5):
        append(log, batch(10, timestamp=NOW_MS + codec * 10, codec=codec))
    for time in range(50):
        found = log.offset_for_timestamp(NOW_MS + time)
        assert found is not None
        assert (found.offset, found.timestamp) == (time, NOW_MS + time)


def epochs(place: Place, *entries: tuple[int, int]) -> LeaderEpochs:
    cache = LeaderEpochs(place.filesystem, f"{place.folder}/epochs")
    for epoch, offset in entries:
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 30)), (6, (4, 30)), (7, (7, 44)), (8, (-1, -1))],
)
def test_end_offset_for_an_epoch(place: Place, asked: int, answer: tuple[int, int]) -> None:
    """P-87: the current epoch ends at the log end, unknown later ones are undefined, others end at the next start."""
    assert epochs(place, (2, 10), (4, 20), (7, 30)).end_offset_for(asked, 0, 44) == answer


@pytest.mark.parametrize(
    ("log_start", "answers"),
    [
        (9, [(0, 10), (2, 20), (4, 30)]),
        (12, [(0, 12), (2, 20), (4, 30)]),
        (20, [(0, 20), (2, 20), (4, 30)]),
        (25, [(0, 25), (2, 25), (4, 30)]),
        (44, [(0, 44), (2, 44), (4, 44)]),
    ],
)
def test_epochs_before_the_log_start_are_unknown(place: Place, log_start: int, answers: list[tuple[int, int]]) -> None:
    """P-87: also while their segments are there."""
    known = epochs(place, (2, 10), (4, 20), (7, 30))
    assert [known.end_offset_for(asked, log_start, 44) for asked in (0, 2, 4)] == answers
    known.truncate_from_start(log_start)
    assert [known.end_offset_for(asked, log_start, 44) for asked in (0, 2, 4)] == answers


def test_epochs_are_assigned_at_the_first_append(place: Place) -> None:
    """P-169."""
    log = place.open()
    for epoch, count in ((0, 2), (0, 1), (3, 2), (4, 1)):
        append(log, batch(count), epoch=epoch)
    assert log.leader_epochs.entries == ((0, 0), (3, 3), (4, 5))
    assert log.end_offset_for_epoch(3) == (3, 5)
    log.close()
    assert place.content("leader-epoch-checkpoint") == b"0\n3\n0 0\n3 3\n4 5\n"
    log = place.open(is_clean=True)
    assert log.leader_epochs.latest_epoch == 4
    assert log.leader_epochs.epoch_for(4) == 3


def test_epochs_of_records_are_in_the_file_when_these_are_sealed_or_durable(place: Place) -> None:
    """A recovery reads them from the records after the recovery point, and from no others."""
    log = place.open()
    append(log, batch(1), epoch=2)
    assert "leader-epoch-checkpoint" not in place.names()
    log.close_files()
    log = place.open()
    assert log.leader_epochs.entries == ((2, 0),)
    assert place.content("leader-epoch-checkpoint") == b"0\n1\n2 0\n"
    append(log, batch(1), epoch=3)
    assert place.content("leader-epoch-checkpoint") == b"0\n1\n2 0\n"
    log.roll(NOW_MS)
    assert place.content("leader-epoch-checkpoint") == b"0\n2\n2 0\n3 1\n"
    append(log, batch(1), epoch=4)
    log.flush()
    assert place.content("leader-epoch-checkpoint") == b"0\n3\n2 0\n3 1\n4 2\n"
    log.loaded.begin_leader_epoch(5)
    assert log.leader_epochs.latest_epoch == 5
    log.close()
    assert place.content("leader-epoch-checkpoint") == b"0\n3\n2 0\n3 1\n4 2\n", "an epoch without records"


@pytest.mark.parametrize("is_clean", [False, True])
def test_an_epoch_without_records_needs_no_file(place: Place, is_clean: bool) -> None:
    """A broker that begins to lead thousands of partitions writes none; Kafka writes each, and drops it at its start.

    Later leaders say the same of the epochs before and after it.
    """
    log = place.open()
    append(log, batch(2), epoch=2)
    log.flush()
    before = place.content("leader-epoch-checkpoint")
    log.loaded.begin_leader_epoch(5)
    assert log.leader_epochs.entries == ((2, 0), (5, 2))
    assert log.end_offset_for_epoch(4) == (2, 2)
    assert place.content("leader-epoch-checkpoint") == before
    (log.close if is_clean else log.close_files)()
    log = place.open(is_clean=is_clean)
    assert place.content("leader-epoch-checkpoint") == before
    assert log.leader_epochs.entries == ((2, 0),)
    log.loaded.begin_leader_epoch(6)
    append(log, batch(1), epoch=6)
    log.close()
    assert place.content("leader-epoch-checkpoint") == b"0\n2\n2 0\n6 2\n"


def test_a_file_is_written_if_one_of_its_epochs_is_dropped(place: Place) -> None:
    cache = epochs(place, (1, 0), (2, 10))
    cache.write_pending()
    cache.assign(3, 20)
    cache.truncate_from_end(20)
    assert place.filesystem.read_file(cache.path) == b"0\n2\n1 0\n2 10\n"
    cache.assign(3, 20)
    cache.truncate_from_end(10)
    assert place.filesystem.read_file(cache.path) == b"0\n1\n1 0\n"
    assert cache.entries == ((1, 0),)


def test_contradicting_epochs_are_dropped(place: Place) -> None:
    cache = epochs(place, (1, 0), (2, 10), (3, 20))
    cache.assign(5, 15)
    assert cache.entries == ((1, 0), (2, 10), (5, 15))
    cache.assign(4, 30)
    assert cache.entries == ((1, 0), (2, 10), (4, 30))
    cache.assign(4, 40)
    assert cache.entries[-1] == (4, 30)


def test_epochs_follow_truncation(place: Place) -> None:
    """P-169."""
    cache = epochs(place, (1, 0), (2, 10), (3, 20))
    cache.truncate_from_end(20)
    assert cache.entries == ((1, 0), (2, 10))
    cache.truncate_from_start(5)
    assert cache.entries == ((1, 5), (2, 10))
    cache.truncate_from_start(10)
    assert cache.entries == ((2, 10),)
    cache.truncate_from_start(12)
    assert cache.entries == ((2, 12),)
    assert LeaderEpochs(place.filesystem, f"{place.folder}/epochs").entries == ((2, 12),)
    cache.clear()
    assert cache.latest_epoch == -1
