"""Rolling, retention, DeleteRecords, deletion delay, truncation."""

from __future__ import annotations

import pytest

from pykbroker.logstore.errors import OffsetOutOfRange
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.retention import SegmentFacts, count_to_delete
from tests.logstore.support import NOW_MS, Place, append, batch, offsets
from tests.support.fake_filesystem import FakeFileSystem

DAY_MS = 86_400_000


@pytest.mark.parametrize("entries", [0, 1])
def test_a_time_index_of_zeros_makes_nothing_old(place: Place, entries: int) -> None:
    """An index that was not synced is zeros after a loss of power; the segment's age then comes from its records."""
    log = place.open(segment_bytes=3 * len(batch(1)), index_interval_bytes=1)
    for number in range(7):
        append(log, batch(1, timestamp=NOW_MS + number))
    log.close()
    name = f"{0:020d}.timeindex"
    written = place.content(name)
    assert len(written) == 24
    place.overwrite(name, written[: 12 * entries].ljust(len(written), b"\0"))
    log = place.open(is_clean=True, retention_ms=DAY_MS)
    assert log.delete_old_segments(NOW_MS + 1000, 7) == 0
    assert log.delete_old_segments(NOW_MS + DAY_MS + 1000, 7) > 0


def test_rolls_when_full(place: Place) -> None:
    """P-165: the next batch counts for segment.bytes."""
    size = len(batch(1))
    log = place.open(segment_bytes=3 * size)
    for _ in range(7):
        append(log, batch(1))
    assert log.segment_base_offsets == (0, 3, 6)
    assert len(place.content(f"{0:020d}.log")) == 3 * size


def test_rolls_by_time_of_the_first_record(place: Place) -> None:
    """P-165: segment.ms counts from the first batch's timestamp to the coming one's, also after a restart."""
    log = place.open(segment_ms=1000)
    append(log, batch(1, timestamp=NOW_MS))
    append(log, batch(1, timestamp=NOW_MS + 1000))
    log.close()
    log = place.open(segment_ms=1000, is_clean=True)
    append(log, batch(1, timestamp=NOW_MS + 1001))
    append(log, batch(1, timestamp=NOW_MS))
    assert log.segment_base_offsets == (0, 2)


def test_rolls_when_an_index_is_full(place: Place) -> None:
    """P-165: 8 bytes per entry of the offset index, 12 per entry of the time index of which the last is kept free."""
    log = place.open(index_interval_bytes=1, segment_index_bytes=48)
    for number in range(10):
        append(log, batch(1, timestamp=NOW_MS + number))
    assert log.segment_base_offsets == (0, 4, 8)
    log.close()
    assert all(len(place.content(name)) <= 48 for name in place.names() if name.endswith("index"))


def test_an_index_that_was_truncated_has_room_again(place: Place) -> None:
    log = place.open(index_interval_bytes=1, segment_index_bytes=48)
    for number in range(4):
        append(log, batch(1, timestamp=NOW_MS + number))
    log.truncate_to(2, NOW_MS)
    append(log, batch(1, timestamp=NOW_MS + 5))
    assert log.segment_base_offsets == (0,)


def test_rolls_when_the_offset_is_too_far_from_the_base(place: Place) -> None:
    """P-165: the distance must fit 31 bits."""
    log = place.open()
    log.append_as_follower(batch(1, base_offset=0), NOW_MS)
    log.append_as_follower(batch(1, base_offset=2**31 - 1), NOW_MS)
    log.append_as_follower(batch(1, base_offset=2**31), NOW_MS)
    log.append_as_follower(batch(1, base_offset=2**33), NOW_MS)
    assert log.segment_base_offsets == (0, 2**31, 2**33)
    assert offsets(log) == [0, 2**31 - 1, 2**31, 2**33]


def test_an_empty_segment_that_cannot_hold_the_offset_is_replaced(place: Place) -> None:
    log = place.open()
    log.roll(NOW_MS)
    assert log.segment_base_offsets == (0,)
    log.append_as_follower(batch(1, base_offset=2**32), NOW_MS)
    assert log.segment_base_offsets == (2**32,)
    assert log.log_end_offset == 2**32 + 1


