"""Several log directories on a file system in memory: places of logs, failures of one directory, clean stops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from pykbroker.logstore.blocking_step import BlockingStep
from pykbroker.logstore.directory_checkpoints import (
    ENTRIES_PER_STEP,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from pykbroker.logstore.errors import InconsistentDirectory, StorageError
from pykbroker.logstore.filesystem import DirectoryEntry
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directories import NO_REPLICA, LogDirectories
from pykbroker.logstore.log_directory import CLEAN_SHUTDOWN, LogDirectory
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.uuids import uuid_to_text
from tests.support.fake_filesystem import FakeFileSystem

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
UNASSIGNED = bytes(15) + b"\1"
CONFIG = LogConfig()
DELAY_MS = 60_000
NOW_MS = 1_000_000


def opened(filesystem: FakeFileSystem, *ids: bytes, unopened: tuple[str, ...] = ()) -> LogDirectories:
    """Directories /a, /b, /c, with their logs."""
    directories = LogDirectories(
        {
            directory_id: LogDirectory.open(f"/{chr(directory_id[0])}", filesystem=filesystem)
            for directory_id in ids or (A, B)
        },
        unopened,
    )
    directories.load_logs(lambda topic: CONFIG, NOW_MS)
    return directories


def create(directories: LogDirectories, partition: int, assigned: bytes | None = None) -> str:
    """Creates a log; the path of its directory."""
    return directories.create_log("t", partition, bytes(16), CONFIG, NOW_MS, assigned).path


def test_a_new_log_goes_where_the_fewest_are() -> None:
    """P-275."""
    directories = opened(FakeFileSystem(), A, B, C)
    assert [create(directories, number)[:2] for number in range(5)] == ["/a", "/b", "/c", "/a", "/b"]
    directories.delete_log("t", 0, NOW_MS)
    directories.delete_log("t", 3, NOW_MS)
    assert create(directories, 9) == "/a/t-9"
    assert len(directories) == 4
    assert directories.id_of("t", 1) == B
    assert directories.id_of("t", 77) is None
    assert create(directories, 1) == "/b/t-1", "it is there already"


def test_a_directory_that_was_asked_for() -> None:
    """P-278: AlterReplicaLogDirs before the metadata, the metadata before the number of logs."""
    directories = opened(FakeFileSystem())
    assert create(directories, 0, B) == "/b/t-0"
    assert create(directories, 1, B) == "/b/t-1"
    directories.prefer("t", 2, B)
    assert create(directories, 2, A) == "/b/t-2"
    assert create(directories, 3, UNASSIGNED) == "/a/t-3"
    directories.delete_log("t", 2, NOW_MS)
    assert create(directories, 2) == "/a/t-2", "the wish was for the first log alone"


def test_a_cordoned_directory_gets_no_new_logs() -> None:
    """P-370: except a log that is assigned to it, and except the first directory if all are cordoned."""
    directories = opened(FakeFileSystem())
    directories.cordoned = frozenset((A,))
    assert [create(directories, number) for number in range(2)] == ["/b/t-0", "/b/t-1"]
    assert create(directories, 2, A) == "/a/t-2"
    directories.cordoned = frozenset((A, B))
    assert create(directories, 3) == "/a/t-3"


def test_what_was_written_is_found_after_a_stop() -> None:
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(4):
        create(directories, number)
    log = directories.get("t", 1)
    assert log is not None
    log.append_as_leader(bytearray(build_batch([Record(0, NOW_MS, None, b"v", ())])), 0, NOW_MS)
    directories.close(7, {("t", number): number for number in range(4)})
    for path in ("/a", "/b"):
        assert filesystem.exists(f"{path}/{CLEAN_SHUTDOWN}")
        assert filesystem.exists(f"{path}/{RECOVERY_POINTS}")
    again = opened(filesystem)
    assert {key[1]: log.path for key, log in again.logs.items()} == {0: "/a/t-0", 2: "/a/t-2", 1: "/b/t-1", 3: "/b/t-3"}
    assert again.high_watermarks() == {("t", number): number for number in range(4)}
    assert [directory.previous_broker_epoch for directory in again.online.values()] == [7, 7]
    assert (again.was_clean, again.clean_broker_epoch) == (True, 7)
    found = again.get("t", 1)
    assert found is not None
    assert found.log_end_offset == 1


def test_each_checkpoint_has_the_logs_of_its_directory() -> None:
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(4):
        create(directories, number)
    for _ in directories.write_checkpoints((("t", number), 5) for number in range(4)):
        pass
    lines = (filesystem.read_file(f"/b/{HIGH_WATERMARKS}") or b"").decode().splitlines()
    assert sorted(lines[2:]) == ["t 1 5", "t 3 5"]
    for _ in directories.write_cleaner_offsets({("t", 0): 3, ("t", 1): 4}.items):
        pass
    assert directories.cleaner_offsets() == {("t", 0): 3, ("t", 1): 4}
    assert directories.online[A].cleaner_offsets() == {("t", 0): 3}


def test_a_partition_has_one_log() -> None:
    """P-276: the operator must remove the copy in a second directory."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    create(directories, 0)
    append(directories.online[A].logs["t", 0])
    append(directories.online[B].create_log("t", 0, bytes(16), CONFIG, NOW_MS))
    directories.close()
    with pytest.raises(InconsistentDirectory, match=r"/b/t-0.*/a has a log of this partition too"):
        opened(filesystem)


