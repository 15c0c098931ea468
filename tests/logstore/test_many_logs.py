"""Cost of many logs: the calls of a first append, and one sync for a stop that closes all of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore import append_mapping, volume_sync
from pykbroker.logstore.checkpoint_file import read_offsets
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.log_directory import VOLUME_SYNC_LOGS_MIN, LogDirectory
from pykbroker.logstore.open_files import OpenFiles, SegmentFile
from pykbroker.logstore.partition_log import PartitionLog
from tests.logstore.support import NOW_MS, TOPIC_ID, Place, append, batch, offsets
from tests.logstore.test_log_directory import CONFIG, content, start

MANY = VOLUME_SYNC_LOGS_MIN + 4
REFUSED = StorageError("volume", "Input/output error")


def _with_records(place: Place, count: int = MANY) -> LogDirectory:
    directory = start(place)
    for number in range(count):
        append(directory.create_log("t", number, TOPIC_ID, CONFIG, NOW_MS), batch(3), epoch=2)
    return directory


def _calls(place: Place) -> dict[str, int]:
    calls: dict[str, int] = place.filesystem.calls  # type: ignore[attr-defined]
    return calls


def test_a_stop_makes_many_logs_durable_by_one_sync(memory: Place) -> None:
    """After a loss of power nothing is missing, and the start checks nothing."""
    directory = _with_records(memory)
    calls = _calls(memory)
    calls.clear()
    directory.close()
    assert calls["sync_volume"] == 1
    assert "sync" not in calls
    assert "sync_file" not in calls
    assert "sync_directory" not in calls
    memory.filesystem.crash()  # type: ignore[attr-defined]
    directory = start(memory)
    assert directory.was_clean
    for log in directory:
        assert memory.names(f"data/t-{log.partition}") == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
        assert (offsets(log), log.leader_epochs.latest_epoch, log.recovery_point) == ([0, 1, 2], 2, 3)
    directory.close()


def test_a_stop_with_few_logs_leaves_the_volume_alone(memory: Place) -> None:
    """A stop does not wait for the data that other programs write to the volume."""
    directory = _with_records(memory, 3)
    _calls(memory).clear()
    directory.close()
    assert "sync_volume" not in _calls(memory)
    assert _calls(memory)["sync"] >= 3


def test_each_log_is_asked_when_the_volume_could_not_be_synced(memory: Place) -> None:
    """The error may be about any file of any program."""
    directory = _with_records(memory)
    _calls(memory).clear()
    memory.filesystem.fail_next["sync_volume"] = REFUSED  # type: ignore[attr-defined]
    directory.close()
    assert _calls(memory)["sync"] >= MANY
    assert content(memory, ".kafka_cleanshutdown") is not None
    memory.filesystem.crash()  # type: ignore[attr-defined]
    assert all(offsets(log) == [0, 1, 2] for log in start(memory))


def test_without_such_a_sync_each_log_has_its_own(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _with_records(memory)
    monkeypatch.setattr(memory.filesystem, "sync_volume", lambda handle: False)
    _calls(memory).clear()
    directory.close()
    assert _calls(memory)["sync"] >= MANY
    assert content(memory, ".kafka_cleanshutdown") is not None


def test_what_its_own_sync_refused_stays_in_doubt_and_nothing_else(memory: Place) -> None:
    """The system reports lost pages once: a later sync of the volume that succeeds proves nothing for this log."""
    directory = _with_records(memory)
    log = directory.get("t", 5)
    assert log is not None
    memory.filesystem.fail_next["sync"] = REFUSED  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        log.flush()
    directory.close()
    assert content(memory, ".kafka_cleanshutdown") is None
    points = read_offsets(memory.filesystem, f"{memory.folder}/data/recovery-point-offset-checkpoint")
    assert {key: point for key, point in points.items() if point != 3} == {("t", 5): 0}


def test_a_kill_before_the_end_of_the_sync_leaves_no_mark(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _with_records(memory)
    before = content(memory, "recovery-point-offset-checkpoint")

    class Killed(BaseException):
        pass

    def kill(handle: int) -> bool:
        raise Killed

    monkeypatch.setattr(memory.filesystem, "sync_volume", kill)
    with pytest.raises(Killed):
        directory.close()
    assert content(memory, ".kafka_cleanshutdown") is None
    assert content(memory, "recovery-point-offset-checkpoint") == before
    monkeypatch.undo()
    directory = start(memory)
    assert not directory.was_clean
    assert all(offsets(log) == [0, 1, 2] for log in directory)


def test_the_first_append_makes_one_file(memory: Place) -> None:
    """A new log has nothing to read; files that a recovery can make again are written later."""
    directory = start(memory)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    _calls(memory).clear()
    append(log, batch(1))
    assert _calls(memory) == {"open": 1, "append": 1}


def test_a_stop_does_not_open_logs_that_are_closed(memory: Place) -> None:
    directory = _with_records(memory)
    directory.open_files.close_all()
    _calls(memory).clear()
    directory.close()
    assert _calls(memory)["open"] == 2 * MANY, "the two indexes of each"


def test_a_file_that_gets_little_is_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = OsFileSystem()
    path = str(tmp_path / "log")
    allocations: list[int] = []
    allocate = os.posix_fallocate

    def counted(descriptor: int, position: int, size: int) -> None:
        allocations.append(size)
        allocate(descriptor, position, size)

    monkeypatch.setattr(os, "posix_fallocate", counted)
    descriptor = filesystem.open(path, create=True)
    size = append_mapping.BUSY_SIZE // 4
    for number in range(12):
        if number == 4:
            # Half a second later.
            filesystem.trim_idle()
        filesystem.append_mapped(descriptor, (b"x" * size,), size, number * size, path)
        assert bool(allocations) is (number >= 8), number
    filesystem.close(descriptor)
    assert filesystem.read_file(path) == b"x" * (12 * size)


def test_the_files_that_are_closed_are_those_used_least(tmp_path: Path) -> None:
    """Some of them have leases; the file that was just opened is never closed."""
    open_files = OpenFiles(OsFileSystem(), limit=3)
    files = [SegmentFile(str(tmp_path / str(number)), open_files) for number in range(6)]
    for file in files[:3]:
        file.descriptor(create=True)
    files[0].acquire()
    files[1].descriptor()
    files[3].descriptor(create=True)
    assert [file.is_open for file in files] == [True, True, False, True, False, False]
    files[4].descriptor(create=True)
    assert [file.is_open for file in files] == [True, False, False, True, True, False]
    files[0].release()
    files[5].descriptor(create=True)
    assert [file.is_open for file in files] == [False, False, False, True, True, True]
    open_files.close_all()


class _Library:
    """A C library whose volume is of some type and whose syncfs fails."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self.synced = 0

    def fstatfs(self, descriptor: int, about: Any) -> int:
        about[:4] = self._kind.to_bytes(4, "little")
        return 0

    def syncfs(self, descriptor: int) -> int:
        self.synced += 1
        return -1


