"""A data directory: identity, lock, clean stop, checkpoints, creation and deletion of logs."""

from __future__ import annotations

from collections.abc import Generator
from threading import Thread

import pytest

from pykbroker.logstore.blocking_step import STAGED_SUFFIX
from pykbroker.logstore.checkpoint_file import read_lines, read_offsets, write_offsets
from pykbroker.logstore.directory_checkpoints import ENTRIES_PER_STEP
from pykbroker.logstore.errors import CorruptFile, DirectoryLocked, InconsistentDirectory, StorageError, StorageFull
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directory import UNDELAYED_DIRECTORIES_MAX, LogDirectory, parse_log_name
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.partition_metadata import read_topic_id
from pykbroker.protocol.uuids import uuid_from_text
from tests.logstore.support import NOW_MS, TOPIC_ID, Place, append, batch, offsets
from tests.support.fake_filesystem import FakeFileSystem

CONFIG = LogConfig(file_delete_delay_ms=5)
DELAY_MS = 1000
"""Delay of the broker, which counts for whole logs; that of the topic is for the files of its segments."""


def start(place: Place) -> LogDirectory:
    """The data directory as a broker opens it."""
    directory = LogDirectory.open(f"{place.folder}/data", filesystem=place.filesystem)
    directory.load_logs(lambda topic: CONFIG, NOW_MS)
    return directory


def names(place: Place) -> set[str]:
    return {entry.name for entry in place.filesystem.list(f"{place.folder}/data")}


def content(place: Place, name: str) -> bytes | None:
    return place.filesystem.read_file(f"{place.folder}/data/{name}")


def test_a_clean_stop_and_start(place: Place) -> None:
    """P-171: the mark has Kafka's form, and does not exist while the broker runs."""
    directory = start(place)
    assert not directory.was_clean
    for partition in range(3):
        append(directory.create_log("my-topic", partition, TOPIC_ID, CONFIG, NOW_MS), batch(partition + 1))
    directory.create_log("idle", 0, TOPIC_ID, CONFIG, NOW_MS)
    directory.close(12, {("my-topic", 2): 3})
    assert content(place, ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":12}'
    assert content(place, "replication-offset-checkpoint") == b"0\n1\nmy-topic 2 3\n"
    assert sorted((content(place, "recovery-point-offset-checkpoint") or b"").splitlines()[2:]) == [
        b"idle 0 0",
        b"my-topic 0 1",
        b"my-topic 1 2",
        b"my-topic 2 3",
    ]
    assert content(place, "log-start-offset-checkpoint") == b"0\n0\n"

    directory = start(place)
    assert directory.was_clean
    assert directory.previous_broker_epoch == 12
    assert ".kafka_cleanshutdown" not in names(place)
    assert directory.high_watermarks() == {("my-topic", 2): 3}
    assert len(directory) == 4
    log = directory.get("my-topic", 2)
    assert log is not None
    assert log.log_end_offset == 3
    assert log.topic_id == TOPIC_ID
    assert append(log, batch(1)).first_offset == 3


def test_an_unclean_stop_recovers_from_the_checkpoint(place: Place) -> None:
    """P-171."""
    directory = start(place)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batch(5))
    log.flush()
    directory.checkpoint_recovery_points()
    append(log, batch(2))
    directory.abandon()
    directory = start(place)
    assert not directory.was_clean
    found = directory.get("t", 0)
    assert found is not None
    assert (found.log_end_offset, found.recovery_point) == (7, 5)


