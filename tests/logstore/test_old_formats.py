"""Logs that begin with messages of the formats before 0.11: searched by time, replayed, compacted."""

from __future__ import annotations

import pytest

from pykbroker.logstore.errors import CorruptSegment, UnexpectedAppendOffset
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.segment import SealedSegment
from pykbroker.protocol.records.errors import CorruptRecord
from tests.logstore.support import NOW_MS, Place, append, batch
from tests.protocol.records.test_legacy import at_offset, message_set
from tests.support.compaction import compact

LOG = f"{0:020d}.log"
COMPACTED = {"cleanup_policy": frozenset({"compact"}), "segment_bytes": 600, "file_delete_delay_ms": 0}


def message(offset: int, time_ms: int, value: bytes | None = b"v" * 60, key: bytes | None = b"k") -> bytes:
    return at_offset(message_set(1, 0, [(time_ms, key, value)]), offset)


def old_log(place: Place, content: bytes) -> None:
    place.filesystem.make_directory(f"{place.folder}/t-0")
    place.overwrite(LOG, content)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("is_recovered", [True, False])
def test_offsets_by_time(place: Place, codec: int, is_recovered: bool) -> None:
    """P-83, P-168: messages of format 0 have no time; within a compressed message each record has its own."""
    times = [NOW_MS, NOW_MS + 50, NOW_MS + 20]
    if codec:
        timed = at_offset(message_set(1, codec, [(time, b"k", b"v" * 60) for time in times]), 3, timestamp=times[1])
    else:
        timed = b"".join(message(1 + number, time) for number, time in enumerate(times))
    old_log(place, at_offset(message_set(0, 0, [(0, b"k", b"x" * 60)]), 0) + timed)
    if not is_recovered:
        place.open().close()
    log = place.open(is_clean=not is_recovered)
    append(log, batch(1, timestamp=NOW_MS + 40))
    expected = {0: 1, 1: 2, 21: 2, 50: 2}
    for time, offset in expected.items():
        found = log.offset_for_timestamp(NOW_MS + time)
        assert found is not None
        assert found[:2] == (offset, times[offset - 1])
        assert found.leader_epoch == -1
    assert log.offset_for_timestamp(NOW_MS + 51) is None
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest[:2] == (2, NOW_MS + 50)
    log.advance_log_start(3)
    later = log.offset_for_timestamp(NOW_MS + 1)
    assert later is not None
    assert later[:2] == (3, NOW_MS + 20)


def test_a_segment_without_times_counts_by_its_file(memory: Place) -> None:
    """P-83: as in Kafka nothing is found from before the last write to it; P-81: format 0 has no largest time."""
    old_log(memory, at_offset(message_set(0, 0, [(0, b"k", b"x" * 60)]), 0))
    log = memory.open(segment_bytes=100)
    assert log.max_timestamp_offset() is None
    written_ms = memory.filesystem.modified_ms(f"{memory.folder}/t-0/{LOG}")
    append(log, batch(1, timestamp=written_ms + 1000))
    append(log, batch(1, timestamp=written_ms + 2000))
    assert log.segment_base_offsets == (0, 1, 2)
    assert log.offset_for_timestamp(written_ms) is None
    found = log.offset_for_timestamp(written_ms + 1)
    assert found is not None
    assert found.offset == 1


def test_indexes_that_are_rebuilt_have_the_times_of_old_messages(place: Place) -> None:
    """P-83: an index that is missing after a clean stop."""
    old_log(place, b"".join(message(number, NOW_MS + number) for number in range(9)))
    place.open(index_interval_bytes=1).close()
    for name in place.names():
        if name.endswith("index"):
            place.filesystem.remove(f"{place.folder}/t-0/{name}")
    log = place.open(is_clean=True)
    found = log.offset_for_timestamp(NOW_MS + 6)
    assert found is not None
    assert found.offset == 6


def test_a_segment_that_begins_with_an_old_message_rolls_by_its_time(place: Place) -> None:
    """P-165."""
    old_log(place, message(0, NOW_MS))
    log = place.open(segment_ms=1000)
    append(log, batch(1, timestamp=NOW_MS + 1000))
    assert log.segment_base_offsets == (0,)
    append(log, batch(1, timestamp=NOW_MS + 1001))
    assert log.segment_base_offsets == (0, 2)