def test_only_volumes_that_tell_of_errors_are_synced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem = OsFileSystem()
    handle = filesystem.lock(str(tmp_path / ".lock"))
    assert filesystem.sync_volume(handle) in (True, False)
    overlay, ext4 = _Library(0x794C7630), _Library(0xEF53)
    monkeypatch.setattr(volume_sync, "_library", lambda: overlay)
    assert not filesystem.sync_volume(handle)
    assert overlay.synced == 0
    monkeypatch.setattr(volume_sync, "_library", lambda: ext4)
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EIO)
    with pytest.raises(StorageError, match="Input/output error"):
        filesystem.sync_volume(handle)
    monkeypatch.setattr(volume_sync, "_library", lambda: None)
    assert not filesystem.sync_volume(handle)
    filesystem.unlock(handle)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5.8.0", (5, 8)), ("6.1.0-18-amd64", (6, 1)), ("5.10-rc1", (5, 10)), ("4", (0, 0)), ("x.y", (0, 0))],
)
def test_releases_of_the_kernel(text: str, expected: tuple[int, int]) -> None:
    assert volume_sync.release(text) == expected


def end(log: PartitionLog) -> None:
    """The part of a stop of many logs that each log does itself: all but the sync."""
    log.write_end(without_empty_snapshot=True)
    log.close_files()


def test_no_snapshot_is_left_of_no_producers(memory: Place) -> None:
    """The next start reads no batch, and later producers outlive a truncation."""
    log = memory.open()
    for _ in range(20):
        append(log, batch(10))
    end(log)
    assert not [name for name in memory.names() if name.endswith(".snapshot")]
    _calls(memory).clear()
    log = memory.open(is_clean=True)
    assert (log.log_end_offset, log.producers.producers) == (200, {})
    assert "view" not in _calls(memory)
    append(log, batch(5, producer_id=7, producer_epoch=0, base_sequence=0))
    append(log, batch(5, producer_id=8, producer_epoch=0, base_sequence=0))
    log.truncate_to(205)
    assert set(log.producers.producers) == {7}
    log.truncate_to(150)
    assert log.producers.producers == {}
    append(log, batch(1, producer_id=9, producer_epoch=0, base_sequence=0))
    append(log, batch(1))
    assert log.truncate_to(151)
    assert set(log.producers.producers) == {9}, "below where no producer was known at the start"
    end(log)
    assert f"{151:020d}.snapshot" in memory.names()
    log = memory.open(is_clean=True)
    assert set(log.producers.producers) == {9}


def test_producers_are_known_after_a_kill_without_a_snapshot(memory: Place) -> None:
    log = memory.open()
    append(log, batch(5))
    end(log)
    log = memory.open(is_clean=True)
    append(log, batch(5, producer_id=7, producer_epoch=0, base_sequence=0))
    log.flush()
    log = memory.open(recovery_point=10)
    assert set(log.producers.producers) == {7}


def test_a_volume_whose_type_is_unknown_or_a_system_without_the_call_is_not_synced_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each log is synced by itself then."""
    assert volume_sync._type_of(Refusing(), 3) == 0
    monkeypatch.setattr(volume_sync, "_library", Refusing)
    assert volume_sync.sync_volume(3) is False
    monkeypatch.undo()
    monkeypatch.setattr(volume_sync, "_FIRST_RELEASE", (999, 0))
    assert volume_sync._library() is None


class Refusing:
    """A C library whose fstatfs fails."""

    def fstatfs(self, descriptor: int, about: object) -> int:
        return -1
