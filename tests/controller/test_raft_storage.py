"""RaftStorage: snapshots and the log beside them, when a leader's snapshot replaces both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import Entries
from pykbroker.controller.raft.output import Output
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.controller.raft_storage import RaftStorage, StorageSettings
from pykbroker.controller.snapshot_file import list_snapshots, snapshot_content, snapshot_name
from pykbroker.logstore.errors import CorruptFile, CorruptSegment, StorageError
from pykbroker.protocol.records.batch import RecordBatch, frames_in_steps
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from tests.support.fake_filesystem import FakeFileSystem

DATA = "/data"
DIRECTORY = f"{DATA}/__cluster_metadata-0"
FROM_LEADER = OffsetAndEpoch(50, 3)


def opened(filesystem: FakeFileSystem) -> RaftStorage:
    filesystem.make_directory(DATA)
    return RaftStorage.open(DATA, filesystem=filesystem, settings=StorageSettings(), now_ms=0)


def append(storage: RaftStorage, base_offset: int, count: int) -> None:
    output = Output()
    output.entries = [Entries(base_offset, 1, count, finished(frames_in_steps([(None, b"record")] * count)))]
    storage.persist(output, 0, VoterSet(()))


def content_of(snapshot: OffsetAndEpoch) -> bytes:
    return snapshot_content(snapshot.epoch, [b"value"], log_timestamp_ms=0, now_ms=0)


def take(storage: RaftStorage, snapshot: OffsetAndEpoch) -> None:
    storage.write_snapshot(snapshot, content_of(snapshot))
    storage.truncate_behind(snapshot, 0)


def test_a_snapshot_that_was_begun_before_the_leaders_was_installed_is_dropped() -> None:
    """A thread writes this node's snapshot while a newer one is downloaded; the log before the newer one is gone."""
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    append(storage, 0, 10)
    own = OffsetAndEpoch(10, 1)
    storage.write_snapshot(own, content_of(own))
    storage.install_snapshot(FROM_LEADER, content_of(FROM_LEADER), 0)
    assert storage.truncate_behind(OffsetAndEpoch(10, 1), 0) == FROM_LEADER
    assert storage.snapshots == list_snapshots(filesystem, DIRECTORY) == [FROM_LEADER]
    storage.close()
    again = opened(filesystem)
    assert again.log_view().start == FROM_LEADER
    assert again.end_offset == 50


def test_the_records_of_a_batch_are_read_as_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may have thousands of records, and other tasks must not wait for all of them."""
    records_of_batch = RecordBatch.records
    read = 0

    def counted(batch: RecordBatch) -> Iterator[Record]:
        nonlocal read
        for record in records_of_batch(batch):
            read += 1
            yield record

    storage = opened(FakeFileSystem())
    append(storage, 0, 100)
    monkeypatch.setattr(RecordBatch, "records", counted)
    (batch,) = storage.read(0, 100)
    values = iter(batch.values)
    assert (next(values), read) == (b"record", 1)
    assert ([*values], read) == ([b"record"] * 99, 100)


def failing(filesystem: FakeFileSystem, kept: str) -> Callable[[], None]:
    """Lets the removal of one file fail, until the returned function is called."""
    remove = filesystem.remove

    def fail(path: str) -> None:
        if path == kept:
            raise StorageError(path, "the power failed")
        remove(path)

    filesystem.remove = fail  # type: ignore[method-assign]

    def restore() -> None:
        filesystem.remove = remove  # type: ignore[method-assign]

    return restore


def test_older_snapshots_that_a_crash_left_beside_the_leaders_do_not_start_the_log() -> None:
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    append(storage, 0, 10)
    take(storage, OffsetAndEpoch(5, 1))
    take(storage, OffsetAndEpoch(10, 1))
    restore = failing(filesystem, f"{DIRECTORY}/{snapshot_name(OffsetAndEpoch(5, 1))}")
    with pytest.raises(StorageError):
        storage.install_snapshot(FROM_LEADER, content_of(FROM_LEADER), 0)
    restore()
    again = opened(filesystem)
    assert again.end_offset == 50
    assert again.log_view().start == FROM_LEADER, "the log has no record before the leader's snapshot"
    append(again, 50, 5)
    take(again, OffsetAndEpoch(55, 1))
    assert again.log_view().start == FROM_LEADER
    assert list_snapshots(filesystem, DIRECTORY) == [FROM_LEADER, OffsetAndEpoch(55, 1)]


def test_a_restart_after_the_leaders_snapshot_was_installed_begins_at_its_end() -> None:
    """With epoch 0 instead of the snapshot's, the leader would find a divergence at the next Fetch."""
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    storage.install_snapshot(FROM_LEADER, content_of(FROM_LEADER), 0)
    storage.close()
    assert opened(filesystem).log_view().end == FROM_LEADER


def test_a_batch_that_is_missing_or_damaged_ends_a_read_with_the_way_to_repair_it() -> None:
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    append(storage, 0, 3)
    append(storage, 3, 3)
    assert [batch.base_offset for batch in storage.read(0, 6)] == [0, 3]
    with pytest.raises(CorruptFile, match="no valid record batch at offset 6"):
        list(storage.read(0, 9))
    storage.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    content = filesystem.read_file(path)
    assert content is not None
    damaged = bytearray(content)
    damaged[-1] ^= 1
    storage = opened(filesystem)
    filesystem.write_file(path, bytes(damaged))
    storage._log.close_files()
    with pytest.raises(CorruptFile, match="no valid record batch at offset 3"):
        list(storage.read(0, 6))


def test_a_log_whose_end_is_missing_after_a_clean_stop_is_opened_as_after_a_crash() -> None:
    """A start after that stop appended a batch, lost a part of it, and ended before it removed the mark of the stop."""
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    append(storage, 0, 3)
    append(storage, 3, 3)
    storage.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    content = filesystem.read_file(path)
    assert content is not None
    filesystem.write_file(path, content[:-1])
    again = RaftStorage.open(DATA, filesystem=filesystem, settings=StorageSettings(), now_ms=0, is_clean=True)
    assert again.end_offset == 3
    append(again, 3, 1)
    assert [batch.base_offset for batch in again.read(0, 4)] == [0, 3]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_a_scan_does_not_repair_refuses_the_start(is_clean: bool) -> None:
    """A segment under the name of an interrupted compaction is read if the one that it replaces is gone."""
    filesystem = FakeFileSystem()
    storage = opened(filesystem)
    append(storage, 0, 3)
    storage.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    content = filesystem.read_file(path)
    assert content is not None
    filesystem.remove(path)
    filesystem.write_file(f"{path}.swap", content[:-1])
    with pytest.raises(CorruptSegment, match="the last record batch is cut off"):
        RaftStorage.open(DATA, filesystem=filesystem, settings=StorageSettings(), now_ms=0, is_clean=is_clean)
    assert filesystem.read_file(f"{path}.swap") == content[:-1]
