"""Appending and reading: offsets, bounds, byte slices, leases."""

from __future__ import annotations

import os
import resource

import pytest

from pykbroker.logstore.errors import BatchTooLarge, OffsetOutOfRange, StorageError, UnexpectedAppendOffset
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.errors import CorruptRecord, RecordError, RecordTooLarge
from pykbroker.protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    MAX_TIMESTAMP_POSITION,
    SCAN_STEP,
)
from pykbroker.protocol.records.record import Record
from tests.logstore.support import NOW_MS, Place, append, batch, offsets, read_all
from tests.support.fake_filesystem import FakeFileSystem


def test_offsets_and_epoch_are_assigned_and_the_rest_is_stored_as_sent(place: Place) -> None:
    """P-41, P-42, P-48: only base offset and leader epoch differ from the client's batch."""
    log = place.open()
    sent = [batch(3), batch(1, codec=1), batch(5)]
    results = [append(log, data, epoch=4) for data in sent]
    assert [(r.first_offset, r.last_offset) for r in results] == [(0, 2), (3, 3), (4, 8)]
    assert {r.log_append_time_ms for r in results} == {-1}
    stored = read_all(log)
    for data, one in zip(sent, stored, strict=True):
        assert one.partition_leader_epoch == 4
        assert one.to_bytes()[16:] == data[16:]
        assert one.verify_crc()
    assert log.log_end_offset == 9
    assert log.size_bytes == len(place.content(f"{0:020d}.log")) == sum(map(len, sent))


def test_the_file_is_longer_than_its_data_by_zeros_at_most_and_only_while_it_is_written(place: Place) -> None:
    log = place.open()
    size = 0
    for count in range(1, 60):
        data = batch(count, value_size=200)
        append(log, data)
        size += len(data)
        content = place.filesystem.read_file(f"{log.path}/{0:020d}.log")
        assert content is not None
        assert content[size - len(data) + 16 : size] == data[16:]
        assert not any(content[size:])
        if count % 10 == 0:
            assert len(place.content(f"{0:020d}.log")) == size
    assert [one.base_offset for one in read_all(log)][-1] == log.log_end_offset - 59
    log.close()
    assert place.filesystem.file_size(f"{log.path}/{0:020d}.log") == size


def test_log_append_time_is_the_brokers(place: Place) -> None:
    """P-40: max timestamp and attribute bit 3 are set, the CRC fits."""
    log = place.open(message_timestamp_type="LogAppendTime")
    result = append(log, batch(2), now_ms=NOW_MS + 5)
    assert result.log_append_time_ms == NOW_MS + 5
    [stored] = read_all(log)
    assert stored.is_log_append_time
    assert stored.max_timestamp == NOW_MS + 5
    assert stored.verify_crc()


def test_a_refused_batch_leaves_no_trace(place: Place) -> None:
    """P-37, P-38: too large, too large for a segment, wrong CRC."""
    log = place.open(max_message_bytes=500, segment_bytes=300)
    append(log, batch())
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    for data, error in ((batch(50), RecordTooLarge), (batch(1, value_size=350), RecordError), (damaged, CorruptRecord)):
        with pytest.raises(error):
            log.append_as_leader(data, 1, NOW_MS)
    with pytest.raises(BatchTooLarge):
        log.append_as_leader(batch(20), 1, NOW_MS, AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 1
    assert offsets(log) == [0]


def test_coordinator_appends_several_batches_in_one_step(place: Place) -> None:
    log = place.open()
    result = log.append_as_leader(batch(2) + batch(3), 7, NOW_MS, AppendOrigin.COORDINATOR)
    assert (result.first_offset, result.last_offset) == (0, 4)
    assert [b.base_offset for b in read_all(log)] == [0, 2]
    assert log.leader_epochs.latest_epoch == 7


def test_follower_appends_keep_offsets(place: Place) -> None:
    """Gaps, which a compaction on the leader leaves, are accepted; lower offsets and damaged batches are not."""
    leader_data = batch(2, base_offset=10, leader_epoch=3) + batch(1, base_offset=20, leader_epoch=5)
    log = place.open()
    log.append_as_follower(leader_data, NOW_MS)
    assert log.log_end_offset == 21
    assert [b.base_offset for b in log.iter_batches()] == [10, 20]
    assert log.leader_epochs.entries == ((3, 10), (5, 20))
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(batch(1, base_offset=20), NOW_MS)
    damaged = bytearray(batch(1, base_offset=21))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord):
        log.append_as_follower(damaged, NOW_MS)
    assert log.log_end_offset == 21