def test_log_starts_that_files_do_not_tell_are_kept(place: Place) -> None:
    """P-150: DeleteRecords survives a restart."""
    directory = start(place)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for _ in range(5):
        append(log, batch(1))
    log.advance_log_start(3)
    directory.close()
    assert content(place, "log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"
    directory = start(place)
    found = directory.get("t", 0)
    assert found is not None
    assert found.log_start_offset == 3
    assert offsets(log) == [3, 4]


def many_logs(place: Place) -> LogDirectory:
    """More logs than one step of a checkpoint takes, the first with five durable records, and a checkpoint of them."""
    directory = start(place)
    for number in range(ENTRIES_PER_STEP + 1):
        directory.create_log("t", number, TOPIC_ID, CONFIG, NOW_MS)
    append(directory.logs["t", 0], batch(5))
    directory.logs["t", 0].flush()
    directory.checkpoint_recovery_points()
    return directory


def marks_of(directory: LogDirectory) -> list[tuple[tuple[str, int], int]]:
    return [(key, log.log_end_offset) for key, log in directory.logs.items()]


def points_of(directory: LogDirectory) -> dict[tuple[str, int], int]:
    return read_offsets(directory.filesystem, f"{directory.path}/recovery-point-offset-checkpoint")


def test_checkpoints_of_many_logs_are_written_in_steps(place: Place) -> None:
    directory = many_logs(place)
    append(directory.logs["t", 0], batch(2))
    directory.logs["t", 0].flush()
    assert sum(1 for _ in directory.write_checkpoints(marks_of(directory))) >= 4, "two files of two steps"
    assert points_of(directory) == {key: 7 if key[1] == 0 else 0 for key in directory.logs}
    assert directory.high_watermarks() == points_of(directory)


def test_a_point_that_is_lowered_between_two_steps_stays_low(place: Place) -> None:
    """A recovery that begins above it would not check the records that replaced the truncated ones."""
    directory = many_logs(place)
    steps = directory.write_checkpoints(marks_of(directory))
    next(steps)
    directory.logs["t", 0].truncate_to(0, NOW_MS)
    for _ in steps:
        pass
    assert points_of(directory)["t", 0] == 0
    for _ in directory.write_checkpoints(marks_of(directory)):
        pass
    assert points_of(directory)["t", 0] == 0


@pytest.mark.parametrize("is_in_thread", [False, True])
def test_a_point_that_is_lowered_while_a_checkpoint_is_synced_stays_low(place: Place, is_in_thread: bool) -> None:
    """The lower point is durable before records replace others; older content must not overwrite it."""
    directory = many_logs(place)
    for step in directory.write_checkpoints(marks_of(directory)):
        if step is not None:
            if is_in_thread:
                thread = Thread(target=step.run)
                thread.start()
                thread.join()
            if directory.logs["t", 0].log_end_offset:
                directory.logs["t", 0].truncate_to(0, NOW_MS)
    assert points_of(directory)["t", 0] == 0
    assert not [name for name in names(place) if name.endswith(STAGED_SUFFIX)]


def run_in_steps(directory: LogDirectory) -> None:
    for step in directory.write_checkpoints(marks_of(directory)):
        if step is not None:
            step.run()


def test_steps_that_wait_for_the_disk_leave_the_file_to_the_loop(place: Place) -> None:
    directory = many_logs(place)
    append(directory.logs["t", 0], batch(2))
    directory.logs["t", 0].flush()
    steps = (step for step in directory.write_checkpoints(marks_of(directory)) if step is not None)
    next(steps).run()
    assert points_of(directory)["t", 0] == 5, "durable beside the file, which is not replaced yet"
    next(steps)
    assert points_of(directory)["t", 0] == 7


def test_a_checkpoint_that_is_given_up_leaves_nothing_behind(place: Place) -> None:
    directory = many_logs(place)
    steps = directory.write_checkpoints(marks_of(directory))
    next(step for step in steps if step is not None).run()
    before = names(place)
    assert isinstance(steps, Generator)
    steps.close()
    assert before - names(place) == {f"recovery-point-offset-checkpoint{STAGED_SUFFIX}"}


@pytest.mark.parametrize("call", ["create_file", "sync_file", "rename", "sync_directory"])
def test_a_checkpoint_that_a_disk_refuses_is_written_the_next_time(memory: Place, call: str) -> None:
    directory = many_logs(memory)
    append(directory.logs["t", 0], batch(2))
    directory.logs["t", 0].flush()
    assert isinstance(memory.filesystem, FakeFileSystem)
    memory.filesystem.fail_next[call] = StorageError("checkpoint", "Input/output error")
    with pytest.raises(StorageError):
        run_in_steps(directory)
    assert not [name for name in names(memory) if name.endswith(STAGED_SUFFIX)]
    for _ in directory.write_checkpoints(marks_of(directory)):
        pass
    assert points_of(directory)["t", 0] == 7


def test_log_starts_that_were_written_meanwhile_stay(place: Place) -> None:
    """The move of a log to another directory writes them at once; older ones must not overwrite them."""
    directory = many_logs(place)
    steps = directory.write_log_starts()
    next(step for step in steps if step is not None).run()
    directory.logs["t", 0].advance_log_start(3)
    directory.checkpoint_log_start_offsets()
    assert not list(steps)
    assert content(place, "log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"
    for _ in directory.write_log_starts():
        pass
    assert content(place, "log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_the_log_starts_of_many_logs_are_collected_in_steps(memory: Place) -> None:
    """Other tasks of the event loop run meanwhile. A log that is deleted then is not in the checkpoint."""
    directory = many_logs(memory)
    for key in (("t", 0), ("t", 1)):
        append(directory.logs[key], batch(2))
        directory.logs[key].advance_log_start(1)
    steps = directory.write_log_starts()
    assert next(steps) is None
    directory.delete_log("t", 0, 0)
    assert list(steps) == []
    for _ in directory.write_log_starts():
        pass
    assert content(memory, "log-start-offset-checkpoint") == b"0\n1\nt 1 1\n"


def test_the_cleaned_parts_of_many_logs_are_collected_in_steps(memory: Place) -> None:
    """Other tasks of the event loop run meanwhile. If a log is deleted then, nothing is written."""
    directory = many_logs(memory)
    ends = dict.fromkeys(directory.logs, 3)
    steps = directory.write_cleaner_offsets(ends.items)
    assert next(steps) is None
    directory.delete_log("t", 0, 0)
    assert list(steps) == []
    assert directory.cleaner_offsets() == {}
    del ends["t", 0]
    for _ in directory.write_cleaner_offsets(ends.items):
        pass
    assert directory.cleaner_offsets() == ends


@pytest.mark.parametrize("steps_before", [1, 2, 3, 4, 5, 6])
def test_a_log_that_is_deleted_between_two_steps_leaves_no_offset_to_its_successor(
    place: Place, steps_before: int
) -> None:
    directory = many_logs(place)
    steps = directory.write_checkpoints(marks_of(directory))
    for _ in range(steps_before):
        next(steps)
    directory.delete_log("t", 0, NOW_MS)
    for _ in steps:
        pass
    directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    assert ("t", 0) not in points_of(directory)
    assert ("t", 0) not in directory.high_watermarks()


def write_marks(directory: LogDirectory) -> int:
    """Writes the high watermarks; returns the number of steps that waited for the disk."""
    return sum(step is not None for step in directory.write_high_watermarks(marks_of(directory)))


def test_high_watermarks_are_written_when_they_have_changed(place: Place) -> None:
    """P-672: a quiet broker syncs nothing."""
    directory = many_logs(place)
    assert write_marks(directory)
    assert directory.high_watermarks() == dict(marks_of(directory))
    assert not write_marks(directory)
    append(directory.logs["t", 0], batch(2))
    assert write_marks(directory)
    assert directory.high_watermarks()["t", 0] == 7


def test_high_watermarks_whose_file_is_gone_are_written_again(place: Place) -> None:
    """P-672: the write meets the failure if the directory is gone, too."""
    directory = many_logs(place)
    write_marks(directory)
    place.filesystem.remove(f"{directory.path}/replication-offset-checkpoint")
    assert write_marks(directory)
    assert directory.high_watermarks() == dict(marks_of(directory))


def test_high_watermarks_of_a_disk_that_refused_them_are_written_the_next_time(memory: Place) -> None:
    directory = many_logs(memory)
    write_marks(directory)
    append(directory.logs["t", 0], batch(2))
    assert isinstance(memory.filesystem, FakeFileSystem)
    memory.filesystem.fail_next["sync_directory"] = StorageError("checkpoint", "Input/output error")
    with pytest.raises(StorageError):
        write_marks(directory)
    assert write_marks(directory)
    assert directory.high_watermarks()["t", 0] == 7


@pytest.mark.parametrize("steps_before", [1, 2])
def test_two_writers_of_high_watermarks_do_not_share_a_staged_file(place: Place, steps_before: int) -> None:
    directory = many_logs(place)
    steps = (step for step in directory.write_high_watermarks(marks_of(directory)) if step is not None)
    for _ in range(steps_before):
        next(steps).run()
    append(directory.logs["t", 0], batch(2))
    run_in_steps(directory)
    assert not write_marks(directory)
    for _ in steps:
        pass
    assert directory.high_watermarks()["t", 0] == 5, "those of the first writer"
    assert write_marks(directory)
    assert directory.high_watermarks()["t", 0] == 7
    assert not [name for name in names(place) if name.endswith(STAGED_SUFFIX)]


def test_the_high_watermark_of_a_deleted_log_is_not_that_of_its_successor(place: Place) -> None:
    directory = many_logs(place)
    write_marks(directory)
    steps = directory.write_high_watermarks(marks_of(directory))
    next(steps)
    directory.delete_log("t", 0, NOW_MS)
    assert not list(steps), "the offsets were read before the deletion"
    directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    assert ("t", 0) not in directory.high_watermarks()
    assert write_marks(directory)
    assert directory.high_watermarks()["t", 0] == 0


def test_a_checkpoint_forgets_deleted_logs(place: Place) -> None:
    directory = many_logs(place)
    directory.logs["t", 0].advance_log_start(3)
    directory.checkpoint_log_start_offsets()
    directory.delete_log("t", 0, NOW_MS)
    for _ in directory.write_checkpoints(marks_of(directory)):
        pass
    path = f"{directory.path}/log-start-offset-checkpoint"
    assert ("t", 0) not in {*points_of(directory), *read_offsets(directory.filesystem, path)}


def damage_last_byte(place: Place, file: str) -> None:
    path = f"{place.folder}/data/{file}"
    damaged = bytearray(place.filesystem.read_file(path) or b"")
    damaged[-1] ^= 1
    place.filesystem.write_file(path, damaged)


def six_durable_records(directory: LogDirectory) -> PartitionLog:
    """A log of two batches, the second at 5, and a checkpoint that says so."""
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batch(5))
    append(log, batch(1))
    log.flush()
    directory.checkpoint_recovery_points()
    return log


@pytest.mark.parametrize("is_full", [False, True])
def test_what_comes_after_a_truncation_is_looked_at_by_a_recovery(place: Place, is_full: bool) -> None:
    """The old records were durable up to there; the records written in their place are not."""
    directory = start(place)
    log = six_durable_records(directory)
    if is_full:
        log.truncate_fully_and_start_at(5, NOW_MS)
    else:
        log.truncate_to(5, NOW_MS)
    append(log, batch(1, value_size=99))
    directory.abandon()
    damage_last_byte(place, "t-0/00000000000000000005.log" if is_full else "t-0/00000000000000000000.log")
    log_again = start(place).get("t", 0)
    assert log_again is not None
    assert log_again.log_end_offset == 5


def test_a_truncation_that_cannot_be_noted_is_made_again(memory: Place) -> None:
    """Otherwise the next attempt would find the point low already, and not write it."""
    directory = start(memory)
    log = six_durable_records(directory)

    def cannot() -> None:
        raise StorageError("recovery-point-offset-checkpoint", "Input/output error")

    noted, log.on_point_lowered = log.on_point_lowered, cannot
    for _ in range(2):
        with pytest.raises(StorageError):
            log.truncate_to(5, NOW_MS)
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(5, NOW_MS)
    log.on_point_lowered = noted
    assert log.truncate_to(5, NOW_MS)
    assert (content(memory, "recovery-point-offset-checkpoint") or b"").endswith(b"\nt 0 5\n")


@pytest.mark.parametrize("stop_between", [False, True])
@pytest.mark.parametrize("goes", ["deleted", "stray"])
def test_what_was_noted_of_a_log_that_is_gone_is_not_said_of_a_new_one(
    place: Place, goes: str, stop_between: bool
) -> None:
    """A start would discard its records, as those of a log that lost its beginning, or take them for durable."""
    directory = start(place)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    other = directory.create_log("other", 0, TOPIC_ID, CONFIG, NOW_MS)
    for each in (log, other):
        append(each, batch(9))
        each.flush()
        each.advance_log_start(7)
    directory.checkpoint_recovery_points()
    directory.checkpoint_log_start_offsets()
    directory.checkpoint_high_watermarks({("t", 0): 9, ("other", 0): 9})
    directory.delete_log("t", 0, NOW_MS) if goes == "deleted" else directory.mark_stray(directory.logs["t", 0])
    if stop_between:
        directory.abandon()
        directory = start(place)
    log = directory.create_log("t", 0, bytes(15) + b"t", CONFIG, NOW_MS)
    append(log, batch(1))
    append(log, batch(2))
    directory.abandon()
    damage_last_byte(place, "t-0/00000000000000000000.log")

    directory = start(place)
    log, other = directory.logs["t", 0], directory.logs["other", 0]
    assert (log.log_start_offset, offsets(log), log.log_end_offset) == (0, [0], 1)
    assert (other.log_start_offset, other.log_end_offset, other.recovery_point) == (7, 9, 9)
    assert directory.high_watermarks() == {("other", 0): 9}


def test_only_one_broker_uses_a_directory(memory: Place) -> None:
    directory = start(memory)
    with pytest.raises(DirectoryLocked, match=r"\.lock"):
        start(memory)
    directory.abandon()
    start(memory).close()


MANY = 3 * UNDELAYED_DIRECTORIES_MAX


def folders(place: Place) -> set[str]:
    """Names of the logs' directories; those of deleted logs only up to the first dot."""
    return {name for name in names(place) if name.startswith("t-")}


def make_many(directory: LogDirectory) -> None:
    for partition in range(MANY):
        log = directory.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
        assert log.delete_old_segments(NOW_MS, 0) == 0
        assert not log.is_loaded


def test_folders_of_many_logs_are_made_bit_by_bit(place: Place) -> None:
    """The broker serves other requests meanwhile; a log whose directory is not created yet can be used."""
    directory = start(place)
    make_many(directory)
    assert folders(place) == {f"t-{partition}" for partition in range(UNDELAYED_DIRECTORIES_MAX)}
    last = directory.get("t", MANY - 1)
    assert last is not None
    assert append(last, batch(2)).first_offset == 0
    assert len(folders(place)) == UNDELAYED_DIRECTORIES_MAX + 1
    assert directory.finish_directories(NOW_MS, 30)
    assert len(folders(place)) == UNDELAYED_DIRECTORIES_MAX + 31
    while directory.finish_directories(NOW_MS, 30):
        pass
    assert len(folders(place)) == MANY
    assert {read_topic_id(place.filesystem, f"{place.folder}/data/t-{n}") for n in range(MANY)} == {TOPIC_ID}
    assert offsets(last) == [0, 1]
    # The next ones are created at once again.
    directory.create_log("t", MANY, TOPIC_ID, CONFIG, NOW_MS)
    assert f"t-{MANY}" in names(place)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stop_before_all_folders_are_made(place: Place, is_clean: bool) -> None:
    """A second creation of the logs finds those whose directories exist, and creates the others."""
    directory = start(place)
    make_many(directory)
    last = directory.get("t", MANY - 1)
    assert last is not None
    append(last, batch(2))
    directory.close() if is_clean else directory.abandon()
    directory = start(place)
    assert directory.was_clean == is_clean
    assert len(directory) == UNDELAYED_DIRECTORIES_MAX + 1
    for partition in range(MANY):
        log = directory.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS)
        assert log.log_end_offset == (2 if partition == MANY - 1 else 0)
    while directory.finish_directories(NOW_MS, 100):
        pass
    assert len(folders(place)) == MANY


def test_folders_of_many_deleted_logs_are_renamed_bit_by_bit(place: Place) -> None:
    """A name can be used again at once, even if the old directory is not renamed yet or was never created."""
    directory = start(place)
    make_many(directory)
    directory.finish_directories(NOW_MS, MANY)
    for partition in range(MANY):
        directory.delete_log("t", partition, NOW_MS)
    assert len([name for name in names(place) if name.endswith("-delete")]) == UNDELAYED_DIRECTORIES_MAX
    directory.create_log("t", MANY - 1, bytes(16), CONFIG, NOW_MS)
    while directory.finish_directories(NOW_MS, 30):
        pass
    assert len([name for name in names(place) if name.endswith("-delete")]) == MANY
    assert f"t-{MANY - 1}" in names(place)
    assert directory.delete_due_logs(NOW_MS + DELAY_MS, DELAY_MS) == MANY

    make_many(directory)
    for partition in range(MANY):
        directory.delete_log("t", partition, NOW_MS)
    assert not directory.finish_directories(NOW_MS)
    assert len([name for name in names(place) if name.endswith("-delete")]) < MANY, "there was nothing to rename"


def test_a_deleted_log_goes_after_the_delay(place: Place) -> None:
    directory = start(place)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.delete_log("t", 0, NOW_MS)
    assert directory.get("t", 0) is None
    marked = f"t-0.{TOPIC_ID.hex()}-delete"
    assert marked in names(place)
    again = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    assert again.log_end_offset == 0
    append(again, batch(2))
    directory.delete_log("t", 0, NOW_MS)
    assert len([name for name in names(place) if name.endswith("-delete")]) == 2, "no name is used twice"
    assert directory.delete_due_logs(NOW_MS + 999, DELAY_MS) == 0
    assert directory.delete_due_logs(NOW_MS + 1000, DELAY_MS) == 2
    assert not [name for name in names(place) if name.startswith("t-0")]


def test_many_deleted_logs_go_a_few_at_a_time(place: Place) -> None:
    """Other work can be done while thousands of directories are removed."""
    directory = start(place)
    for number in range(5):
        directory.create_log("t", number, TOPIC_ID, CONFIG, NOW_MS)
    for time_ms, number in enumerate((3, 0, 4, 1, 2)):
        directory.delete_log("t", number, NOW_MS + time_ms)
    assert directory.delete_due_logs(NOW_MS + 5000, DELAY_MS, 0) == 0
    assert directory.delete_due_logs(NOW_MS + 1002, DELAY_MS, 2) == 2
    assert sorted(name[:3] for name in names(place) if name.startswith("t-")) == ["t-1", "t-2", "t-4"]
    assert directory.delete_due_logs(NOW_MS + 1002, DELAY_MS, 2) == 1
    assert directory.delete_due_logs(NOW_MS + 1002, DELAY_MS, 2) == 0
    assert directory.delete_due_logs(NOW_MS + 5000, DELAY_MS) == 2


def test_a_deletion_that_was_interrupted_is_finished(place: Place) -> None:
    directory = start(place)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.delete_log("t", 0, NOW_MS)
    directory.abandon()
    directory = start(place)
    assert len(directory) == 0
    assert directory.delete_due_logs(NOW_MS + 999, DELAY_MS) == 0
    assert directory.delete_due_logs(NOW_MS + 1000, DELAY_MS) == 1
    assert not [name for name in names(place) if name.endswith("-delete")]


def test_bytes_on_their_way_outlive_the_deletion_of_their_log(place: Place) -> None:
    directory = start(place)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batch(4))
    result = log.read(0, 1000, 4, at_least_one=True)
    assert result.range is not None
    directory.delete_log("t", 0, NOW_MS)
    directory.delete_due_logs(NOW_MS + 10_000, DELAY_MS)
    assert len(result.range.read()) == len(result.range)
    result.range.release()


