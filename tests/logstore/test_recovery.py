"""After kill -9: torn tails, damage at every byte, rebuilt indexes; after a clean stop: nothing is scanned."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
import zlib

import pytest

from pykbroker.logstore.errors import CorruptSegment
from pykbroker.logstore.producer_snapshot import encode_snapshot
from tests.logstore.support import NOW_MS, Place, append, batch, offsets, read_all


def small_log(place: Place, batches: int = 4) -> list[int]:
    """A log of small batches; returns the byte position at which each begins, and the end of the last one."""
    log = place.open()
    positions = [0]
    for number in range(batches):
        data = batch(number + 1, producer_id=7, producer_epoch=0, base_sequence=number * (number + 1) // 2)
        append(log, data, epoch=number // 2)
        positions.append(positions[-1] + len(data))
    return positions


LOG = f"{0:020d}.log"


def test_a_tail_torn_at_any_byte_is_cut(memory: Place) -> None:
    """P-171: the whole batches are left, and appends continue after them."""
    positions = small_log(memory)
    whole = memory.content(LOG)
    for size in range(positions[-1] + 1):
        memory.overwrite(LOG, whole[:size])
        log = memory.open()
        kept = sum(1 for position in positions[1:] if position <= size)
        count = kept * (kept + 1) // 2
        assert offsets(log) == list(range(count)), size
        assert len(memory.content(LOG)) == positions[kept]
        assert log.leader_epochs.latest_epoch == ((kept - 1) // 2 if kept else -1)
        assert append(log, batch(2), epoch=5).first_offset == count
        assert offsets(log) == list(range(count + 2))
        log.close()
        memory.filesystem.remove_tree("/logs/t-0")
        memory.filesystem.make_directory("/logs/t-0")


def test_a_damaged_byte_ends_the_log(memory: Place) -> None:
    """P-171: at any position of the last two batches, below and above the CRC; only offset and epoch have none."""
    positions = small_log(memory)
    whole = memory.content(LOG)
    for position in range(positions[2], positions[-1]):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        memory.overwrite(LOG, bytes(damaged))
        log = memory.open()
        number = max(n for n in range(4) if positions[n] <= position)
        in_batch = position - positions[number]
        found = [one.base_offset for one in log.iter_batches()]
        if 12 <= in_batch < 16:
            assert len(found) == 4, "the leader epoch is outside of the CRC"
        elif in_batch < 8:
            assert number <= len(found) <= 4, "so is the base offset, which must only not go back"
        else:
            assert found == [n * (n + 1) // 2 for n in range(number)], position
        log.close()
        memory.filesystem.remove_tree("/logs/t-0")
        memory.filesystem.make_directory("/logs/t-0")


@pytest.mark.parametrize(
    "tail", [b"\0" * 5000, b"\xff" * 100, b"\0" * 7, os.urandom(300)], ids=["zeros", "ones", "few", "random"]
)
def test_junk_at_the_end_is_cut(place: Place, tail: bytes) -> None:
    positions = small_log(place)
    whole = place.content(LOG)
    place.overwrite(LOG, whole + tail)
    log = place.open()
    assert log.log_end_offset == 10
    assert place.content(LOG) == whole
    assert log.size_bytes == positions[-1]


@pytest.mark.parametrize("recovery_point", [0, 1 << 40])
def test_zeros_behind_a_sealed_segment_are_cut_and_what_follows_stays(place: Place, recovery_point: int) -> None:
    """Power was lost after a roll, before the truncation of the old segment's unused space was durable."""
    log = place.open(segment_bytes=400)
    for _ in range(30):
        append(log, batch(1))
    bases = log.segment_base_offsets
    log.close()
    name = f"{bases[2]:020d}.log"
    whole = place.content(name)
    place.overwrite(name, whole + b"\0" * 5000)
    log = place.open(segment_bytes=400, recovery_point=recovery_point)
    assert log.segment_base_offsets == bases
    assert offsets(log) == list(range(30))
    assert place.content(name) == whole