def test_roll_on_demand(place: Place) -> None:
    log = place.open()
    append(log, batch(2))
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert log.segment_base_offsets == (0, 2)
    append(log, batch(1))
    log.close()
    assert place.open(is_clean=True).segment_base_offsets == (0, 2)


def facts(*rows: tuple[int, int, int]) -> list[SegmentFacts]:
    return [SegmentFacts(*row) for row in rows]


THREE = facts((100, 1000, 10), (100, 2000, 20), (100, 3000, 30))


@pytest.mark.parametrize(
    ("config", "now_ms", "log_start", "high_watermark", "count"),
    [
        ({}, 1500, 0, 30, 0),
        ({"retention_ms": 500}, 1500, 0, 30, 0),
        ({"retention_ms": 500}, 1501, 0, 30, 1),
        ({"retention_ms": 500}, 9999, 0, 30, 3),
        ({"retention_ms": 500}, 9999, 0, 29, 2),
        ({"retention_ms": 500}, 9999, 0, 9, 0),
        ({"retention_ms": -1}, 10**15, 0, 30, 0),
        ({"retention_bytes": 200}, 0, 0, 30, 1),
        ({"retention_bytes": 201}, 0, 0, 30, 0),
        ({"retention_bytes": 0}, 0, 0, 30, 3),
        ({"retention_bytes": -1}, 0, 0, 30, 0),
        ({"cleanup_policy": frozenset({"compact"}), "retention_ms": 1, "retention_bytes": 0}, 9999, 0, 30, 0),
        ({"cleanup_policy": frozenset({"compact"})}, 0, 20, 30, 2),
        ({"cleanup_policy": frozenset()}, 0, 10, 30, 1),
        ({"cleanup_policy": frozenset({"compact", "delete"}), "retention_ms": 500}, 1501, 0, 30, 1),
    ],
)
def test_what_may_go(config: dict[str, object], now_ms: int, log_start: int, high_watermark: int, count: int) -> None:
    """P-164: by time of the newest record, by size, below the log start; never beyond the high watermark."""
    settings = LogConfig(**config)  # type: ignore[arg-type]
    assert count_to_delete(THREE, settings, now_ms, log_start, high_watermark) == count


def test_a_later_segment_is_not_deleted_before_an_earlier_one() -> None:
    """P-164: time retention stops at the first segment that is young, whatever comes after it."""
    mixed = facts((100, 9000, 10), (100, 1000, 20), (0, -1, 20))
    assert count_to_delete(mixed, LogConfig(retention_ms=500), 9100, 0, 20) == 0
    assert count_to_delete(mixed, LogConfig(retention_ms=500), 9501, 0, 20) == 2, "an empty active segment stays"


def test_retention_moves_the_log_start_and_removes_files_after_the_delay(place: Place) -> None:
    """P-164."""
    log = place.open(segment_bytes=200, retention_ms=DAY_MS, file_delete_delay_ms=5000)
    for number in range(10):
        append(log, batch(1, timestamp=NOW_MS + number * 1000), epoch=number // 3)
    assert log.delete_old_segments(NOW_MS + DAY_MS + 4500, 10) == 2
    assert log.log_start_offset == log.segment_base_offsets[0] == 4
    assert log.leader_epochs.entries[0] == (1, 4)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100, 10, at_least_one=True)
    marked = [name for name in place.names() if name.endswith(".deleted")]
    assert f"{0:020d}.log.deleted" in marked
    assert log.delete_due_files(NOW_MS + DAY_MS + 9499) == 0
    assert log.delete_due_files(NOW_MS + DAY_MS + 9500) == len(marked)
    assert not [name for name in place.names() if name.endswith(".deleted")]
    log.close()
    again = place.open(is_clean=True, segment_bytes=200)
    assert again.segment_base_offsets == log.segment_base_offsets
    assert (again.log_end_offset, again.log_start_offset) == (10, 4)