def test_a_stray_log_is_kept_but_not_served(place: Place) -> None:
    directory = start(place)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.mark_stray(directory.logs["t", 0])
    directory.close()
    directory = start(place)
    assert len(directory) == 0
    assert f"t-0.{TOPIC_ID.hex()}-stray" in names(place)


def test_long_topic_names_are_cut_when_marked(place: Place) -> None:
    """The name of a directory has at most 255 bytes."""
    directory = start(place)
    topic = "x" * 249
    append(directory.create_log(topic, 0, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.delete_log(topic, 0, NOW_MS)
    [name] = [name for name in names(place) if name.endswith("-delete")]
    assert len(name) == 255


def test_identity(place: Place) -> None:
    directory = start(place)
    assert directory.meta_properties() is None
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, "MbF2rlJK_riJq3-YQU051Q")
    directory.format(meta)
    assert directory.meta_properties() == meta
    lines = (content(place, "meta.properties") or b"").decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "node.id=1",
        "directory.id=MbF2rlJK_riJq3-YQU051Q",
        "version=1",
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qk",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("version=2\nnode.id=1\ncluster.id=a", InconsistentDirectory),
        ("version=1\nnode.id=x\ncluster.id=a", CorruptFile),
        ("version=1\nnode.id=1", CorruptFile),
        ("version=1\nnode.id=1\ncluster.id=a\ndirectory.id=?", CorruptFile),
        ("", CorruptFile),
    ],
)
def test_an_identity_that_cannot_be_read_is_named(place: Place, text: str, error: type[StorageError]) -> None:
    directory = start(place)
    place.filesystem.write_file(f"{place.folder}/data/meta.properties", text.encode())
    with pytest.raises(error, match=r"meta\.properties"):
        directory.meta_properties()