def test_old_messages_are_replayed(place: Place) -> None:
    """P-168: also short ones, and those that are read in several steps."""
    short = at_offset(message_set(0, 0, [(0, None, b"")]), 0)
    large = message(1, NOW_MS, b"l" * (1 << 21))
    old_log(place, short + large + message(2, NOW_MS))
    log = place.open()
    append(log, batch(1))
    replayed = [record.offset for stored in log.iter_batches() for record in stored.records()]
    assert replayed == [0, 1, 2, 3]


def test_old_messages_are_compacted(place: Place) -> None:
    """P-161, P-168: a message goes if none of its records is the last of its key; one that stays is not changed."""
    superseded = message(0, NOW_MS)
    mixed = at_offset(message_set(1, 1, [(NOW_MS, b"k", b"v"), (NOW_MS, b"kept", b"v")]), 2)
    tombstone = message(3, NOW_MS, None, b"gone")
    without_key = message(4, NOW_MS, b"x" * 60, None)
    last = message(5, NOW_MS + 5, key=b"last")
    old_log(place, superseded + mixed + tombstone + without_key + last)
    log = place.open(**COMPACTED)  # type: ignore[arg-type]
    for _ in range(2):
        append(log, batch(1, value_size=500))
    assert compact(log, None, log.log_end_offset, NOW_MS) >= 6
    stored = [bytes(found.to_bytes()) for found in log.iter_batches() if found.magic < 2]
    assert stored == [mixed, tombstone, last]
    found_at = log.offset_for_timestamp(NOW_MS + 1)
    assert found_at is not None
    assert found_at.offset == 5


def followed(log: PartitionLog, data: bytes) -> None:
    log.append_as_follower(data, NOW_MS, 0)


def test_a_follower_and_a_move_take_old_messages(place: Place) -> None:
    """P-168, P-300: a segment that begins with a compressed message begins with the first record in it."""
    compressed = at_offset(message_set(1, 1, [(NOW_MS, b"k", b"v"), (NOW_MS + 7, b"k", b"v")]), 2, timestamp=NOW_MS + 7)
    parts = [message(0, NOW_MS), compressed, message(3, NOW_MS + 9)]
    log = place.open(segment_bytes=100)
    followed(log, parts[0])
    followed(log, compressed + parts[2])
    assert log.segment_base_offsets == (0, 1, 3)
    assert log.log_end_offset == 4
    assert [bytes(stored.to_bytes()) for stored in log.iter_batches()] == parts
    found = log.offset_for_timestamp(NOW_MS + 5)
    assert found is not None
    assert found.offset == 2
    data = batch(1)
    followed(log, (4).to_bytes(8, "big") + data[8:])
    log.close()
    again = place.open(segment_bytes=100, is_clean=True)
    assert [record.offset for stored in again.iter_batches() for record in stored.records()] == [0, 1, 2, 3, 4]


def test_damaged_old_messages_are_not_followed(place: Place) -> None:
    """P-38: and nothing of the answer is appended."""
    log = place.open()
    whole = message(0, NOW_MS)
    for data, reason in [
        (whole[:-1] + b"x", "CRC of the batch at 0 is wrong"),
        (whole + whole, "a batch at 0, the log ends at 1"),
        (whole + whole[:8] + bytes(53), "no record batch"),
        (whole[:-1], "no whole batch"),
    ]:
        with pytest.raises((CorruptRecord, UnexpectedAppendOffset), match=reason):
            followed(log, data)
    assert log.log_end_offset == 0


def test_what_is_no_message_is_told(place: Place) -> None:
    content = bytearray(message(0, NOW_MS))
    content[16] = 3
    old_log(place, bytes(content))
    segment = SealedSegment(f"{place.folder}/t-0", 0, OpenFiles(place.filesystem, 1))
    with pytest.raises(CorruptSegment, match="no record batch where one should begin"):
        list(segment.batches())