@pytest.mark.parametrize(("filled", "kept"), [((A,), "/a/t-0"), ((B,), "/b/t-0"), ((), "/a/t-0")])
def test_a_log_that_never_had_a_record_gives_way(filled: tuple[bytes, ...], kept: str) -> None:
    """P-276: its directory failed while the log was created, before the metadata had the replica's directory."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    create(directories, 0)
    directories.online[B].create_log("t", 0, bytes(16), CONFIG, NOW_MS)
    for directory_id in filled:
        append(directories.online[directory_id].logs["t", 0])
    directories.close()
    assert [log.path for log in opened(filesystem).logs.values()] == [kept]


@pytest.mark.parametrize(
    ("places", "kept"),
    [
        ((A, A), "/a/t-0"),
        ((B, B), "/b/t-0"),
        ((NO_REPLICA, B), "/b/t-0"),
        ((A, NO_REPLICA), "/a/t-0"),
        ((C, NO_REPLICA), "/a/t-0"),
        ((UNASSIGNED, UNASSIGNED), None),
        ((C, C), None),
    ],
)
def test_the_metadata_tells_which_of_two_logs_is_stray(places: tuple[bytes, bytes], kept: str | None) -> None:
    """P-276: one directory was offline when the log was moved to the other one, or when its topic was deleted."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    create(directories, 0)
    append(directories.online[A].logs["t", 0])
    append(directories.online[B].create_log("t", 0, bytes(16), CONFIG, NOW_MS))
    directories.close()
    again = LogDirectories(
        {known: LogDirectory.open(f"/{chr(known[0])}", filesystem=filesystem) for known in (A, B)},
    )
    assigned_directory = {"/a/t-0": places[0], "/b/t-0": places[1]}
    if kept is None:
        with pytest.raises(InconsistentDirectory, match="remove one of the two"):
            again.load_logs(lambda topic: CONFIG, NOW_MS, assigned_directory=lambda log: assigned_directory[log.path])
        return
    reports: list[str] = []
    again.load_logs(lambda topic: CONFIG, NOW_MS, reports.append, lambda log: assigned_directory[log.path])
    assert [log.path for log in again.logs.values()] == [kept]
    other = "/b" if kept.startswith("/a") else "/a"
    assert [name for name, _ in filesystem.list(other) if name.endswith("-stray")]
    assert "is marked stray" in reports[-1]