def test_the_topic_id_file_is_kafkas(place: Place) -> None:
    """Bytes written by Apache Kafka 4.3.1."""
    theirs = b"version: 0\ntopic_id: WbIA4720ReKjVs8H8bEvAA"
    place.filesystem.write_file(f"{place.folder}/partition.metadata", theirs)
    topic_id = read_topic_id(place.filesystem, place.folder)
    assert topic_id == uuid_from_text("WbIA4720ReKjVs8H8bEvAA")
    directory = start(place)
    directory.create_log("t", 0, topic_id, CONFIG, NOW_MS)
    assert content(place, "t-0/partition.metadata") == theirs


@pytest.mark.parametrize("text", ["1\n0\n", "0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0 1\nb 0 1\n"])
def test_a_damaged_checkpoint_is_refused(place: Place, text: str) -> None:
    path = f"{place.folder}/c"
    place.filesystem.write_file(path, text.encode())
    with pytest.raises(CorruptFile, match="/c: "):
        read_lines(place.filesystem, path)


def test_checkpoints(place: Place) -> None:
    path = f"{place.folder}/c"
    assert read_offsets(place.filesystem, path) == {}
    place.filesystem.write_file(path, b"")
    assert read_offsets(place.filesystem, path) == {}, "Kafka creates empty ones"
    write_offsets(place.filesystem, path, {("a", 0): 5, ("b.c", 11): 0})
    assert place.filesystem.read_file(path) == b"0\n2\na 0 5\nb.c 11 0\n"
    assert read_offsets(place.filesystem, path) == {("a", 0): 5, ("b.c", 11): 0}
    place.filesystem.write_file(path, b"0\n1\na 0\n")
    with pytest.raises(CorruptFile):
        read_offsets(place.filesystem, path)


