"""UnloadedLog: a log before its first use. None of its files was read, so that thousands take little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykbroker.logstore.callbacks import Report
from pykbroker.logstore.errors import CorruptFile, CorruptSegment
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.loaded_log import LoadedLog
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import Cut, LoadRequest, first_base_offset, load_log
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import write_topic_id
from pykbroker.named_tuple import NamedTuple


class LastStop(NamedTuple):
    """State of a log at the last stop of the broker, as its checkpoints say; the defaults are those of a new log.

    Attributes:
        is_clean: True after a clean stop, so that the log need not be recovered.
        recovery_point: records below it are durable.
        log_start_offset: 0 if it is the base offset of the first segment.
        end_offset: log end offset, None if unknown; after a clean stop it is the recovery point.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    end_offset: int | None = None


NEW_LOG: Final = LastStop()


class UnloadedLog:
    """A log whose files were not read. It has the offsets of the checkpoints, or is new.

    Attributes:
        path: directory of the log.
        recovery_point: records below it are durable, by the checkpoint.
        end_offset: log end offset, or None if unknown; after a clean stop it is the recovery point.
        is_clean: True after a clean stop, so that the log need not be recovered.
        is_new: True if the log never had a record.
        is_directory_due: True while the directory is still to be created.
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
        last_stop: LastStop,
        *,
        now_ms: int,
        has_directory: bool,
    ) -> None:
        self.path = path
        self.recovery_point = last_stop.recovery_point
        self.is_new = self.is_directory_due = not has_directory
        self.is_clean = last_stop.is_clean or not has_directory
        # A new log is empty, so its end is known without reading.
        self.end_offset = last_stop.end_offset if has_directory else last_stop.log_start_offset
        self._open_files = open_files
        self._opened_ms = now_ms
        self._log_start_offset = last_stop.log_start_offset
        self._start_is_known = not has_directory
        self._first_base = 0  # Base offset of the first segment, as far as it is known.

    def make_directory(self, topic_id: bytes | None) -> None:
        """Creates the directory of a new log, if that was not done yet. Raises StorageError."""
        if self.is_directory_due:
            self._open_files.filesystem.make_directory(self.path)
            if topic_id is not None:
                write_topic_id(self._open_files.filesystem, self.path, topic_id)
            self.is_directory_due = False

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read; lists the directory."""
        if not self._start_is_known:
            # The checkpoint has only log starts that are not the base offset of the first segment.
            self._first_base = first_base_offset(self._open_files.filesystem, self.path)
            self._log_start_offset = max(self._log_start_offset, self._first_base)
            self._start_is_known = True
        return self._log_start_offset

    @property
    def has_hidden_start(self) -> bool:
        return self._log_start_offset > self._first_base

    def load(self, name: str, config: LogConfig, report: Report, on_point_lowered: Callable[[], None]) -> LoadResult:
        """Reads the files, and recovers the log unless the last stop was clean. `report` gets a text for each damage.

        Raises StorageError, CorruptFile; the log then stays unloaded, and the next attempt recovers all of it if a file
        was damaged.
        """
        epochs = self._load_epochs(report)
        try:
            parts = load_log(self._request(config), self._open_files, epochs)
        except CorruptSegment:
            if not self.is_clean:
                raise
            # The log is damaged in spite of a clean stop, so all of it is recovered, as after a kill.
            self._mark_unclean()
            parts = load_log(self._request(config), self._open_files, epochs)
        return LoadedLog(self.path, name, config, parts, on_point_lowered), parts.cut

    def _load_epochs(self, report: Report) -> LeaderEpochs:
        """The leader epochs. If their file is damaged, all of the log is recovered, which rebuilds them."""
        filesystem, path = self._open_files.filesystem, f"{self.path}/{EPOCHS_FILE}"
        try:
            return LeaderEpochs(filesystem, path, is_new=self.is_new)
        except CorruptFile as error:
            filesystem.remove(path)
            self._mark_unclean()
            report(f"{error}; it is rebuilt from the log")
            return LeaderEpochs(filesystem, path)

    def _mark_unclean(self) -> None:
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

    # Operations that do not load the log

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def has_unflushed_segments(self) -> bool:
        return False

    def begin_flush(self, *, include_active: bool) -> FlushWork | None:
        return None

    def flush(self) -> None:
        """Does nothing: the log has no new records."""

    def write_end(self, *, without_empty_snapshot: bool) -> bool:
        return False

    def close(self) -> None:
        """No file is open."""

    def note_synced(self) -> None:
        """Does nothing: no file was written."""

    def close_files(self) -> None:
        """No file is open."""

    def delete_due_files(self, now_ms: int) -> int:
        return 0

    def remove_expired_producers(self, now_ms: int) -> None:
        """Does nothing: producers are not loaded yet."""

    def rename_directory(self, path: str) -> None:
        if not self.is_directory_due:
            self._open_files.filesystem.rename(self.path, path)
        self.path = path


LoadResult = tuple[LoadedLog, Cut | None]