class Unreadable(FakeFileSystem):
    """A file system on which no file below a path can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.failing_path = "-"

    def read_file(self, path: str) -> bytes | None:
        if path.startswith(self.failing_path):
            raise StorageError(path, "Input/output error")
        return super().read_file(path)


def test_a_directory_that_cannot_be_read_is_offline_from_the_start() -> None:
    """As in Kafka's LogManager; a log that the metadata has there is not created elsewhere."""
    filesystem = Unreadable()
    directories = opened(filesystem)
    for number in range(4):
        create(directories, number)
    directories.close(7, {})
    again = LogDirectories(
        {each: LogDirectory.open(f"/{chr(each[0])}", filesystem=filesystem) for each in (A, B)},
    )
    filesystem.failing_path = "/a/"
    reported: list[str] = []
    again.load_logs(lambda topic: CONFIG, NOW_MS, reported.append)
    assert (list(again.online), again.offline) == ([B], {A: "/a"})
    assert reported == [
        "/a cannot be read and is offline until the next start: /a/recovery-point-offset-checkpoint: Input/output error"
    ]
    assert sorted(again.logs) == [("t", 1), ("t", 3)]
    with pytest.raises(StorageError):
        create(again, 0, A)
    assert again.high_watermarks() == {}


def test_the_last_directory_has_to_be_readable() -> None:
    filesystem = Unreadable()
    opened(filesystem).close(7, {})
    again = LogDirectories(
        {each: LogDirectory.open(f"/{chr(each[0])}", filesystem=filesystem) for each in (A, B)},
    )
    filesystem.failing_path = "/"
    with pytest.raises(StorageError, match=r"^/b/"):
        again.load_logs(lambda topic: CONFIG, NOW_MS)


def test_a_checkpoint_that_cannot_be_read_is_taken_for_empty() -> None:
    filesystem = Unreadable()
    directories = opened(filesystem)
    for number in range(2):
        create(directories, number)
    directories.close(7, {("t", 0): 0, ("t", 1): 0})
    again = opened(filesystem)
    filesystem.failing_path = f"/a/{HIGH_WATERMARKS}"
    assert again.high_watermarks() == {("t", 1): 0}
    filesystem.failing_path = "/a/cleaner"
    assert again.cleaner_offsets() == {}


def test_a_failed_directory_takes_its_logs_and_no_others() -> None:
    """P-276: they are not created elsewhere while it is offline."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(4):
        create(directories, number)
    assert sorted(directories.take_offline(B)) == [("t", 1), ("t", 3)]
    assert directories.offline == {B: "/b"}
    assert directories.has_failed
    assert directories.get("t", 1) is None
    with pytest.raises(StorageError, match="offline"):
        create(directories, 1, B)
    with pytest.raises(StorageError, match="offline"):
        create(directories, 1, UNASSIGNED)
    assert create(directories, 4, UNASSIGNED) == "/a/t-4"
    directories.delete_log("t", 1, NOW_MS)
    assert create(directories, 1, UNASSIGNED) == "/a/t-1", "a new topic of this name"
    directories.close()
    assert filesystem.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert not filesystem.exists(f"/b/{CLEAN_SHUTDOWN}")


def test_a_directory_that_was_missing_at_the_start() -> None:
    """P-276: the metadata has the replicas in it."""
    directories = opened(FakeFileSystem(), A, unopened=("/b",))
    with pytest.raises(StorageError, match="offline"):
        create(directories, 0, B)
    assert create(directories, 1, A) == "/a/t-1"
    assert create(directories, 2, UNASSIGNED) == "/a/t-2"


@pytest.mark.parametrize("assigned", [None, bytes(16), bytes(15) + b"\2"], ids=["none", "migrating", "lost"])
def test_a_log_that_may_be_in_the_missing_directory_is_not_made_anew(assigned: bytes | None) -> None:
    """P-443: an empty log in another directory would lead in place of the one on the missing disk."""
    directories = opened(FakeFileSystem(), A, unopened=("/b",))
    with pytest.raises(StorageError, match="its log is, or may be, in a log directory that is offline"):
        create(directories, 0, assigned)
    whole = opened(FakeFileSystem(), A, B)
    assert create(whole, 0, assigned) == "/a/t-0"


def test_a_directory_is_known_by_the_paths_in_it() -> None:
    directories = opened(FakeFileSystem())
    assert directories.id_of_path("/b/t-0/00000000000000000000.log") == B
    assert directories.id_of_path("/b") == B
    assert directories.id_of_path("/bb/t-0") is None


def test_an_error_of_one_directory_does_not_keep_the_others_from_the_work() -> None:
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(2):
        create(directories, number)
    broken = directories.online[A]
    filesystem.remove_tree("/a")
    with pytest.raises(StorageError):
        directories.close()
    assert broken.path == "/a"
    assert filesystem.exists(f"/b/{CLEAN_SHUTDOWN}")


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(bytearray(build_batch([Record(0, NOW_MS, None, b"v", ())])), 0, NOW_MS)


def moving() -> tuple[FakeFileSystem, LogDirectories]:
    """t-0 with five records in /a, and with three of them in its copy in /b."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    create(directories, 0, A)
    append(directories.logs["t", 0], 5)
    append(directories.create_future("t", 0, B, bytes(16), CONFIG, NOW_MS), 3)
    return filesystem, directories


