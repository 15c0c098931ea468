"""One data directory (`log.dirs`): its identity and lock, the logs of its partitions, and their checkpoints.

.lock                              held while a broker runs
.kafka_cleanshutdown               left by a clean stop, with the broker's epoch
meta.properties                    cluster, node and directory ids
recovery-point-offset-checkpoint   offset up to which each log is durable
log-start-offset-checkpoint        log starts that lie above the first segment's base offset
replication-offset-checkpoint      high watermarks
cleaner-offset-checkpoint          offset up to which compacted logs were cleaned
<topic>-<partition>/               a log; with ".<32 hex>-delete" or "-stray" after the name: a deleted or stray log,
                                   with ".<32 hex>-future": the copy of a log that moves to this directory (KIP-113)
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from pykbroker.logstore.callbacks import Report, no_listener, no_report
from pykbroker.logstore.directory_checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, DirectoryCheckpoints
from pykbroker.logstore.errors import InconsistentDirectory, StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.unloaded_log import LastStop
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.protocol.uuids import ZERO_UUID, uuid_from_text

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
METADATA_TOPIC: Final = "__cluster_metadata"
UNDELAYED_DIRECTORIES_MAX: Final = 20
"""Directories that `create_log` and `delete_log` create or rename immediately; `finish_directories` does the rest."""
VOLUME_SYNC_LOGS_MIN: Final = 16
"""Number of logs in use from which on a stop syncs the whole volume. That takes as long as syncing some tens of files,
plus the data that other programs have written."""
_NAME_MAX: Final = 255
_DELETE_MARK: Final = "-delete"
_FUTURE_MARK: Final = "-future"
_STRAY_MARK: Final = "-stray"
_OTHER_DIRECTORIES: Final = frozenset({"remote-log-index-cache"})
"""Directories that Kafka itself makes in a log directory, and that are no logs."""
_PARTITION_MAX: Final = 2**31 - 1

# As in Kafka, the pattern is for the whole name, and the log's own name ends at the last dot. Space is Java's.
_PLAIN: Final = re.compile(r"(.+)-\+?(\d+)", re.DOTALL)
_MARKED: Final = re.compile(r"[^ \t-\r]+-[^ \t-\r]+\.[^ \t-\r]+(-delete|-future|-stray)")


class LogName(NamedTuple):
    """The parts of the name of a log's directory.

    Attributes:
        mark: "-delete", "-future" or "-stray"; "" for the log of a partition.
    """

    topic: str
    partition: int
    mark: str


def parse_log_name(name: str) -> LogName | None:
    """The parts of a log's directory name; None for another name, as `LocalLog.parseTopicPartitionName` of Kafka."""
    mark = ""
    if name.endswith((_DELETE_MARK, _FUTURE_MARK, _STRAY_MARK)):
        marked = _MARKED.fullmatch(name)
        if marked is None:
            return None
        mark = marked[1]
        name = name[: name.rindex(".")]
    plain = _PLAIN.fullmatch(name)
    if plain is None or int(plain[2]) > _PARTITION_MAX:
        return None
    return LogName(plain[1], int(plain[2]), mark)