def test_a_damaged_checkpoint_costs_time_not_the_start(place: Place) -> None:
    directory = start(place)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    directory.close()
    place.filesystem.write_file(f"{place.folder}/data/recovery-point-offset-checkpoint", b"junk")
    directory = start(place)
    log = directory.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 3


NAMES = {
    "t-0": ("t", 0, ""),
    "a-b-12": ("a-b", 12, ""),
    "a b-00": ("a b", 0, ""),
    "t-+1": ("t", 1, ""),
    "t--1": ("t-", 1, ""),
    "--0": ("-", 0, ""),
    "t-\N{ARABIC-INDIC DIGIT ONE}": ("t", 1, ""),
    f"t-{2**31 - 1}": ("t", 2**31 - 1, ""),
    "t-0.0123-delete": ("t", 0, "-delete"),
    "t-0.0123-stray": ("t", 0, "-stray"),
    "t-0.0123-future": ("t", 0, "-future"),
    "a.b-7.x-delete-delete": ("a.b", 7, "-delete"),
    "a-x.b-0.-delete": ("a-x.b", 0, "-delete"),
}
"""Names of directories of logs, and what they say."""
FOREIGN_NAMES = [
    *("t", "lost+found", ".hidden", "-1", "t-", "t-x", "t- 1", "t-1_0", "-", "t-0.x", f"t-{2**31}"),
    *("t-\N{SUPERSCRIPT TWO}", "t-delete", "t-0-delete", "t-0.-delete", "-0.x-delete", "t-x.1-delete"),
    *("__cluster_metadata", "a b-0.1-delete"),
    *("t-stray", "t-0-future", "-future", "t.1-future", "t-0.a.b-future", "t-0.x-stray.y-delete"),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_logs(name: str) -> None:
    """P-480."""
    assert parse_log_name(name) == NAMES[name]


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_a_directory_that_is_no_log_refuses_the_start(place: Place, name: str) -> None:
    """P-480: the text names it, and the mark of the last clean stop stays."""
    start(place).close()
    place.filesystem.make_directory(f"{place.folder}/data/{name}")
    with pytest.raises(InconsistentDirectory, match="is no directory of a log") as refused:
        start(place)
    assert refused.value.path == f"{place.folder}/data/{name}"
    assert ".kafka_cleanshutdown" in names(place)


def test_files_and_the_cache_of_remote_logs_do_not_refuse_the_start(place: Place) -> None:
    """P-480."""
    start(place).close()
    place.filesystem.write_file(f"{place.folder}/data/lost+found", b"")
    place.filesystem.make_directory(f"{place.folder}/data/remote-log-index-cache")
    assert len(start(place)) == 0


def test_two_logs_of_one_partition_refuse_the_start(place: Place) -> None:
    """P-480: `t-0` and `t-00` are both that of partition 0."""
    directory = start(place)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.close()
    place.filesystem.make_directory(f"{place.folder}/data/t-00")
    with pytest.raises(InconsistentDirectory, match="has a log of the same partition as t-0"):
        start(place)


@pytest.mark.parametrize("length", [200, 240, 249])
def test_a_deleted_or_stray_log_of_a_long_name_has_a_name_that_says_so(place: Place, length: int) -> None:
    """P-480: the topic is cut, and not the partition, without which neither broker would start."""
    directory = start(place)
    for partition in (0, 17):
        directory.create_log("t" * length, partition, TOPIC_ID, CONFIG, NOW_MS)
    directory.delete_log("t" * length, 17, NOW_MS)
    directory.mark_stray(directory.logs["t" * length, 0])
    directory.close()
    found = {parse_log_name(name) for name in names(place) if name.startswith("tt")}
    assert {(name.partition, name.mark) for name in found if name} == {(17, "-delete"), (0, "-stray")}
    assert all(len(name) <= 255 for name in names(place))
    start(place)


def test_a_directory_that_cannot_be_removed_keeps_no_other_back(memory: Place) -> None:
    directory = start(memory)
    for partition in range(3):
        directory.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS)
        directory.delete_log("t", partition, NOW_MS)
    remove_tree = memory.filesystem.remove_tree

    def failing(path: str) -> None:
        if "/t-0." in path:
            raise StorageError(path, "Input/output error")
        remove_tree(path)

    memory.filesystem.remove_tree = failing  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="Input/output"):
        directory.delete_due_logs(NOW_MS + 1000, DELAY_MS)
    assert directory.delete_due_logs(NOW_MS + 1000, DELAY_MS) == 2
    memory.filesystem.remove_tree = remove_tree  # type: ignore[method-assign]
    assert directory.delete_due_logs(NOW_MS + 1999, DELAY_MS) == 0
    assert directory.delete_due_logs(NOW_MS + 2000, DELAY_MS) == 1