def test_reading_out_of_range(place: Place) -> None:
    """P-65: below log start or above log end is an error; between bound and end it is empty."""
    log = place.open()
    for _ in range(4):
        append(log, batch(2))
    log.advance_log_start(3)
    for offset in (-1, 2, 9):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1000, 8, at_least_one=True)
    for offset in (6, 7, 8):
        assert log.read(offset, 1000, 6, at_least_one=True).range is None
    result = log.read(5, 1000, 6, at_least_one=True)
    assert result.range is not None
    [only] = iter_batches(result.range.read())
    assert only.base_offset == 4, "P-62: the batch may begin before the fetch offset"
    result.range.release()


def test_first_batch_larger_than_the_limit(place: Place) -> None:
    """P-60, P-61: whole if asked for at least one, else nothing; later data is a byte slice."""
    log = place.open()
    first, second = batch(3), batch(4)
    append(log, first)
    append(log, second)
    result = log.read(0, 10, 7, at_least_one=True)
    assert result.range is not None
    assert len(result.range) == len(first)
    result.range.release()
    assert log.read(0, 10, 7, at_least_one=False).range is None
    result = log.read(0, len(first) + 20, 7, at_least_one=False)
    assert result.range is not None
    assert len(result.range.read()) == len(first) + 20
    result.range.release()


@pytest.mark.parametrize("small", [0, 1, 60])
def test_a_large_batch_that_does_not_fit_is_left_off(place: Place, small: int) -> None:
    """P-61: also behind small batches without index entries, and with a batch of unknown size at the beginning."""
    log = place.open()
    sizes = []
    for _ in range(2):
        for data in [batch(1, value_size=100_000), *[batch(1, value_size=30)] * small]:
            append(log, data)
            sizes.append(len(data))
    append(log, batch(1, value_size=300_000))
    end = log.log_end_offset
    whole = sum(sizes)
    for start in (0, 1 + small):
        rest = sum(sizes[start:])
        result = log.read(start, rest + 70_000, end, at_least_one=True)
        assert result.range is not None
        assert [one.base_offset for one in iter_batches(result.range.read())] == list(range(start, end - 1))
        assert (len(result.range), result.range.left_off) == (rest, 70_000)
        result.range.release()
        result = log.read(start, rest + 15_000, end, at_least_one=True)
        assert result.range is not None
        assert (len(result.range), result.range.left_off) == (rest + 15_000, 0), "few bytes are not looked for"
        result.range.release()
    result = log.read(0, whole + 400_000, end, at_least_one=True)
    assert result.range is not None
    assert len(result.range) == log.size_bytes, "everything fits"
    result.range.release()


def read_on(log: PartitionLog, offset: int, size_max: int) -> tuple[list[int], int]:
    """The base offsets of the whole batches of one read, and the offset that its reader asks for next."""
    result = log.read(offset, size_max, log.log_end_offset, at_least_one=True)
    assert result.range is not None
    found = list(iter_batches(result.range.read()))
    result.range.release()
    return [one.base_offset for one in found], found[-1].base_offset + found[-1].record_count


@pytest.mark.parametrize("value_size", [40, 15_000, 40_000])
def test_a_reader_reads_on_where_its_last_read_ended_without_a_search(value_size: int) -> None:
    """One small read of the file for each read of the log, which finds the batch that did not fit."""
    filesystem = FakeFileSystem()
    log = Place(filesystem, "/logs").open()
    while log.size_bytes < 600_000:
        append(log, batch(2, value_size=value_size))
    offset, seen, counts = 0, [], []
    while offset < log.log_end_offset:
        before = filesystem.calls.get("read", 0)
        found, offset = read_on(log, offset, 100_000)
        # The range itself was read by the test.
        counts.append(filesystem.calls["read"] - before - 1)
        seen += found
    assert seen == list(range(0, log.log_end_offset, 2))
    assert counts[0] == 2
    assert set(counts[1:-1]) == {1}
    assert counts[-1] == 0


def test_a_reader_reads_on_after_what_it_has_read_was_cut_off_and_written_anew(place: Place) -> None:
    log = place.open()
    for _ in range(20):
        append(log, batch(1, value_size=10_000))
    _, offset = read_on(log, 0, 100_000)
    log.truncate_to(offset - 1)
    append(log, batch(1, value_size=500))
    for _ in range(20):
        append(log, batch(1, value_size=10_000))
    assert read_on(log, offset, 100_000)[0][0] == offset