def test_segments_after_a_damaged_one_go(place: Place) -> None:
    log = place.open(segment_bytes=400)
    for number in range(30):
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=number))
    bases = log.segment_base_offsets
    assert len(bases) >= 5
    log.close()
    name = f"{bases[2]:020d}.log"
    place.overwrite(name, place.content(name)[:-1])
    log = place.open(segment_bytes=400)
    assert log.segment_base_offsets == bases[:3]
    assert log.log_end_offset == bases[3] - 1
    assert (
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=bases[3] - 1)).first_offset == bases[3] - 1
    )
    assert offsets(log) == list(range(bases[3]))
    log.close()
    again = place.open(segment_bytes=400, is_clean=True)
    assert offsets(again) == list(range(bases[3]))


def old_message(magic: int, offset: int, value: bytes) -> bytes:
    """A message of the formats before 0.11, as a segment has it."""
    timestamp = struct.pack(">q", NOW_MS + offset) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_messages_of_old_formats_are_kept_and_read_as_stored(place: Place) -> None:
    """P-168: also the shortest one, at the end of the file; damage in them is found."""
    messages = [
        old_message(0, 0, b"a"),
        old_message(1, 1, b"b" * 30),
        old_message(1, 2, b"c" * 99),
        old_message(0, 3, b""),
    ]
    place.filesystem.make_directory(f"{place.folder}/t-0")
    place.overwrite(LOG, b"".join(messages))
    log = place.open(index_interval_bytes=1)
    assert (log.log_end_offset, log.cut) == (4, None)
    for offset, message in enumerate(messages):
        result = log.read(offset, 10, 4, at_least_one=True)
        assert result.range is not None
        assert result.range.read() == message
        result.range.release()
    assert append(log, batch(1)).first_offset == 4
    log.close()
    place.overwrite(LOG, b"".join(messages)[:-1] + b"x")
    assert place.open().log_end_offset == 3


def test_what_was_cut_is_told(place: Place) -> None:
    """P-171: file, position and size; nothing if only unused space was cut off."""
    positions = small_log(place)
    assert place.open().cut is None
    whole = place.content(LOG)
    place.overwrite(LOG, whole + bytes(1000))
    assert place.open().cut is None
    place.overwrite(LOG, whole[:-5])
    cut = place.open().cut
    assert cut is not None
    assert cut.path.endswith(f"t-0/{LOG}")
    assert cut[1:] == (positions[3], positions[4] - positions[3] - 5, 0)
    assert place.open().cut is None


def test_a_log_damaged_after_a_clean_stop_is_recovered(place: Place) -> None:
    """The mark of a clean stop does not show what happened to the files later."""
    positions = small_log(place)
    log = place.open()
    log.close()
    content = place.content(LOG)
    at = positions[3]
    place.overwrite(LOG, content[: at + 8] + b"\0\0\0\0" + content[at + 12 :])
    log = place.open(is_clean=True)
    assert offsets(log) == list(range(6))
    assert log.cut is not None
    assert append(log, batch(1)).first_offset == 6


def test_indexes_are_rebuilt_as_they_were(place: Place) -> None:
    log = place.open(segment_bytes=20_000, index_interval_bytes=500)
    for number in range(200):
        append(log, batch(3, timestamp=NOW_MS + number * (1 if number % 3 else -1)))
    log.close()
    indexes = [name for name in place.names() if name.endswith("index")]
    before = {name: place.content(name) for name in indexes}
    assert sum(map(len, before.values())) > 500
    for name in indexes:
        place.filesystem.remove(f"{place.folder}/t-0/{name}")
    log = place.open(segment_bytes=20_000, index_interval_bytes=500)
    log.close()
    assert {name: place.content(name) for name in indexes} == before


