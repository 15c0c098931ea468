"""DirectoryCheckpoints: the checkpoint files of a log directory, and the rules that keep them correct.

The files have offsets by partition: recovery points, log starts, high watermarks, and the ends of cleaned parts. An
offset that is too low costs time at the next start; one that is too high loses records, or leaves them unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from pykbroker.logstore.blocking_step import BlockingStep, replace_file
from pykbroker.logstore.callbacks import Report, no_report
from pykbroker.logstore.checkpoint_file import encode_lines, offset_line, read_offsets, write_offsets
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.topic_partition import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
ENTRIES_PER_STEP: Final = 500
"""Number of entries that are encoded in one step, before other tasks run; about 0.5 ms."""


class DirectoryCheckpoints:
    """The checkpoints of the logs of one directory; the base class of `LogDirectory`.

    Attributes:
        path: the directory.
        open_files: the files of its logs that are open.
        logs, futures: as those of `LogDirectory`.
    """

    def __init__(self, path: str, open_files: OpenFiles) -> None:
        self.path = path
        self.open_files = open_files
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self._report: Report = no_report
        # Names of deleted logs that may still be in checkpoints.
        self._removed: set[TopicPartition] = set()
        # Grows with each deleted log, each recovery point or cleaned part that became lower, and each log start that
        # was written at once: a checkpoint that was begun in an earlier generation is not written.
        self._generation = 0
        # Names of checkpoints that are being replaced in steps: two writers would use the same staged file.
        self._replacing: set[str] = set()
        # Content of the checkpoint of high watermarks as it was last written in steps; empty if that is not known.
        self._written_marks = b""

    @property
    def filesystem(self) -> FileSystem:
        """The file system that holds the directory."""
        return self.open_files.filesystem

    def _mark_removed(self, key: TopicPartition) -> None:
        """Notes that a log or a copy is deleted: its checkpoint entries are wrong for a new log of the same name."""
        self._removed.add(key)
        self._generation += 1
        self._written_marks = b""

    def _has_log(self, key: TopicPartition) -> bool:
        return key in self.logs or key in self.futures

    def own_entries(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The entries of partitions that have a log or a copy of one here."""
        return {key: offset for key, offset in offsets.items() if self._has_log(key)}

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Entries of a checkpoint. A damaged one is read as empty, which makes a recovery longer but not impossible."""
        try:
            return read_offsets(self.filesystem, f"{self.path}/{name}")
        except CorruptFile as error:
            self._report(f"{error}; it is ignored, and will be written again")
            return {}

    def _all_logs(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        return chain(self.logs.items(), self.futures.items())

    def checkpoint_recovery_points(self) -> None:
        """Writes the recovery point of each log."""
        points = {key: log.recovery_point for key, log in self._all_logs()}
        write_offsets(self.filesystem, f"{self.path}/{RECOVERY_POINTS}", points)

    def _checkpoint_lower_point(self) -> None:
        self._generation += 1
        self.checkpoint_recovery_points()

    def _checkpoint_clean_limit(self, log: PartitionLog, offset: int) -> None:
        self._generation += 1
        noted = self._read_checkpoint(CLEANER_OFFSETS)
        key = log.topic, log.partition
        if noted.get(key, 0) > offset:
            write_offsets(self.filesystem, f"{self.path}/{CLEANER_OFFSETS}", {**noted, key: offset})

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the log starts that are not the base offset of the first segment."""
        self._generation += 1
        write_offsets(self.filesystem, f"{self.path}/{LOG_START_OFFSETS}", self._hidden_starts())

    def write_log_starts(self) -> Iterator[BlockingStep | None]:
        """As `checkpoint_log_start_offsets`, in steps, and with the rules of `write_checkpoints`."""
        generation = self._generation
        logs = list(self._all_logs())
        content = yield from _encoded(
            (key, log.log_start_offset if log.has_hidden_start else None) for key, log in logs
        )
        if self._generation == generation:
            yield from self._replace(LOG_START_OFFSETS, content)

    def _hidden_starts(self) -> dict[TopicPartition, int]:
        return {key: log.log_start_offset for key, log in self._all_logs() if log.has_hidden_start}

    def _replace(self, name: str, content: bytes) -> Iterator[BlockingStep]:
        """Replaces a checkpoint in steps, unless something changes before its content is durable.

        Does nothing while another iterator replaces it.
        """
        if name in self._replacing:
            return
        generation = self._generation
        self._replacing.add(name)
        try:
            path = f"{self.path}/{name}"
            yield from replace_file(self.filesystem, path, content, lambda: self._generation == generation)
        finally:
            self._replacing.remove(name)

    def write_high_watermarks(
        self, high_watermarks: Iterable[tuple[TopicPartition, int]]
    ) -> Iterator[BlockingStep | None]:
        """Writes the high watermarks in steps if they have changed or their file is gone; as `write_checkpoints`.

        On a quiet broker most calls only check that the file exists, which shows that the directory is still there.
        """
        generation = self._generation
        content = yield from _encoded(high_watermarks)
        if self._generation != generation or HIGH_WATERMARKS in self._replacing:
            return
        if content == self._written_marks and self.filesystem.exists(f"{self.path}/{HIGH_WATERMARKS}"):
            return
        self._written_marks = b""
        yield from self._replace(HIGH_WATERMARKS, content)
        if self._generation == generation:
            self._written_marks = content

    def write_checkpoints(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> Iterator[BlockingStep | None]:
        """Writes recovery points and high watermarks in steps, and removes deleted logs from the other checkpoints.

        The logs may change whenever the iterator yields. If a log was deleted or a recovery point became lower, nothing
        more is written until the next call: the entries may be too high by then, those in the files only too low.
        Raises StorageError.

        Yields:
            A step that may run in another thread before the next one is asked for; None if other work may be done.

        Args:
            high_watermarks: partitions with their high watermarks, which are read step by step.
        """
        generation = self._generation
        recovery_points = ((key, log.recovery_point) for key, log in list(self._all_logs()))
        for name, offsets in ((RECOVERY_POINTS, recovery_points), (HIGH_WATERMARKS, high_watermarks)):
            content = yield from _encoded(offsets)
            if self._generation != generation:
                return
            yield from self._replace(name, content)
            if self._generation != generation:
                return
        if self._generation == generation:
            self.forget_removed_logs((LOG_START_OFFSETS, CLEANER_OFFSETS))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks of the replicas."""
        write_offsets(self.filesystem, f"{self.path}/{HIGH_WATERMARKS}", high_watermarks)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the last checkpoint."""
        return self._read_checkpoint(HIGH_WATERMARKS)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Offset up to which each compacted log was cleaned."""
        return self._read_checkpoint(CLEANER_OFFSETS)

    def write_cleaner_offsets(
        self, offsets: Callable[[], Iterable[tuple[TopicPartition, int]]]
    ) -> Iterator[BlockingStep | None]:
        """Writes the offsets up to which compacted logs were cleaned, in steps.

        Nothing is written if logs are removed meanwhile: a new log of the same name would get the offset of the removed
        one. An offset that is missing or too low only costs another cleaning. Raises StorageError.

        Yields:
            As `write_checkpoints`.

        Args:
            offsets: called once, for the logs that exist at that time with their offsets, which are read step by step.
        """
        generation = self._generation
        content = yield from _encoded(offsets())
        if self._generation == generation:
            yield from self._replace(CLEANER_OFFSETS, content)

    def forget_removed_logs(self, names: Iterable[str] = CHECKPOINTS) -> None:
        """Removes deleted logs from the checkpoints; `names` are those that may have them. Raises StorageError.

        The offsets of a deleted log are wrong for a new log of the same name: a start would discard its records, or
        would not check them.
        """
        if not self._removed:
            return
        for name in names:
            noted = self._read_checkpoint(name)
            left = self.own_entries(noted)
            if len(left) < len(noted):
                write_offsets(self.filesystem, f"{self.path}/{name}", left)
        self._removed.clear()


def _encoded(offsets: Iterable[tuple[TopicPartition, int | None]]) -> Generator[None, None, bytes]:
    """Content of a checkpoint, made in steps between which other work may be done; None as an offset is left out."""
    lines: list[str] = []
    for count, (key, offset) in enumerate(offsets, 1):
        if offset is not None:
            lines.append(offset_line(key, offset))
        if count % ENTRIES_PER_STEP == 0:
            yield
    return encode_lines(lines)