def test_an_index_that_is_wrong_gives_a_reader_no_wrong_place(place: Place) -> None:
    """Each entry of the index has the position of bytes in a value that look like a header of the next offset."""
    log = place.open()
    looks_like = SCAN_STEP.pack(9, 50_000, 0, 2, 0, 0, 5)
    data = build_batch([Record(0, NOW_MS, None, looks_like + bytes(10_000))])
    for _ in range(40):
        append(log, data)
    entries = log.loaded.segments.active.offset_index.entries
    for number in range(4, len(entries), 8):
        position = int.from_bytes(entries[number : number + 4], "big") + data.index(looks_like)
        entries[number : number + 4] = position.to_bytes(4, "big")
    offset = 0
    seen: list[int] = []
    while offset < log.log_end_offset:
        found, offset = read_on(log, offset, 100_000)
        assert seen or offset == 9
        seen += found
    assert seen == list(range(40))


def test_thousands_of_batches_are_not_looked_at_for_one_that_does_not_fit(place: Place) -> None:
    """The index has few entries: the slice ends at the limit."""
    log = place.open(index_interval_bytes=1 << 30)
    for _ in range(1000):
        append(log, batch(1, value_size=100))
    append(log, batch(1, value_size=200_000))
    result = log.read(0, 250_000, log.log_end_offset, at_least_one=True)
    assert result.range is not None
    assert (len(result.range), result.range.left_off) == (250_000, 0)
    result.range.release()


def test_first_batch_larger_than_the_limit_at_a_known_boundary(place: Place) -> None:
    """The same where the reader's position needs no search, as after a long poll at the end (P-61)."""
    log = place.open()
    append(log, batch(1))
    assert log.read(1, 1000, 1, at_least_one=True).range is None
    data = batch(9)
    append(log, data)
    append(log, batch(1))
    assert log.read(1, 50, 11, at_least_one=False).range is None
    result = log.read(1, 50, 11, at_least_one=True)
    assert result.range is not None
    assert len(result.range) == len(data)
    result.range.release()


def test_a_known_boundary_is_forgotten_when_the_segment_ends_or_shrinks(place: Place) -> None:
    """The position kept by a read at the log end is used only while the file has the same bytes before it."""
    log = place.open()
    append(log, batch(2))
    assert log.read(2, 1000, 2, at_least_one=True).range is None
    log.roll(NOW_MS)
    append(log, batch(3))
    assert [b.base_offset for b in read_all(log, 2)] == [2]
    append(log, batch(4))
    assert log.read(9, 1000, 9, at_least_one=True).range is None
    log.truncate_to(5)
    append(log, batch(2))
    append(log, batch(2))
    append(log, batch(20))
    append(log, batch(1))
    assert [b.base_offset for b in read_all(log, 9)] == [9, 29]


def test_bound_cuts_at_a_batch(place: Place) -> None:
    log = place.open()
    sizes = [len(batch(n)) for n in (2, 3, 4)]
    for n in (2, 3, 4):
        append(log, batch(n))
    for bound, size in ((2, sizes[0]), (5, sizes[0] + sizes[1]), (9, sum(sizes)), (100, sum(sizes))):
        result = log.read(0, 10_000, bound, at_least_one=True)
        assert result.range is not None
        assert len(result.range) == size
        result.range.release()


def test_a_range_is_sent_by_sendfile(disk: Place) -> None:
    log = disk.open()
    append(log, batch(5))
    result = log.read(0, 1000, 5, at_least_one=True)
    assert result.range is not None
    reading, writing = os.pipe()
    sent = os.sendfile(writing, result.range.fd, result.range.position, len(result.range))
    assert os.read(reading, 10_000) == result.range.read()
    assert sent == len(result.range)
    result.range.release()
    os.close(reading)
    os.close(writing)


def test_a_lease_outlives_deletion_of_its_segment(place: Place) -> None:
    """The file may be renamed or removed, and the log deleted, while bytes are sent."""
    log = place.open(retention_ms=1000)
    append(log, batch(5))
    result = log.read(0, 1000, 5, at_least_one=True)
    assert result.range is not None
    expected = result.range.read()
    assert log.delete_old_segments(NOW_MS + 5000, 5) == 1
    log.delete_due_files(NOW_MS + 100_000)
    assert result.range.read() == expected
    log.close_files()
    place.filesystem.remove_tree(log.path)
    assert result.range.read() == expected
    result.range.release()
    result.range.release()


def test_dropped_ranges_give_their_lease_back(memory: Place) -> None:
    log = memory.open()
    append(log, batch())
    log.read(0, 1000, 1, at_least_one=True)
    log.close()
    assert memory.filesystem.open_count == 0  # type: ignore[attr-defined]