def test_damaged_indexes_are_rebuilt_even_after_a_clean_stop(place: Place) -> None:
    log = place.open(segment_bytes=5000, index_interval_bytes=300)
    for _ in range(100):
        append(log, batch(3))
    log.close()
    for name in place.names():
        if name.endswith(".index"):
            place.overwrite(name, place.content(name) + b"\x7f\xff\xff\xff\x7f\xff\xff\xff")
        if name.endswith(".timeindex"):
            place.overwrite(name, place.content(name)[:-5])
    log = place.open(segment_bytes=5000, index_interval_bytes=300, is_clean=True)
    assert offsets(log) == list(range(300))
    assert len(read_all(log, 137)) == 100 - 137 // 3
    found = log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert found.offset == 1


def test_an_index_preallocated_by_kafka_is_read(place: Place) -> None:
    """A Kafka broker killed with kill -9 leaves its active indexes full of zeros."""
    log = place.open(index_interval_bytes=100)
    for _ in range(10):
        append(log, batch(3))
    log.close()
    place.overwrite(f"{0:020d}.index", place.content(f"{0:020d}.index").ljust(80_000, b"\0"))
    place.overwrite(f"{0:020d}.timeindex", place.content(f"{0:020d}.timeindex").ljust(12_000, b"\0"))
    log = place.open(is_clean=True, index_interval_bytes=100)
    assert offsets(log) == list(range(30))
    append(log, batch(1))
    log.close()
    assert len(place.content(f"{0:020d}.index")) < 200
    assert offsets(place.open(is_clean=True)) == list(range(31))


def test_after_a_clean_stop_nothing_is_scanned(memory: Place) -> None:
    """Only the end of the last segment is read."""
    log = memory.open(segment_bytes=100_000)
    for number in range(500):
        append(log, batch(10, producer_id=7, producer_epoch=0, base_sequence=number * 10))
    log.flush()
    log.close()
    calls = memory.filesystem.calls  # type: ignore[attr-defined]
    calls.clear()
    log = memory.open(is_clean=True, segment_bytes=100_000)
    assert log.log_end_offset == 5000
    assert log.producers.producers[7].last_sequence == 4999
    assert calls.get("view", 0) == 0
    assert calls["read"] <= 4


def test_flushed_batches_are_not_checked_again(memory: Place) -> None:
    """P-171: below the recovery point only headers are read."""
    log = memory.open()
    append(log, batch(1, value_size=100))
    log.flush()
    assert log.recovery_point == 1
    append(log, batch(1, value_size=100))
    content = bytearray(memory.content(LOG))
    content[80] ^= 1
    memory.overwrite(LOG, bytes(content))
    assert memory.open(recovery_point=1).log_end_offset == 2
    assert memory.open(recovery_point=0).log_end_offset == 0


def test_power_loss_keeps_what_was_flushed(memory: Place) -> None:
    log = memory.open(segment_bytes=1000)
    for _ in range(20):
        append(log, batch(2))
    log.flush()
    point = log.recovery_point
    assert point == 40
    append(log, batch(2))
    memory.filesystem.crash()  # type: ignore[attr-defined]
    assert memory.open(recovery_point=point, segment_bytes=1000).log_end_offset == 40


def test_power_loss_after_a_clean_stop_takes_nothing(memory: Place) -> None:
    """With a time index without its content, retention would delete all acknowledged records."""
    log = memory.open(index_interval_bytes=100)
    for number in range(10):
        append(log, batch(3, producer_id=7, producer_epoch=0, base_sequence=number * 3))
    log.flush()
    log.close()
    names = set(memory.names()) - {"partition.metadata"}  # an empty one is rebuilt
    before = {name: memory.content(name) for name in names}
    memory.filesystem.crash()  # type: ignore[attr-defined]
    assert {name: memory.content(name) for name in names} == before
    log = memory.open(is_clean=True, index_interval_bytes=100, retention_ms=3_600_000)
    assert log.delete_old_segments(NOW_MS + 60_000, 30) == 0
    assert offsets(log) == list(range(30))