class LogDirectory(DirectoryCheckpoints):
    """A locked data directory and its logs. Made by `open`, ended by `close`.

    Attributes:
        logs: the logs of its partitions.
        futures: copies of logs that move here from another directory. A partition has either a log or a copy here, so
            checkpoints have both under the partition's name, as Kafka's.
    """

    def __init__(self, path: str, open_files: OpenFiles) -> None:
        super().__init__(path, open_files)
        # True if the last stop was clean; the broker epoch of that stop (-1 if unknown).
        self.was_clean = False
        self.previous_broker_epoch = -1
        self._lock_handle = -1
        # Time of the deletion and path of directories that are to be removed, in order.
        self._deleted_directories: deque[tuple[int, str]] = deque()
        # New logs whose directories are still to be created, and the number of directories that were created or renamed
        # at once since the last `finish_directories`.
        self._due_directories: dict[TopicPartition, PartitionLog] = {}
        self._undelayed_count = 0
        # Deleted logs whose directories are still to be renamed: there were many, or the file system failed.
        self._unrenamed: dict[TopicPartition, PartitionLog] = {}
        # One bound method of each kind for all logs: thousands of them would take half a megabyte.
        self._note_recovery_points = self._checkpoint_lower_point
        self._note_clean_parts = self._checkpoint_clean_limit

    @classmethod
    def open(cls, path: str, *, filesystem: FileSystem, open_file_limit: int = 512) -> LogDirectory:
        """Creates the directory if it is missing, locks it, and reads the mark of the last clean stop.

        Raises DirectoryLocked, StorageError. The logs are not read; `load_logs` does that.
        """
        filesystem.make_directory(path)
        directory = cls(path, OpenFiles(filesystem, open_file_limit))
        directory._lock_handle = filesystem.lock(f"{path}/{LOCK}")
        directory._read_clean_shutdown()
        return directory

    @property
    def clean_broker_epoch(self) -> int:
        """The broker epoch of the last stop; -1 if that was not clean, or the epoch is unknown (KIP-966)."""
        return self.previous_broker_epoch if self.was_clean else -1

    # Identity

    def meta_properties(self) -> MetaProperties | None:
        """The directory's identity, None when it was never formatted. Raises CorruptFile, InconsistentDirectory."""
        return read_meta_properties(self.filesystem, self.path)

    def format(self, meta: MetaProperties) -> None:
        """Writes the identity of an empty directory, durably."""
        write_meta_properties(self.filesystem, self.path, meta)

    def _read_clean_shutdown(self) -> None:
        content = self.filesystem.read_file(f"{self.path}/{CLEAN_SHUTDOWN}")
        self.was_clean = content is not None
        if content:
            # {"version":0,"brokerEpoch":12}
            for field in content.decode("utf-8", "replace").strip(" {}\n").split(","):
                name, _, value = field.partition(":")
                if name.strip().strip('"') == "brokerEpoch" and value.strip().lstrip("-").isdecimal():
                    self.previous_broker_epoch = int(value)

    # Logs

    def find_logs(self) -> list[tuple[str, LogName]]:
        """Names of the logs' directories, without that of the controller.

        Raises:
            InconsistentDirectory: a directory is no log, so that `log.dirs` may name a directory of something else; or
                two have the log of one partition.
            StorageError: the directory cannot be read.
        """
        found: list[tuple[str, LogName]] = []
        seen: dict[LogName, str] = {}
        for name, is_directory in self.filesystem.list(self.path):
            if not is_directory or name in _OTHER_DIRECTORIES:
                continue
            log_name = parse_log_name(name)
            if log_name is None:
                raise InconsistentDirectory(
                    f"{self.path}/{name}",
                    "is no directory of a log, and a log directory must have no others: move it elsewhere, "
                    "or name another directory in log.dirs",
                )
            if log_name.topic == METADATA_TOPIC:
                continue
            if not log_name.mark and seen.setdefault(log_name, name) != name:
                raise InconsistentDirectory(
                    f"{self.path}/{name}", f"has a log of the same partition as {seen[log_name]}; remove one of the two"
                )
            found.append((name, log_name))
        return found

    def load_logs(self, config_for: Callable[[str], LogConfig], now_ms: int, report: Report = no_report) -> None:
        """Finds every log in the directory, and recovers the logs unless the last stop was clean (P-171).

        `config_for` returns the settings of a topic. The clean-shutdown mark is removed; the next clean stop writes it
        again. `report` is called with a text for each damage that was repaired or cut off, also for one that is found
        later. Raises what `find_logs` raises.
        """
        self._report = report
        found = self.find_logs()
        recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        start_offsets = self._read_checkpoint(LOG_START_OFFSETS)
        self.filesystem.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
        configs: dict[str, LogConfig] = {}
        for name, (topic, partition, mark) in found:
            if mark == _DELETE_MARK:
                self._deleted_directories.append((now_ms, f"{self.path}/{name}"))
            if mark in (_DELETE_MARK, _STRAY_MARK):
                continue
            key = topic, partition
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = config_for(topic)
            recovery_point = recovery_points.get(key)
            last_stop = LastStop(
                self.was_clean,
                recovery_point or 0,
                start_offsets.get(key, 0),
                recovery_point if self.was_clean else None,
            )
            log = self._open_log(f"{self.path}/{name}", key, config, now_ms, last_stop=last_stop)
            if not mark:
                self.logs[key] = log
            elif key not in self.futures:
                log.is_bulk = True
                self.futures[key] = log
            else:
                self._remove(log, now_ms)
        for key in self.logs.keys() & self.futures.keys():
            self.drop_future(*key, now_ms)
        self._removed = {key for key in (*recovery_points, *start_offsets) if not self._has_log(key)}

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition; None if it is not in this directory."""
        return self.logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        """All logs, future ones too."""
        return iter([*self.logs.values(), *self.futures.values()])

    def __len__(self) -> int:
        return len(self.logs) + len(self.futures)

    # Logs that move to this directory, or away

    def future(self, topic: str, partition: int) -> PartitionLog | None:
        """The copy of a log that moves to this directory; None if there is none."""
        return self.futures.get((topic, partition))

    def create_future(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """An empty copy of a log that is to move here. Raises StorageFull, StorageError."""
        key = topic, partition
        self._rename_deleted(key, now_ms)
        if key in self._removed:
            self.forget_removed_logs()
        log = self._open_log(
            self._unused_path(topic, partition, topic_id, _FUTURE_MARK), key, config, now_ms, topic_id=topic_id
        )
        log.is_bulk = True
        self.futures[key] = log
        return log

    def drop_future(self, topic: str, partition: int, now_ms: int) -> None:
        """Deletes the copy of a log whose move here has ended.

        Raises StorageError; even then the copy is forgotten until the next start finds it again.
        """
        log = self.futures.pop((topic, partition), None)
        if log is not None:
            # Not `_note_removed`: where there is a copy there is no log, so none that waits in `_due_directories`.
            self._mark_removed((topic, partition))
            self._remove(log, now_ms)

    def forget_futures(self, keys: Iterable[TopicPartition]) -> None:
        """Closes the copies of some logs and leaves them on the disk for the next start."""
        for key in keys:
            log = self.futures.pop(key, None)
            if log is not None:
                self._generation += 1
                with suppress(StorageError):
                    log.close_files()

    def adopt_future(self, topic: str, partition: int, assigned: bytes | None) -> bool:
        """As `LogDirectories.adopt_future`, for a broker that now has a single directory. Raises StorageError."""
        key = topic, partition
        if key not in self.futures or key in self.logs:
            return False
        meta = self.meta_properties()
        if meta is None or not meta.directory_id or assigned != uuid_from_text(meta.directory_id):
            return False
        self.promote_future(topic, partition)
        return True

    def promote_future(self, topic: str, partition: int) -> PartitionLog:
        """Makes the copy of a log the partition's log. Raises StorageError; it then remains a copy."""
        key = topic, partition
        log = self.futures[key]
        log.move(f"{self.path}/{topic}-{partition}")
        log.is_bulk = False
        del self.futures[key]
        self.logs[key] = log
        self._generation += 1
        return log

    def detach(self, topic: str, partition: int) -> PartitionLog | None:
        """Renames a log for its deletion, because another directory has a copy; returns it, None if it is not here.

        Call `close_detached` or `reattach` next. Raises StorageError; then nothing has changed.
        """
        key = topic, partition
        log = self.logs.get(key)
        if log is not None:
            if not log.is_directory_due:
                self._rename_away(log, _DELETE_MARK)
            del self.logs[key]
            self._note_removed(key)
        return log

    def reattach(self, log: PartitionLog) -> None:
        """Undoes `detach`. Raises StorageError; the log is then left renamed."""
        key = log.topic, log.partition
        if not log.is_directory_due:
            log.move(f"{self.path}/{log.topic}-{log.partition}")
        self.logs[key] = log

    def close_detached(self, log: PartitionLog, now_ms: int) -> None:
        """Closes the files of a detached log; `delete_due_logs` removes them later."""
        log.on_shortened = no_listener
        if not log.is_directory_due:
            self._close_deleted(log, now_ms)

    def _remove(self, log: PartitionLog, now_ms: int) -> None:
        self._rename_away(log, _DELETE_MARK)
        self._close_deleted(log, now_ms)

    def _note_removed(self, key: TopicPartition) -> None:
        self._mark_removed(key)
        self._due_directories.pop(key, None)

    def _close_deleted(self, log: PartitionLog, now_ms: int) -> None:
        log.close_files()
        self._deleted_directories.append((now_ms, log.path))

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        now_ms: int,
        assigned: bytes | None = None,
    ) -> PartitionLog:
        """The log of a partition, which is created if it does not exist. Raises StorageFull, StorageError.

        `assigned`, the directory in the metadata, matters only to a broker with several (`LogDirectories`).

        Of many new logs, most get their directories later, at their first use or by `finish_directories`. If the broker
        restarts before that, the log is missing and is created again.
        """
        key = topic, partition
        log = self.logs.get(key)
        if log is None:
            # The directory from which a log was to move here is gone, and a new one is made.
            self.drop_future(topic, partition, now_ms)
            self._rename_deleted(key, now_ms)
            if key in self._removed:
                self.forget_removed_logs()
            is_put_off = self._undelayed_count >= UNDELAYED_DIRECTORIES_MAX
            path = f"{self.path}/{topic}-{partition}"
            log = self._open_log(path, key, config, now_ms, topic_id=topic_id, make_directory=not is_put_off)
            self.logs[key] = log
            if is_put_off:
                self._due_directories[key] = log
            else:
                self._undelayed_count += 1
        else:
            log.take_topic_id(topic_id)
        return log

    def finish_directories(self, now_ms: int, count_max: int = 1 << 62) -> bool:
        """Creates and renames at most `count_max` pending directories of new and deleted logs; True if some are left.

        Raises StorageError.
        """
        self._undelayed_count = 0
        for key in list(islice(self._due_directories, count_max)):
            self._due_directories[key].make_directory()
            del self._due_directories[key]
        for key in list(islice(self._unrenamed, count_max)):
            self._rename_deleted(key, now_ms)
        return bool(self._due_directories or self._unrenamed)

    def delete_log(self, topic: str, partition: int, now_ms: int) -> None:
        """Deletes a log: renames its directory, which `delete_due_logs` removes.

        Of many deleted logs, most are renamed by `finish_directories`; the next start after a crash treats those that
        are left as stray. Raises StorageError if the directory cannot be renamed; the log is deleted even then, and the
        renaming is tried again.
        """
        key = topic, partition
        self.drop_future(topic, partition, now_ms)
        log = self.logs.pop(key, None)
        if log is not None:
            self._note_removed(key)
            # The callback refers to the log: thousands of such cycles would wait for the garbage collector.
            log.on_shortened = no_listener
            if not log.is_directory_due:
                self._unrenamed[key] = log
                if self._undelayed_count < UNDELAYED_DIRECTORIES_MAX:
                    self._undelayed_count += 1
                    self._rename_deleted(key, now_ms)

    def _rename_deleted(self, key: TopicPartition, now_ms: int) -> None:
        """Renames the directory of a deleted log, if that was not done yet. Raises StorageError."""
        log = self._unrenamed.get(key)
        if log is not None:
            self._rename_away(log, _DELETE_MARK)
            del self._unrenamed[key]
            self._close_deleted(log, now_ms)

    def mark_stray(self, log: PartitionLog) -> None:
        """Renames the directory of a log, or of a copy, that is not in the metadata. It is kept for the operator."""
        key = log.topic, log.partition
        if self.logs.get(key) is log:
            del self.logs[key]
            self._note_removed(key)
        else:
            del self.futures[key]
            self._mark_removed(key)  # as in `drop_future`
        self._rename_away(log, _STRAY_MARK)
        log.close_files()

    def _open_log(self, path: str, key: TopicPartition, config: LogConfig, now_ms: int, **options: Any) -> PartitionLog:
        """Opens or creates a log; `options` are those of `PartitionLog.open`. Raises StorageFull, StorageError."""
        log = PartitionLog.open(
            path, *key, config, open_files=self.open_files, now_ms=now_ms, report=self._report, **options
        )
        log.on_point_lowered = self._note_recovery_points
        log.on_clean_part_cut = self._note_clean_parts
        return log

    def _rename_away(self, log: PartitionLog, mark: str) -> None:
        log.move(self._unused_path(log.topic, log.partition, log.topic_id, mark))

    def _unused_path(self, topic: str, partition: int, topic_id: bytes | None, mark: str) -> str:
        # The topic id distinguishes the names of two deletions; without an id a number does.
        unique = int.from_bytes(topic_id or ZERO_UUID, "big")
        while True:
            suffix = f"-{partition}.{unique:032x}{mark}"
            name = topic[: _NAME_MAX - len(suffix)] + suffix
            if not self.filesystem.exists(f"{self.path}/{name}"):
                return f"{self.path}/{name}"
            unique = (unique + 1) & ((1 << 128) - 1)

    def delete_due_logs(self, now_ms: int, delay_ms: int, count_max: int = 1 << 62) -> int:
        """Removes at most `count_max` directories of deleted logs; returns their number.

        `delay_ms` is the time between deletion and removal. As in Kafka it is the broker's
        `log.segment.delete.delay.ms`, even if the topic has its own. For directories that an earlier run has deleted
        the delay begins with the start of this one.

        Raises StorageError; the directory that cannot be removed is tried again after another delay, behind the others.
        """
        for key in list(islice(self._unrenamed, count_max)):
            self._rename_deleted(key, now_ms)
        count = 0
        while count < count_max and self._deleted_directories and self._deleted_directories[0][0] + delay_ms <= now_ms:
            _, path = self._deleted_directories.popleft()
            try:
                self.filesystem.remove_tree(path)
            except StorageError:
                self._deleted_directories.append((now_ms, path))
                raise
            count += 1
        return count

    # The end

    def close(self, broker_epoch: int = -1, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Clean stop: flush and close the logs, write checkpoints and the clean-shutdown mark, release the lock.

        Raises StorageError; then there is no mark, and the next start recovers the logs. There is no mark either if a
        sync failed earlier.
        """
        try:
            if not self._close_at_once():
                for log in self:
                    log.flush()
                    log.close()
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
            if high_watermarks is not None:
                self.checkpoint_high_watermarks(high_watermarks)
            if all(log.is_durable for log in self):
                mark = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
                self.filesystem.write_file(f"{self.path}/{CLEAN_SHUTDOWN}", mark.encode())
        finally:
            self.abandon()

    def _close_at_once(self) -> bool:
        """Closes many logs with one sync of the volume; False if each log must be synced by itself.

        If the sync of the volume fails, the system does not report the file. Each log is then synced by itself, and
        only a log whose own sync fails is in doubt.
        """
        used = [log for log in self if log.is_loaded]
        if len(used) < VOLUME_SYNC_LOGS_MIN:
            return False
        for log in used:
            log.write_end(without_empty_snapshot=True)
        try:
            if not self.filesystem.sync_volume(self._lock_handle):
                return False
        except StorageError:
            return False
        for log in used:
            log.note_synced()
            log.close_files()
        return True

    def abandon(self) -> None:
        """Closes all files and releases the lock without the mark of a clean stop, even if closing a file fails."""
        for log in self:
            with suppress(StorageError):
                log.close_files()
        handle, self._lock_handle = self._lock_handle, -1
        if handle >= 0:
            with suppress(StorageError):
                self.filesystem.unlock(handle)