def test_when_everything_is_old_the_active_segment_rolls(place: Place) -> None:
    """P-164: offsets continue, also after a restart without any record left."""
    log = place.open(retention_ms=1000)
    append(log, batch(5))
    assert log.delete_old_segments(NOW_MS + 100_000, 5) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    assert log.delete_old_segments(NOW_MS + 200_000, 5) == 0
    log.close()
    for is_clean in (True, False):
        log = place.open(is_clean=is_clean)
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log, batch(1)).first_offset == 5


def test_delete_records(place: Place) -> None:
    """P-150: the log start moves at once, whole segments below it go with the next retention run."""
    log = place.open(segment_bytes=200)
    for _ in range(10):
        append(log, batch(1))
    assert log.advance_log_start(5)
    assert not log.advance_log_start(4)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(11)
    assert log.has_hidden_start
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 100, 10, at_least_one=True)
    assert log.delete_old_segments(NOW_MS, 10) == 2
    assert log.segment_base_offsets[0] == 4
    assert log.log_start_offset == 5
    log.close()
    again = place.open(is_clean=True, log_start_offset=5)
    assert again.log_start_offset == 5
    assert offsets(again)[0] == 5


def test_truncation_goes_to_a_batch_boundary(place: Place) -> None:
    """P-170: the batch that has the offset is removed whole; so are later epochs, producers and index entries."""
    log = place.open(segment_bytes=300, index_interval_bytes=50)
    for number in range(12):
        data = batch(2, timestamp=NOW_MS + number, producer_id=7, producer_epoch=0, base_sequence=number * 2)
        append(log, data, epoch=number // 4)
    assert log.truncate_to(15)
    assert log.log_end_offset == 14
    assert offsets(log) == list(range(14))
    assert log.leader_epochs.entries == ((0, 0), (1, 8))
    assert log.producers.producers[7].last_sequence == 13
    found = log.max_timestamp_offset()
    assert found is not None
    assert found.offset == 13
    assert append(log, batch(1), epoch=9).first_offset == 14
    assert not log.truncate_to(15)
    assert log.truncate_to(0)
    assert (log.log_end_offset, log.leader_epochs.latest_epoch, log.producers.producers) == (0, -1, {})
    append(log, batch(1))
    log.close()
    assert offsets(place.open(is_clean=True)) == [0]


def test_truncation_below_everything_begins_anew(place: Place) -> None:
    log = place.open(segment_bytes=200)
    for _ in range(6):
        append(log, batch(1))
    log.advance_log_start(4)
    log.delete_old_segments(NOW_MS, 6)
    assert log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    log.truncate_fully_and_start_at(77)
    assert (log.log_start_offset, log.log_end_offset) == (77, 77)
    assert append(log, batch(1)).first_offset == 77
    log.close()
    assert offsets(place.open(is_clean=True)) == [77]
    log.delete_due_files(NOW_MS * 2)
    assert [name for name in place.names() if name.endswith(".log")] == [f"{77:020d}.log"]


def test_jitter_lets_a_segment_roll_earlier_and_a_segment_always_at_the_same_age() -> None:
    """P-165, segment.jitter.ms: by less than it says; different segments at different ages."""

    def rolls_at(name: str, age_ms: int) -> bool:
        log = Place(FakeFileSystem(), "/logs").open(name=name, segment_ms=10_000, segment_jitter_ms=8_000)
        append(log, batch(1))
        append(log, batch(1, timestamp=NOW_MS + age_ms), now_ms=NOW_MS + age_ms)
        return len(log.segment_base_offsets) == 2

    ages = [next(age for age in range(0, 10_251, 250) if rolls_at(f"t-{number}", age)) for number in range(8)]
    assert all(2_000 < age <= 10_250 for age in ages)
    assert len(set(ages)) > 3
    assert rolls_at("t-0", ages[0])
    assert not rolls_at("t-0", ages[0] - 250)