def test_a_flush_in_a_thread_survives_deletion_meanwhile(place: Place) -> None:
    log = place.open(segment_bytes=1000, retention_ms=0)
    for _ in range(20):
        append(log, batch(2))
    assert log.has_unflushed_segments
    work = log.begin_flush(include_active=False)
    assert work is not None
    log.delete_old_segments(NOW_MS + 10, 40)
    log.delete_due_files(NOW_MS + 100_000)
    work.run()
    work.finish()
    assert log.recovery_point == 40
    log.flush()
    assert log.begin_flush() is None


def test_what_a_compaction_left_is_finished_or_undone(place: Place) -> None:
    """`.cleaned` files are removed, `.swap` files replace the old segments, `.deleted` files are removed."""
    log = place.open(segment_bytes=400)
    for _ in range(20):
        append(log, batch(1))
    bases = log.segment_base_offsets
    log.close()
    first, second = (f"{base:020d}.log" for base in bases[:2])
    merged = place.content(first) + place.content(second)
    place.overwrite(f"{first}.swap", merged)
    place.overwrite(f"{bases[2]:020d}.log.cleaned", b"junk")
    place.overwrite(f"{bases[1]:020d}.index.deleted", b"junk")
    log = place.open(segment_bytes=400)
    assert log.segment_base_offsets == (bases[0], *bases[2:])
    assert offsets(log) == list(range(20))
    assert not [name for name in place.names() if name.endswith(("swap", "cleaned", "deleted"))]


def test_a_compaction_that_was_not_complete_leaves_nothing(place: Place) -> None:
    """Some files were renamed to `.swap`, the log still has `.cleaned`: the old segment stays with its own indexes."""
    log = place.open(segment_bytes=400, index_interval_bytes=50)
    for number in range(20):
        append(log, batch(1, timestamp=NOW_MS + number))
    log.flush()
    log.close()
    before = {name: place.content(name) for name in place.names() if name.startswith(f"{0:020d}")}
    place.overwrite(f"{0:020d}.timeindex.swap", b"")
    place.overwrite(f"{0:020d}.index.swap", b"")
    place.overwrite(f"{0:020d}.log.cleaned", b"")
    log = place.open(segment_bytes=400, recovery_point=20)
    assert offsets(log) == list(range(20))
    assert {name: place.content(name) for name in place.names() if name.startswith(f"{0:020d}")} == before


def test_orphaned_indexes_go_and_a_start_beyond_the_end_begins_anew(place: Place) -> None:
    log = place.open()
    append(log, batch(3))
    log.close()
    place.overwrite(f"{99:020d}.index", b"12345678")
    log = place.open(is_clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, batch(1)).first_offset == 50
    assert f"{99:020d}.index" not in place.names()


def test_damage_found_while_reading_names_file_and_position(place: Place) -> None:
    small_log(place)
    content = place.content(LOG)
    log = place.open(is_clean=True)
    assert log.log_end_offset == 10
    log.close_files()
    place.overwrite(LOG, content[:8] + b"\0\0\0\0" + content[12:])
    with pytest.raises(CorruptSegment, match=r"t-0/0{20}\.log"):
        list(log.iter_batches())