def test_descriptors_are_bounded(memory: Place) -> None:
    """Many used partitions share a limited number of descriptors; idle ones have none."""
    files = OpenFiles(memory.filesystem, 10)
    logs = [PartitionLog.open(f"/logs/x-{n}", "x", n, LogConfig(), open_files=files, now_ms=NOW_MS) for n in range(100)]
    assert memory.filesystem.open_count == 0  # type: ignore[attr-defined]
    for _ in range(3):
        for log in logs:
            append(log, batch(2))
    assert memory.filesystem.open_count <= 10  # type: ignore[attr-defined]
    leased = [log.read(0, 1000, 6, at_least_one=True) for log in logs]
    assert all(one.range is not None and one.range.read() for one in leased)
    del leased
    for log in logs:
        assert offsets(log) == list(range(6))
    assert memory.filesystem.open_count <= 101  # type: ignore[attr-defined]


def test_an_idle_log_touches_no_files(memory: Place) -> None:
    """1,000 idle partitions: opening them after a clean stop reads nothing."""
    log = memory.open()
    append(log, batch(3))
    log.close()
    memory.filesystem.calls.clear()  # type: ignore[attr-defined]
    log = memory.open(is_clean=True, recovery_point=3, end_offset=3)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    # One listing of the directory, and only because the test asks for the log start.
    assert memory.filesystem.calls == {"exists": 1, "list": 1}  # type: ignore[attr-defined]


def test_system_calls_of_an_append_and_of_a_read_at_the_end(memory: Place) -> None:
    """One write per append besides index entries; a consumer at the end costs no read."""
    log = memory.open()
    append(log, batch())
    calls = memory.filesystem.calls  # type: ignore[attr-defined]
    calls.clear()
    for n in range(1, 20):
        append(log, batch())
        assert log.read(n, 1000, n + 1, at_least_one=True).range is not None
        assert log.read(n + 1, 1000, n + 1, at_least_one=True).range is None
    assert calls["append"] == 19
    assert calls.get("read", 0) <= 2


def test_raft_appends_control_batches(place: Place) -> None:
    log = place.open(name="__cluster_metadata-0")
    control = build_batch([Record(0, NOW_MS, b"\0\0\0\2", b"x")], is_control=True)
    log.append_as_leader(control, 3, NOW_MS, AppendOrigin.RAFT)
    [stored] = log.iter_batches()
    assert stored.is_control
    assert stored.partition_leader_epoch == 3


def test_a_log_that_stands_alone_needs_only_a_file_system(tmp_path: os.PathLike[str]) -> None:
    log = PartitionLog.open(f"{tmp_path}/a-0", "a", 0, LogConfig(), open_files=OpenFiles(OsFileSystem()), now_ms=NOW_MS)
    append(log, batch())
    assert log.log_end_offset == 1
    log.close()


