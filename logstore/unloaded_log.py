"""A log that nobody has used since it was opened: nothing of it was read, so that thousands cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.logstore.errors import CorruptFile, CorruptSegment
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.listeners import Report
from pykbroker.logstore.loaded_log import LoadedLog
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import Cut, LoadRequest, first_base_offset, load_log
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import write_topic_id


class UnloadedLog:
    """A log whose files were not read: known are the checkpoints' offsets, or that it is new.

    Attributes:
        path: its directory.
        recovery_point: records below it are durable, as far as a checkpoint says.
        end_offset: where it ends, if that is known: a clean stop leaves it as the recovery point.
        is_clean: a clean stop left it, so that it need not be recovered.
        is_new: nothing but its identity was ever in it.
        is_directory_due: its directory is still to be made.
    """

    __slots__ = (
        "_first_base",
        "_log_start_offset",
        "_open_files",
        "_opened_ms",
        "_start_is_known",
        "end_offset",
        "is_clean",
        "is_directory_due",
        "is_new",
        "path",
        "recovery_point",
    )

    def __init__(
        self,
        path: str,
        open_files: OpenFiles,
        *,
        now_ms: int,
        recovery_point: int,
        log_start_offset: int,
        end_offset: int | None,
        is_clean: bool,
        has_directory: bool,
    ) -> None:
        self.path = path
        self.recovery_point = recovery_point
        self.is_new = self.is_directory_due = not has_directory
        self.is_clean = is_clean or not has_directory
        # Nothing has to be read to know what is in a new one.
        self.end_offset = end_offset if has_directory else log_start_offset
        self._open_files = open_files
        self._opened_ms = now_ms
        self._log_start_offset = log_start_offset
        self._start_is_known = not has_directory
        self._first_base = 0  # Base offset of the first segment, as far as it is known.

    def make_directory(self, topic_id: bytes | None) -> None:
        """Make the directory of a new log, if that was not done yet. Raises StorageError."""
        if self.is_directory_due:
            self._open_files.filesystem.make_directory(self.path)
            if topic_id is not None:
                write_topic_id(self._open_files.filesystem, self.path, topic_id)
            self.is_directory_due = False

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read; takes a look at the directory."""
        if not self._start_is_known:
            # The checkpoint names only starts that the first segment does not tell.
            self._first_base = first_base_offset(self._open_files.filesystem, self.path)
            self._log_start_offset = max(self._log_start_offset, self._first_base)
            self._start_is_known = True
        return self._log_start_offset

    @property
    def has_hidden_start(self) -> bool:
        return self._log_start_offset > self._first_base

    def load(self, name: str, config: LogConfig, report: Report, on_point_lowered: Callable[[], None]) -> LoadResult:
        """Read the files, and recover the log unless a clean stop left it. What is damaged is told to `report`.

        Raises StorageError, CorruptFile; then this log is what it was, and all of it will be looked at where something
        was damaged.
        """
        epochs = self._load_epochs(report)
        try:
            parts = load_log(self._request(config), self._open_files, epochs)
        except CorruptSegment:
            if not self.is_clean:
                raise
            # A clean stop left it, and yet it cannot be read: all of it is looked at, as after a kill.
            self._distrust()
            parts = load_log(self._request(config), self._open_files, epochs)
        return LoadedLog(self.path, name, config, parts, on_point_lowered), parts.cut

    def _load_epochs(self, report: Report) -> LeaderEpochs:
        """The leader epochs; if their file is damaged all of the log is looked at, which makes them anew."""
        filesystem, path = self._open_files.filesystem, f"{self.path}/{EPOCHS_FILE}"
        try:
            return LeaderEpochs(filesystem, path, is_new=self.is_new)
        except CorruptFile as error:
            filesystem.remove(path)
            self._distrust()
            report(f"{error}; it is made anew from the log")
            return LeaderEpochs(filesystem, path)

    def _distrust(self) -> None:
        self.is_clean = False
        self.recovery_point = 0

    def _request(self, config: LogConfig) -> LoadRequest:
        return LoadRequest(
            self.path,
            self._log_start_offset,
            self.recovery_point,
            self.is_clean,
            self._opened_ms,
            config.index_interval_bytes,
            config.producer_id_expiration_ms,
            self.is_new,
        )

    # What a log without anything new in it answers at once

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def has_unflushed_segments(self) -> bool:
        return False

    def begin_flush(self, *, include_active: bool) -> FlushWork | None:
        return None

    def flush(self) -> None:
        """There is nothing to make durable."""

    def write_end(self, *, without_empty_snapshot: bool) -> bool:
        return False

    def close(self) -> None:
        """No file is open."""

    def note_synced(self) -> None:
        """Nothing was written."""

    def close_files(self) -> None:
        """No file is open."""

    def delete_due_files(self, now_ms: int) -> int:
        return 0

    def remove_expired_producers(self, now_ms: int) -> None:
        """No producer is known yet."""

    def rename_directory(self, path: str) -> None:
        if not self.is_directory_due:
            self._open_files.filesystem.rename(self.path, path)
        self.path = path


LoadResult = tuple[LoadedLog, Cut | None]
