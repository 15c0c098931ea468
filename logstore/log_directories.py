"""LogDirectories: several log directories of one broker (`log.dirs`), in the place of a single LogDirectory.

A new log is created in the directory that `prefer` has noted for it, else in that of the metadata, else in the one
with the fewest logs that is not cordoned. A directory that fails goes offline with its logs until the next start; the
others stay online (KIP-112, KIP-858).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, TypeVar

from pykbroker.logstore.blocking_step import BlockingStep
from pykbroker.logstore.callbacks import Report, no_report
from pykbroker.logstore.directory_checkpoints import ENTRIES_PER_STEP
from pykbroker.logstore.errors import InconsistentDirectory, StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.protocol.uuids import UNASSIGNED_DIRECTORY

R = TypeVar("R")

NO_REPLICA: Final = b""
"""Result of `assigned_directory`, instead of a directory id, for a log that is no replica of the broker."""


class LogDirectories:
    """Several log directories. Made of opened ones; ended by `close`.

    Attributes:
        online: directory id -> directory, in the order of `log.dirs`.
        offline: directory id -> path of those that have failed since the start; the id of one that could not be opened
            is not known.
        unopened: paths of those that could not be opened.
        cordoned: ids of directories that get new logs only if the metadata or `prefer` names them (`cordoned.log.dirs`,
            KIP-1066).
    """

    def __init__(self, directories: Mapping[bytes, LogDirectory], unopened: Sequence[str] = ()) -> None:
        self.online = dict(directories)
        self.offline: dict[bytes, str] = {}
        self.unopened = tuple(unopened)
        self.cordoned: frozenset[bytes] = frozenset()
        # Logs of directories that went offline since the start: they are not created again elsewhere.
        self._unreachable: set[TopicPartition] = set()
        self._preferred: dict[TopicPartition, bytes] = {}

    @property
    def filesystem(self) -> FileSystem:
        """The file system that holds the directories."""
        return next(iter(self.online.values())).filesystem

    @property
    def has_failed(self) -> bool:
        """True if a directory is offline or could not be opened."""
        return bool(self.offline or self.unopened)

    @property
    def was_clean(self) -> bool:
        """True if the last stop was clean in every directory."""
        return not self.has_failed and all(directory.was_clean for directory in self.online.values())

    @property
    def clean_broker_epoch(self) -> int:
        """`LogDirectory.clean_broker_epoch` if all directories have the same; else -1: one may have lost records."""
        epochs = {directory.clean_broker_epoch for directory in self.online.values()}
        return -1 if self.has_failed or len(epochs) > 1 else epochs.pop()

    def id_of(self, topic: str, partition: int) -> bytes | None:
        """Id of the directory that has a log; None if none has."""
        for directory_id, directory in self.online.items():
            if (topic, partition) in directory.logs:
                return directory_id
        return None

    def id_of_path(self, path: str) -> bytes | None:
        """Id of the online directory that holds a file; None if none does."""
        for directory_id, directory in self.online.items():
            if path == directory.path or path.startswith(f"{directory.path}/"):
                return directory_id
        return None

    # Logs

    def load_logs(
        self,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        report: Report = no_report,
        assigned_directory: Callable[[PartitionLog], bytes | None] = lambda log: None,
    ) -> None:
        """As `LogDirectory.load_logs`, for each directory; one that cannot be read goes offline.

        If two directories have a log of the same partition, the one that the metadata does not name is marked stray:
        its directory was offline when the log was moved to another one, or when the topic was deleted. If the metadata
        names neither, the log that never had a record is marked stray: its directory failed while the log was created,
        and the log was then created in another one.

        Args:
            config_for, now_ms, report: as for `LogDirectory.load_logs`.
            assigned_directory: returns the id of the directory that the metadata has for a log, `NO_REPLICA` for a log
                that is no replica of this broker, None if it does not know.

        Raises:
            InconsistentDirectory: two directories have a log of the same partition, or `LogDirectory.find_logs` refuses
                the content of one.
            StorageError: the last directory cannot be read.
        """
        for directory in self.online.values():
            # A start that is refused leaves all directories with the marks of their clean stops.
            try:
                directory.find_logs()
            except InconsistentDirectory:
                raise
            except StorageError:
                continue  # it goes offline below
        directory_ids: dict[TopicPartition, bytes] = {}
        for directory_id, directory in list(self.online.items()):
            try:
                directory.load_logs(config_for, now_ms, report)
            except InconsistentDirectory:
                raise  # pragma: no cover: only if the directory has changed since `find_logs`
            except StorageError as error:
                if len(self.online) == 1:
                    raise
                self.take_offline(directory_id)
                report(f"{directory.path} cannot be read and is offline until the next start: {error}")
                continue
            for key in list(directory.logs):
                if key in directory_ids:
                    directory_ids[key] = self._choose(key, directory_ids[key], directory_id, assigned_directory, report)
                else:
                    directory_ids[key] = directory_id
        self._drop_second_futures(now_ms)

    def _choose(
        self,
        key: TopicPartition,
        first_id: bytes,
        second_id: bytes,
        assigned_directory: Callable[[PartitionLog], bytes | None],
        report: Report,
    ) -> bytes:
        """Marks one of two logs of a partition stray; returns the id of the directory with the other one."""
        first, second = self.online[first_id], self.online[second_id]
        assigned_first, assigned_second = assigned_directory(first.logs[key]), assigned_directory(second.logs[key])
        if assigned_second in (NO_REPLICA, first_id):
            stray, kept_id = second, first_id
        elif assigned_first in (NO_REPLICA, second_id):
            stray, kept_id = first, second_id
        elif not second.logs[key].log_end_offset:
            stray, kept_id = second, first_id
        elif not first.logs[key].log_end_offset:
            stray, kept_id = first, second_id
        else:
            raise InconsistentDirectory(
                f"{second.path}/{key[0]}-{key[1]}",
                f"{first.path} has a log of this partition too; remove one of the two",
            )
        kept = self.online[kept_id].path
        report(f"{stray.path}/{key[0]}-{key[1]} is marked stray: {kept} has the log of this partition")
        stray.mark_stray(stray.logs[key])
        return kept_id

    def _drop_second_futures(self, now_ms: int) -> None:
        """Deletes all copies of a log but the first: the broker was killed while one was replaced by another."""
        seen: set[TopicPartition] = set()
        for directory in self.online.values():
            for key in list(directory.futures):
                if key in seen:
                    directory.drop_future(*key, now_ms)
                seen.add(key)

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """All logs."""
        return {key: log for directory in self.online.values() for key, log in directory.logs.items()}

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition; None if no directory has it."""
        for directory in self.online.values():
            log = directory.get(topic, partition)
            if log is not None:
                return log
        return None

    def __iter__(self) -> Iterator[PartitionLog]:
        return chain.from_iterable(map(iter, list(self.online.values())))

    def __len__(self) -> int:
        return sum(map(len, self.online.values()))

    # Moves between directories

    @property
    def futures(self) -> dict[TopicPartition, PartitionLog]:
        """Copies of logs that move to another directory."""
        return {key: log for directory in self.online.values() for key, log in directory.futures.items()}

    def future(self, topic: str, partition: int) -> PartitionLog | None:
        """The copy of a log that moves to another directory; None if there is none."""
        return next(
            (log for directory in self.online.values() if (log := directory.future(topic, partition)) is not None), None
        )

    def future_id_of(self, topic: str, partition: int) -> bytes | None:
        """Id of the directory to which a log moves; None if it does not move."""
        for directory_id, directory in self.online.items():
            if (topic, partition) in directory.futures:
                return directory_id
        return None

    def create_future(
        self, topic: str, partition: int, directory_id: bytes, topic_id: bytes | None, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """An empty copy of a log in the directory to which it is to move.

        Raises:
            StorageFull, StorageError: it cannot be created; also if a directory is offline, which may have one already.
        """
        if self.has_failed:
            raise StorageError(f"{topic}-{partition}", "a log directory is offline, so no replica can be moved")
        log = self.online[directory_id].create_future(topic, partition, topic_id, config, now_ms)
        self._preferred.pop((topic, partition), None)
        return log

    def drop_future(self, topic: str, partition: int, now_ms: int) -> None:
        """As `LogDirectory.drop_future`, in each directory."""
        self._call_each(lambda directory: directory.drop_future(topic, partition, now_ms))

    def replace_by_future(self, topic: str, partition: int, now_ms: int) -> PartitionLog:
        """Makes the copy of a log, which must have all of it, the log of its partition; the old one is deleted.

        The old log is renamed first: a broker that is killed between the two steps finds no log but the copy, in the
        directory that the metadata has for it, and `adopt_future` does the second step.

        Raises:
            StorageError: nothing has changed; or the old log could not be renamed back either, and is missing in its
                directory.
        """
        target = self.online[self.future_id_of(topic, partition) or b""]
        if target.futures[topic, partition].has_hidden_start:
            # Otherwise a crash would bring back records that were deleted.
            target.checkpoint_log_start_offsets()
        source_id = self.id_of(topic, partition)
        source = None if source_id is None else self.online[source_id]
        old = None if source is None else source.detach(topic, partition)
        try:
            log = target.promote_future(topic, partition)
        except StorageError:
            if source is not None and old is not None:
                source.reattach(old)
            raise
        if source is not None and old is not None:
            source.close_detached(old, now_ms)
        return log

    def adopt_future(self, topic: str, partition: int, assigned: bytes | None) -> bool:
        """Makes a copy the log of its partition, if there is no other and the metadata names the copy's directory."""
        directory_id = self.future_id_of(topic, partition)
        if directory_id is None or directory_id != assigned or self.get(topic, partition) is not None:
            return False
        self.online[directory_id].promote_future(topic, partition)
        return True

    def prefer(self, topic: str, partition: int, directory_id: bytes) -> None:
        """Notes the directory for a log that does not exist yet (AlterReplicaLogDirs)."""
        self._preferred[topic, partition] = directory_id

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        now_ms: int,
        assigned: bytes | None = None,
    ) -> PartitionLog:
        """The log of a partition, which is created if it does not exist.

        Args:
            assigned: id of the directory that the metadata has for the log, reserved or not; None if it has none.

        Raises:
            StorageFull, StorageError: it cannot be created; also if it is, or may be, in a directory that is offline.
        """
        key = topic, partition
        log = self.get(topic, partition)
        if log is not None:
            log.take_topic_id(topic_id)
            return log
        directory = self._directory_for(key, assigned)
        created = directory.create_log(topic, partition, topic_id, config, now_ms)
        self._preferred.pop(key, None)
        return created

    def _directory_for(self, key: TopicPartition, assigned: bytes | None) -> LogDirectory:
        preferred = self._preferred.get(key)
        if preferred in self.online:
            return self.online[preferred]
        # P-443: a replica of an older metadata.version, which has no directories, may have its log in the failed one.
        may_be_offline = self.has_failed and assigned != UNASSIGNED_DIRECTORY and assigned not in self.online
        if key in self._unreachable or may_be_offline:
            raise StorageError(f"{key[0]}-{key[1]}", "its log is, or may be, in a log directory that is offline")
        if assigned is not None and assigned in self.online:
            return self.online[assigned]
        # A replica may have come just before all directories were cordoned; then the first one takes it, as in Kafka.
        open_ones = [directory for known, directory in self.online.items() if known not in self.cordoned]
        return min(open_ones or list(self.online.values())[:1], key=len)

    def finish_directories(self, now_ms: int, count_max: int = 1 << 62) -> bool:
        """As `LogDirectory.finish_directories`, for each directory."""
        return any(self._call_each(lambda directory: directory.finish_directories(now_ms, count_max)))

    def delete_log(self, topic: str, partition: int, now_ms: int) -> None:
        self._unreachable.discard((topic, partition))
        self._preferred.pop((topic, partition), None)
        self._call_each(lambda directory: directory.delete_log(topic, partition, now_ms))

    def mark_stray(self, log: PartitionLog) -> None:
        """As `LogDirectory.mark_stray`, in the directory that has it."""
        next(directory for directory in self.online.values() if log in directory).mark_stray(log)

    def delete_due_logs(self, now_ms: int, delay_ms: int, count_max: int = 1 << 62) -> int:
        """As `LogDirectory.delete_due_logs`, for each directory."""
        return sum(self._call_each(lambda directory: directory.delete_due_logs(now_ms, delay_ms, count_max)))

    def take_offline(self, directory_id: bytes) -> list[TopicPartition]:
        """Takes a directory offline until the next start; returns the partitions whose logs were in it.

        Copies of these in other directories are closed; the next start finds them.
        """
        directory = self.online.pop(directory_id)
        self.offline[directory_id] = directory.path
        lost = list(directory.logs)
        self._unreachable.update(lost)
        directory.abandon()
        for other in self.online.values():
            other.forget_futures(lost)
        return lost

    # Checkpoints

    def write_checkpoints(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> Iterator[BlockingStep | None]:
        """As `LogDirectory.write_checkpoints`, for each directory."""
        offsets = yield from _collect_in_steps(high_watermarks)
        yield from self._steps_of_each(
            lambda directory: directory.write_checkpoints(directory.own_entries(offsets).items())
        )

    def write_high_watermarks(
        self, high_watermarks: Iterable[tuple[TopicPartition, int]]
    ) -> Iterator[BlockingStep | None]:
        """As `LogDirectory.write_high_watermarks`, for each directory."""
        offsets = yield from _collect_in_steps(high_watermarks)
        yield from self._steps_of_each(
            lambda directory: directory.write_high_watermarks(directory.own_entries(offsets).items())
        )

    def write_log_starts(self) -> Iterator[BlockingStep | None]:
        """As `LogDirectory.write_log_starts`, for each directory."""
        yield from self._steps_of_each(LogDirectory.write_log_starts)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the last checkpoints, without those that cannot be read."""
        return self._checkpointed_offsets(LogDirectory.high_watermarks)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Offset up to which each compacted log was cleaned, without those that cannot be read."""
        return self._checkpointed_offsets(LogDirectory.cleaner_offsets)

    def _checkpointed_offsets(
        self, read: Callable[[LogDirectory], Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        """The entries of the directories' checkpoints; a directory that fails goes offline at its next write."""
        found: dict[TopicPartition, int] = {}
        for directory in self.online.values():
            with suppress(StorageError):
                found.update((key, offset) for key, offset in read(directory).items() if key in directory.logs)
        return found

    def write_cleaner_offsets(
        self, offsets: Callable[[], Iterable[tuple[TopicPartition, int]]]
    ) -> Iterator[BlockingStep | None]:
        """As `LogDirectory.write_cleaner_offsets`, for each directory; `offsets` is called for each."""
        yield from self._steps_of_each(
            lambda directory: directory.write_cleaner_offsets(
                lambda: ((key, offset) for key, offset in offsets() if key in directory.logs)
            )
        )

    def close(self, broker_epoch: int = -1, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Clean stop of each directory, also if that of another one fails. Raises StorageError."""
        self._call_each(
            lambda directory: directory.close(
                broker_epoch, None if high_watermarks is None else directory.own_entries(high_watermarks)
            )
        )

    def abandon(self) -> None:
        """Closes all files and releases the locks without the mark of a clean stop."""
        for directory in self.online.values():
            directory.abandon()

    def _call_each(self, work: Callable[[LogDirectory], R]) -> list[R]:
        """Results of `work` for each directory; an error of one is raised after the work on the others."""
        return list(self._steps_of_each(lambda directory: iter([work(directory)])))

    def _steps_of_each(self, work: Callable[[LogDirectory], Iterator[R]]) -> Iterator[R]:
        """The steps of `work` for each directory; an error of one is raised after the work on the others."""
        failure: StorageError | None = None
        for directory in list(self.online.values()):
            try:
                yield from work(directory)
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure


def _collect_in_steps(
    offsets: Iterable[tuple[TopicPartition, int]],
) -> Generator[None, None, dict[TopicPartition, int]]:
    """Reads offsets in steps, between which other work may be done, and returns them."""
    read: dict[TopicPartition, int] = {}
    for key, offset in offsets:
        read[key] = offset
        if len(read) % ENTRIES_PER_STEP == 0:
            yield None
    return read