def test_a_copy_is_found_by_a_start() -> None:
    """P-303: after a clean stop without reading it; both have their offsets in the checkpoints of their directory."""
    filesystem, directories = moving()
    assert len(directories) == 2
    assert directories.future_id_of("t", 0) == B
    directories.close(3, {("t", 0): 5})
    again = opened(filesystem)
    assert {key: log.path for key, log in again.logs.items()} == {("t", 0): "/a/t-0"}
    future = again.future("t", 0)
    assert future is not None
    assert future.path == f"/b/t-0.{'0' * 32}-future"
    assert not future.is_loaded
    assert (future.log_end_offset, again.logs["t", 0].log_end_offset) == (3, 5)


def test_a_copy_is_adopted_where_the_log_is_missing() -> None:
    """P-303: in the directory that the metadata has."""
    filesystem, directories = moving()
    assert directories.adopt_future("t", 0, B) is False, "the log is there"
    assert directories.online[A].detach("t", 0) is not None
    directories.abandon()
    again = opened(filesystem)
    assert again.adopt_future("t", 0, A) is False
    assert again.adopt_future("t", 0, B) is True
    assert again.logs["t", 0].path == "/b/t-0"
    assert again.futures == {}


def test_a_copy_without_its_source_makes_room_for_a_new_log() -> None:
    """P-303: the directory of the log was taken out of log.dirs, and no directory has both a log and a copy."""
    filesystem, directories = moving()
    directories.close()
    again = opened(filesystem, B)
    assert create(again, 0) == "/b/t-0"
    assert again.futures == {}
    assert again.logs["t", 0].log_end_offset == 0


def test_a_second_copy_is_deleted() -> None:
    """P-303: the broker was killed while another directory became the target."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem, A, B, C)
    create(directories, 0, A)
    for directory_id in (B, C):
        directories.online[directory_id].create_future("t", 0, bytes(16), CONFIG, NOW_MS)
    directories.close()
    again = opened(filesystem, A, B, C)
    assert again.future_id_of("t", 0) == B
    assert again.online[C].futures == {}
    assert again.delete_due_logs(NOW_MS + DELAY_MS, DELAY_MS) == 1


@pytest.mark.parametrize(
    ("marks", "was_clean", "epoch"),
    [
        ({"a": 7, "b": 7}, True, 7),
        ({"a": 7, "b": 8}, True, -1),
        ({"a": 7}, False, -1),
        ({"b": 7}, False, -1),
        ({}, False, -1),
    ],
)
def test_a_stop_is_clean_if_it_was_in_every_directory(marks: dict[str, int], was_clean: bool, epoch: int) -> None:
    """P-276."""
    filesystem = FakeFileSystem()
    opened(filesystem).abandon()
    for name, number in marks.items():
        filesystem.write_file(f"/{name}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":%d}' % number)
    again = opened(filesystem)
    assert (again.was_clean, again.clean_broker_epoch) == (was_clean, epoch)
    without_one = LogDirectories(again.online, ["/gone"])
    assert (without_one.was_clean, without_one.clean_broker_epoch) == (False, -1)


@pytest.mark.parametrize("path", ["/a/lost+found", "/b/t-x"])
def test_a_foreign_directory_refuses_the_start_of_all_and_costs_no_recovery(path: str) -> None:
    """P-480: in whichever of the directories it is; the mark of the clean stop stays in each."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    append(directories.online[A].create_log("t", 0, bytes(16), CONFIG, NOW_MS))
    directories.close()
    filesystem.make_directory(path)
    with pytest.raises(InconsistentDirectory, match=f"^{re.escape(path)}: is no directory of a log, .* log.dirs$"):
        opened(filesystem)
    assert all(filesystem.exists(f"/{name}/{CLEAN_SHUTDOWN}") for name in "ab")