def test_the_controllers_log_is_left_alone(place: Place) -> None:
    place.filesystem.make_directory(f"{place.folder}/data/__cluster_metadata-0")
    assert len(start(place)) == 0


def test_many_idle_logs_start_and_stop_without_being_read(memory: Place) -> None:
    """A thousand partitions: the start lists one directory, the stop opens nothing."""
    directory = start(memory)
    for number in range(1000):
        directory.create_log("t", number, TOPIC_ID, CONFIG, NOW_MS)
    append(directory.create_log("t", 7, TOPIC_ID, CONFIG, NOW_MS), batch(1))
    directory.close()
    calls = memory.filesystem.calls  # type: ignore[attr-defined]
    calls.clear()
    directory = start(memory)
    assert sum(log.log_end_offset for log in directory) == 1
    assert calls["list"] == 1
    assert "open" not in calls
    assert calls["read_file"] <= 4
    assert sum(log.delete_old_segments(NOW_MS * 2, 0) for log in directory) == 0, "nor does retention open empty ones"
    assert calls.get("open", 0) <= 4
    calls.pop("open", None)
    directory.checkpoint_log_start_offsets()
    assert content(memory, "log-start-offset-checkpoint") == b"0\n0\n"
    directory.close()
    assert calls.get("open", 0) <= 4, "only the one log that has records was read"