WRITER = """
import sys
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import PartitionLog
from tests.logstore.support import NOW_MS, append, batch
files = OpenFiles(OsFileSystem())
log = PartitionLog.open(sys.argv[1], "t", 0, LogConfig(segment_bytes=200_000), open_files=files, now_ms=NOW_MS)
sequence = log.log_end_offset
while True:
    count = 1 + sequence % 40
    append(log, batch(count, producer_id=7, producer_epoch=0, base_sequence=sequence))
    sequence += count
    sys.stdout.write(f"{sequence}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.3])
def test_kill_9_while_appending_loses_nothing_acknowledged(disk: Place, seconds: float) -> None:
    """P-171. Three times over the same log: every record there, in order, once, and sequences go on."""
    acknowledged = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, f"{disk.folder}/t-0"], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        # The other process runs on the real clock.
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().splitlines()
        writer.stdout.close()
        writer.wait()
        complete = [line for line in lines if line.isdigit()]
        acknowledged = max([acknowledged, *map(int, complete[:-1])])
        log = disk.open(segment_bytes=200_000)
        end_offset = log.log_end_offset
        assert end_offset >= acknowledged
        assert offsets(log) == list(range(end_offset))
        assert log.producers.producers[7].last_sequence == end_offset - 1
        log.close_files()


def test_a_flush_of_the_active_segment_syncs_one_file(memory: Place) -> None:
    """The metadata log is flushed at every commit: from the second one on with one fdatasync."""
    log = memory.open()
    append(log, batch(1))
    log.flush()
    calls = memory.filesystem.calls  # type: ignore[attr-defined]
    append(log, batch(1))
    calls.clear()
    log.flush()
    assert calls == {"sync": 1}
    append(log, batch(1), epoch=1)
    calls.clear()
    log.flush()
    expected = {"write_file": 1, "sync": 1, "sync_file": 1, "sync_directory": 1}
    assert calls == expected, "a new leader epoch is in a file of its own"
    log.flush()
    assert calls["sync"] == 1


def test_sealed_indexes_are_flushed_whatever_came_before(place: Place) -> None:
    """After a restart with everything durable, and after a truncation into a durable segment."""
    log = place.open()
    append(log, batch(20))
    log.flush()
    log.close()
    log = place.open(is_clean=True, recovery_point=20, end_offset=20)
    append(log, batch(1))
    log.roll(NOW_MS)
    assert log.has_unflushed_segments
    log.flush()
    assert not log.has_unflushed_segments
    append(log, batch(2))
    log.truncate_to(20)
    assert not log.has_unflushed_segments
    log.roll(NOW_MS)
    assert log.has_unflushed_segments
    log.truncate_fully_and_start_at(5)
    assert not log.has_unflushed_segments
    append(log, batch(1))
    log.roll(NOW_MS)
    assert log.has_unflushed_segments


def test_power_loss_after_a_roll_keeps_the_sealed_indexes(memory: Place) -> None:
    """A segment that was durable while active is flushed once more when it is sealed, for its indexes."""
    log = memory.open(segment_bytes=2000, index_interval_bytes=100)
    for number in range(10):
        append(log, batch(2, timestamp=NOW_MS + number))
    log.flush()
    log.roll(NOW_MS)
    assert log.has_unflushed_segments
    work = log.begin_flush(include_active=False)
    assert work is not None
    work.run()
    work.finish()
    assert not log.has_unflushed_segments
    before = [memory.content(name) for name in memory.names() if "index" in name or "snapshot" in name]
    memory.filesystem.crash()
    assert [memory.content(name) for name in memory.names() if "index" in name or "snapshot" in name] == before
    log = memory.open(segment_bytes=2000, recovery_point=20)
    found = log.offset_for_timestamp(NOW_MS + 9)
    assert found is not None
    assert found.offset == 17


@pytest.mark.parametrize("transactional", [False, True], ids=["from each producer's last batches", "batch by batch"])
def test_producers_are_after_a_kill_as_they_were(place: Place, transactional: bool) -> None:
    """P-57, P-58: alternating producers, changing epochs, several segments; with and without a transaction."""
    log = place.open(segment_bytes=1500, index_interval_bytes=100)
    sequences = dict.fromkeys((3, 5, 9), 0)
    for number in range(60):
        producer_id = (3, 5, 3, 9)[number % 4]
        epoch = 1 if producer_id == 5 and number > 40 else 0
        if producer_id == 5 and number == 41:
            sequences[5] = 0
        data = batch(
            1 + number % 3,
            timestamp=NOW_MS + number,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequences[producer_id],
        )
        append(log, data)
        sequences[producer_id] += 1 + number % 3
    if transactional:
        append(log, batch(producer_id=11, producer_epoch=0, base_sequence=0, is_transactional=True))
    before, unstable = encode_snapshot(log.producers.producers), log.producers.first_unstable_offset
    log.close_files()
    for recovery_point in (0, log.segment_base_offsets[2]):
        again = place.open(segment_bytes=1500, index_interval_bytes=100, recovery_point=recovery_point)
        assert encode_snapshot(again.producers.producers) == before
        assert again.producers.first_unstable_offset == unstable
        again.close_files()


@pytest.mark.parametrize("is_clean", [False, True])
def test_an_empty_segment_of_a_roll_that_failed_does_not_hide_what_came_after(place: Place, is_clean: bool) -> None:
    """The file was created, the roll failed, and appends continued in the earlier segment."""
    log = place.open()
    for _ in range(3):
        append(log, batch(2))
    log.close()
    place.overwrite(f"{4:020d}.log", b"")
    again = place.open(is_clean=is_clean)
    assert again.log_end_offset == 6
    assert append(again, batch(1)).first_offset == 6
    assert offsets(again) == list(range(7))


@pytest.mark.parametrize("is_full", [False, True])
def test_a_sync_says_nothing_of_what_was_cut_off_meanwhile(place: Place, is_full: bool) -> None:
    """Nor of records that were written in its place."""
    log = place.open()
    append(log, batch(5))
    log.flush()
    append(log, batch(1))
    work = log.begin_flush()
    assert work is not None
    work.run()
    log.truncate_fully_and_start_at(4, NOW_MS) if is_full else log.truncate_to(5, NOW_MS)
    append(log, batch(3))
    work.finish()
    assert log.recovery_point == (4 if is_full else 5)
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_a_message_of_an_old_format_with_a_wrong_checksum_ends_the_log(place: Place) -> None:
    """P-171: so does an impossible length. Earlier messages stay, with their timestamps in the index."""
    messages = [old_message(1, number, b"a" * 30) for number in range(3)]
    place.filesystem.make_directory(f"{place.folder}/t-0")
    damaged = bytearray(messages[2])
    damaged[-1] ^= 1
    for last in (bytes(damaged), messages[2][:8] + struct.pack(">i", 5) + messages[2][12:]):
        place.overwrite(LOG, messages[0] + messages[1] + last)
        log = place.open()
        assert log.log_end_offset == 2
        assert [segment.max_timestamp() for segment in log.segments] == [(NOW_MS + 1, 1)]
        log.close()


def test_an_index_of_a_compaction_that_was_cut_short_goes(place: Place) -> None:
    """Another segment was renamed to `.swap` whole. Of this one only the index was: it would be one of another file."""
    log = place.open(segment_bytes=400)
    for _ in range(20):
        append(log, batch(1))
    bases = log.segment_base_offsets
    log.close()
    first, last = f"{bases[0]:020d}", f"{bases[-2]:020d}"
    place.overwrite(f"{first}.log.swap", place.content(f"{first}.log"))
    place.overwrite(f"{last}.index.swap", b"junk")
    index = place.content(f"{last}.index")
    log = place.open(segment_bytes=400)
    assert offsets(log) == list(range(20))
    assert place.content(f"{last}.index") == index
    assert not [name for name in place.names() if name.endswith("swap")]


def test_damage_that_reading_all_batches_finds(place: Place) -> None:
    """As compaction does: a length that is too small or larger than the file, in the first batch and in the last."""
    positions = small_log(place)
    content = place.content(LOG)
    log = place.open(is_clean=True)
    assert log.log_end_offset == 10
    for at in (positions[0], positions[-2]):
        for length in (3, 1 << 20):
            place.overwrite(LOG, content[: at + 8] + struct.pack(">i", length) + content[at + 12 :])
            log.close_files()
            with pytest.raises(CorruptSegment, match=rf"{LOG}.*{at}"):
                list(log.iter_batches())