def test_space_ahead_is_not_needed_where_there_is_none(disk: Place) -> None:
    """Near the end of the space (here the file's size limit) a batch that just fits is still appended."""
    log = disk.open()
    append(log, batch(1))
    disk.settle()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        append(log, batch(40, value_size=100))
        with pytest.raises(StorageError):
            append(log, batch(40, value_size=100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append(log, batch(1))
    assert offsets(log) == list(range(42))


def test_a_large_log_is_read_back_as_it_was_written(disk: Place) -> None:
    """Over several windows of the mapping, of all sizes of step, with batches larger than one."""
    log = disk.open(max_message_bytes=1 << 24)
    sizes = [10, 70_000, 300_000, 5_000_000, 100, 3_000_000, 1_000_000, 20_000, 4_000_000]
    sent = [batch(1, value_size=size) for size in sizes]
    for data in sent:
        append(log, data)
    stored = read_all(log)
    assert all(one.to_bytes()[16:] == data[16:] for one, data in zip(stored, sent, strict=True))
    log.close()
    assert log.size_bytes == disk.filesystem.file_size(f"{log.path}/{0:020d}.log") == sum(map(len, sent))


def test_a_write_that_fails_half_way_is_taken_back(disk: Place) -> None:
    """On the real file system, with a limit on the file's size beyond which no space can be allocated."""
    log = disk.open()
    append(log, batch(1))
    size = log.size_bytes
    disk.settle()  # frees the space that is allocated ahead
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
    try:
        with pytest.raises(StorageError):
            append(log, batch(100, value_size=100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(disk.content(f"{0:020d}.log")) == size
    assert append(log, batch(100, value_size=100)).first_offset == 1
    assert offsets(log) == list(range(101))


def followed(*batches: bytes) -> bytes:
    """Batches as a leader sends them: with offsets from 0 and leader epoch 0."""
    place = Place(FakeFileSystem(), "/leader")
    log = place.open()
    for data in batches:
        append(log, data)
    return b"".join(one.to_bytes() for one in log.iter_batches())


def with_crc(data: bytearray) -> bytes:
    """One batch with the CRC of its bytes."""
    data[CRC_POSITION : CRC_POSITION + 4] = crc32c(bytes(data[ATTRIBUTES_POSITION:])).to_bytes(4, "big")
    return bytes(data)


def test_a_follower_refuses_batches_that_cannot_be(place: Place) -> None:
    """Each has a correct CRC or is cut off; none has any effect."""
    log = place.open()
    backwards = bytearray(followed(batch()))
    backwards[LAST_OFFSET_DELTA_POSITION : LAST_OFFSET_DELTA_POSITION + 4] = (-1).to_bytes(4, "big", signed=True)
    whole = followed(batch(3))
    for data, text in (
        (with_crc(backwards), "the batch at 0 ends at 0"),
        (whole[:-1], f"no whole batch in {len(whole) - 1} bytes"),
        (whole[:20], "no whole batch in 20 bytes"),
        (b"", "no whole batch in 0 bytes"),
    ):
        with pytest.raises(CorruptRecord, match=text):
            log.append_as_follower(data, NOW_MS, 0)
    assert (log.log_end_offset, offsets(log)) == (0, [])
    log.append_as_follower(whole, NOW_MS, 0)
    assert offsets(log) == [0, 1, 2]


def test_a_follower_takes_nothing_of_a_later_epoch_than_it_follows(place: Place) -> None:
    """KAFKA-18723: the leader has changed since the fetch; records of the next leader must come from a fetch to it."""
    leader = place.open(name="leader-0")
    append(leader, batch(2), epoch=3)
    append(leader, batch(1), epoch=4)
    data = b"".join(one.to_bytes() for one in leader.iter_batches())
    log = place.open()
    result = log.append_as_follower(data, NOW_MS, 3)
    assert (result.first_offset, result.last_offset) == (0, 1)
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (2, 3)
    assert [one.partition_leader_epoch for one in read_all(log)] == [3]


def test_a_coordinator_appends_whole_batches(place: Place) -> None:
    log = place.open()
    with pytest.raises(ValueError, match="at least one whole batch"):
        log.append_as_leader(batch()[:30], 0, NOW_MS, AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 0


def test_the_largest_timestamp_of_a_header_that_no_record_has(place: Place) -> None:
    """Other brokers may have written such a header; ListOffsets then answers that there is no such record."""
    log = place.open()
    data = bytearray(followed(batch(2)))
    data[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = (NOW_MS + 77).to_bytes(8, "big")
    log.append_as_follower(with_crc(data), NOW_MS, 0)
    assert log.max_timestamp_offset() is None


def test_a_log_that_was_not_used_writes_nothing_at_its_end(memory: Place) -> None:
    log = memory.open()
    append(log, batch())
    log.close()
    again = memory.open(is_clean=True)
    before = dict(memory.filesystem.calls)  # type: ignore[attr-defined]
    assert again.write_end() is False
    assert not again.is_loaded
    assert memory.filesystem.calls == before  # type: ignore[attr-defined]


def test_a_flush_that_cannot_open_a_file_leaves_no_lease(memory: Place) -> None:
    """It may be tried again, and the files that it had opened can be closed."""
    filesystem = memory.filesystem
    assert isinstance(filesystem, FakeFileSystem)
    log = memory.open(segment_bytes=200)
    for _ in range(6):
        append(log, batch())
    log.close_files()
    files = [segment.file for segment in log.segments]
    assert len(files) > 2
    files[0].descriptor()
    filesystem.fail_next["open"] = StorageError("t-0", "Too many open files")
    with pytest.raises(StorageError, match="Too many open files"):
        log.begin_flush(include_active=True)
    assert [file.leases for file in files] == [0] * len(files)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 6


def test_the_space_ahead_that_could_not_be_cut_off_is_cut_off_at_the_end(memory: Place) -> None:
    filesystem = memory.filesystem
    assert isinstance(filesystem, FakeFileSystem)
    log = memory.open()
    append(log, batch())
    size = log.size_bytes
    path = f"{log.path}/{0:020d}.log"
    filesystem.fail_next["trim"] = StorageError(path, "Input/output error")
    with pytest.raises(StorageError):
        log.close_files()
    assert filesystem.file_size(path) > size
    log.close()
    assert filesystem.file_size(path) == size