def test_the_log_stays_if_its_copy_cannot_be_renamed() -> None:
    """P-304."""
    filesystem, directories = moving()
    rename, count = filesystem.rename, 0

    def failing(old_path: str, new_path: str) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise StorageError(old_path, "Input/output error")
        rename(old_path, new_path)

    filesystem.rename = failing  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="Input/output"):
        directories.replace_by_future("t", 0, NOW_MS)
    assert directories.logs["t", 0].path == "/a/t-0"
    assert directories.futures["t", 0].log_end_offset == 3
    append(directories.logs["t", 0])
    assert directories.replace_by_future("t", 0, NOW_MS).path == "/b/t-0"
    assert directories.delete_due_logs(NOW_MS + DELAY_MS, DELAY_MS) == 1


def test_a_copy_that_cannot_be_renamed_does_not_keep_the_log_from_its_deletion() -> None:
    """A topic that is created again under the name would get the log of the deleted one."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    create(directories, 0, B)
    append(directories.logs["t", 0], 5)
    directories.create_future("t", 0, A, bytes(16), CONFIG, NOW_MS)
    rename = filesystem.rename

    def failing(old_path: str, new_path: str) -> None:
        if old_path.startswith("/a/"):
            raise StorageError(old_path, "Input/output error")
        rename(old_path, new_path)

    filesystem.rename = failing  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="Input/output"):
        directories.delete_log("t", 0, NOW_MS)
    assert directories.get("t", 0) is None
    assert directories.create_log("t", 0, bytes(16), CONFIG, NOW_MS).log_end_offset == 0


def finish(steps: Iterator[BlockingStep | None]) -> None:
    """Does all steps itself, as for a broker whose threads are all busy."""
    for _ in steps:
        pass


def test_a_checkpoint_that_cannot_be_written_does_not_keep_the_other_directories_from_theirs() -> None:
    """The error is raised when all were tried: the caller logs it, and tries again later."""
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(2):
        create(directories, number)
        append(directories.logs["t", number], 3)
    marks = {("t", number): 2 for number in range(2)}
    starts = {("t", number): 1 for number in range(2)}
    for number in range(2):
        directories.logs["t", number].advance_log_start(1)
    writes: list[Callable[[], Iterator[BlockingStep | None]]] = [
        lambda: directories.write_checkpoints(marks.items()),
        lambda: directories.write_high_watermarks(marks.items()),
        directories.write_log_starts,
        lambda: directories.write_cleaner_offsets(starts.items),
    ]
    for write in writes:
        filesystem.fail_next["create_file"] = StorageError("/a/checkpoint", "Input/output error")
        with pytest.raises(StorageError, match="/a/checkpoint"):
            finish(write())
    assert directories.high_watermarks() == {("t", 1): 2}, "that of /b alone"
    assert directories.cleaner_offsets() == {("t", 1): 1}
    assert not filesystem.exists(f"/a/{LOG_START_OFFSETS}")
    assert filesystem.exists(f"/b/{LOG_START_OFFSETS}")
    finish(directories.write_checkpoints(marks.items()))
    assert directories.high_watermarks() == marks


def test_thousands_of_high_watermarks_are_collected_in_steps() -> None:
    """Other work of the event loop gets its turn meanwhile."""
    directories = opened(FakeFileSystem())
    create(directories, 0)
    marks = {("t", number): number for number in range(2 * ENTRIES_PER_STEP)}
    for write in (directories.write_checkpoints, directories.write_high_watermarks):
        assert [step for step in write(marks.items()) if step is None] == [None, None]
        assert directories.high_watermarks() == {("t", 0): 0}


def test_a_single_directory_adopts_the_copy_that_the_metadata_has_in_it() -> None:
    """P-303: the other directory, with the log, was taken out of log.dirs meanwhile."""
    filesystem, directories = moving()
    directories.close()
    alone = LogDirectory.open("/b", filesystem=filesystem)
    alone.load_logs(lambda topic: CONFIG, NOW_MS)
    assert alone.adopt_future("t", 1, B) is False, "there is no such copy"
    assert alone.adopt_future("t", 0, B) is False, "the directory has no id"
    alone.format(MetaProperties("c" * 22, 1, uuid_to_text(B)))
    assert alone.adopt_future("t", 0, A) is False
    assert alone.futures["t", 0].is_bulk
    assert alone.adopt_future("t", 0, B) is True
    assert not alone.logs["t", 0].is_bulk
    assert (alone.logs["t", 0].path, alone.logs["t", 0].log_end_offset) == ("/b/t-0", 3)
    assert alone.futures == {}
    alone.close()


def test_copies_beside_their_log_and_second_ones_are_deleted() -> None:
    """Kills during moves to another directory and back leave such directories."""
    filesystem, directories = moving()
    directories.close()
    (name,) = [name for name, _ in filesystem.list("/b") if name.endswith("-future")]
    for file, _ in filesystem.list(f"/b/{name}"):
        content = filesystem.read_file(f"/b/{name}/{file}")
        assert content is not None
        for copy in (f"/b/t-0.{1:032x}-future", f"/a/t-0.{2:032x}-future"):
            filesystem.make_directory(copy)
            filesystem.write_file(f"{copy}/{file}", content)
    for path, logs, futures in (("/a", 1, 0), ("/b", 0, 1)):
        directory = LogDirectory.open(path, filesystem=filesystem)
        directory.load_logs(lambda topic: CONFIG, NOW_MS)
        assert (len(directory.logs), len(directory.futures)) == (logs, futures)
        assert directory.delete_due_logs(NOW_MS + DELAY_MS, DELAY_MS) == 1
        assert len([entry for entry in filesystem.list(path) if entry.is_directory]) == 1
        directory.close()


def test_a_deleted_log_whose_directory_could_not_be_renamed_is_renamed_before_others_are_removed() -> None:
    filesystem = FakeFileSystem()
    directory = LogDirectory.open("/a", filesystem=filesystem)
    directory.create_log("t", 0, bytes(16), CONFIG, NOW_MS)
    filesystem.fail_next["rename"] = StorageError("/a/t-0", "Input/output error")
    with pytest.raises(StorageError):
        directory.delete_log("t", 0, NOW_MS)
    assert filesystem.exists("/a/t-0")
    assert directory.delete_due_logs(NOW_MS, DELAY_MS) == 0
    assert not filesystem.exists("/a/t-0")
    assert directory.delete_due_logs(NOW_MS + DELAY_MS, DELAY_MS) == 1
    assert not [entry for entry in filesystem.list("/a") if entry.is_directory]


class Unlistable(FakeFileSystem):
    """A file system on which a directory cannot be listed."""

    failing_path = "-"

    def list(self, path: str) -> list[DirectoryEntry]:
        if path == self.failing_path:
            raise StorageError(path, "Input/output error")
        return super().list(path)


def test_a_directory_whose_names_cannot_be_read_is_offline_from_the_start() -> None:
    filesystem = Unlistable()
    directories = opened(filesystem)
    for number in range(4):
        create(directories, number)
    directories.close(7, {})
    again = LogDirectories(
        {each: LogDirectory.open(f"/{chr(each[0])}", filesystem=filesystem) for each in (A, B)},
    )
    filesystem.failing_path = "/a"
    again.load_logs(lambda topic: CONFIG, NOW_MS)
    assert (list(again.online), again.offline) == ([B], {A: "/a"})
    assert sorted(again.logs) == [("t", 1), ("t", 3)]