def test_a_roll_that_a_full_disk_stops_leaves_the_segment_active(memory: Place) -> None:
    """No space is left for the snapshot, an index or the new file; a smaller batch still goes to the old segment."""
    filesystem = memory.filesystem
    for spare in range(60):
        log = memory.open(name=f"x-{spare}", segment_bytes=500, index_interval_bytes=50)
        for _ in range(5):
            append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset))
        filesystem.capacity_bytes = filesystem.used_bytes() + spare  # type: ignore[attr-defined]
        with pytest.raises(StorageFull):
            append(log, batch(1, value_size=300))
        filesystem.capacity_bytes = None  # type: ignore[attr-defined]
        append(log, batch(1, value_size=1))
        assert offsets(log) == list(range(6))
        append(log, batch(1, value_size=300))
        append(log, batch(1, value_size=300))
        assert offsets(log) == list(range(8))
        log.close()
        assert offsets(memory.open(name=f"x-{spare}", is_clean=True)) == list(range(8))


def test_a_full_disk_is_a_typed_error_and_passes(memory: Place) -> None:
    """ENOSPC at each step: acknowledged records are there, and appends succeed when there is space again."""
    filesystem = memory.filesystem
    acknowledged = 0
    directory = start(memory)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=400, index_interval_bytes=50), NOW_MS)
    for spare in range(0, 1500, 13):
        filesystem.capacity_bytes = filesystem.used_bytes() + spare  # type: ignore[attr-defined]
        for _ in range(30):
            try:
                acknowledged = append(log, batch(2), epoch=spare // 100).last_offset + 1
            except StorageFull:
                break
        assert log.log_end_offset == acknowledged
        filesystem.capacity_bytes = None  # type: ignore[attr-defined]
        assert offsets(log) == list(range(acknowledged))
        acknowledged = append(log, batch(2), epoch=spare // 100).last_offset + 1
    directory.close()
    again = start(memory).get("t", 0)
    assert again is not None
    assert offsets(again) == list(range(acknowledged))
