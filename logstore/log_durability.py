"""Making one partition's log durable while it is in use, and closing it at a clean stop."""

from __future__ import annotations

from bisect import bisect_right

from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.log_parts import LogParts
from pykbroker.logstore.segment import SNAPSHOT_SUFFIX, segment_path


class LogDurability(LogParts):
    """Durability of a log: the offset up to which it is durable, and what a sync refused."""

    __slots__ = ()

    @property
    def is_durable(self) -> bool:
        """True if everything was made durable, so that a start need not look at it."""
        return self._active is None or self.recovery_point == self._end_offset

    @property
    def has_unflushed_segments(self) -> bool:
        """True if sealed segments are not durable yet, their indexes among them."""
        return self._active is not None and self._sealed_durable_to < self._active.base_offset

    def begin_flush(self, *, include_active: bool = True) -> FlushWork | None:
        """Start to make the log durable; None when there is nothing to do. See FlushWork for what follows.

        Of the active segment only the log file is synced: recovery makes its indexes anew.
        """
        if self._active is None:
            return None
        active = self._active
        offset = self._end_offset if include_active else active.base_offset
        if offset <= self.recovery_point and not self.has_unflushed_segments:
            return None
        self._epochs.write_pending()
        from_offset = min(self.recovery_point, self._sealed_durable_to)
        segments = [s for s in self._segments[max(bisect_right(self._bases, from_offset) - 1, 0) :] if s.size]
        if not include_active and active in segments:
            segments.remove(active)
        paths: list[str] = []
        for segment in segments:
            if segment is not active:
                paths += (segment.offset_index.path, segment.time_index.path, segment.aborted.path)
        paths += [segment_path(self.path, s, SNAPSHOT_SUFFIX) for s in self._snapshots if s > from_offset]
        with_epochs, with_names = not self._epochs.is_durable, self._has_new_names
        if with_epochs:
            paths.append(f"{self.path}/{EPOCHS_FILE}")
        folder = self.path if paths or with_names else None
        files = [segment.file for segment in segments]
        sealed_to = active.base_offset
        truncations = self._truncations

        def ended(offset: int, is_done: bool) -> None:
            if is_done:
                if truncations == self._truncations:
                    self._flushed(offset, sealed_to)
            else:
                self._is_doubtful = True
                self._epochs.is_durable &= not with_epochs
                self._has_new_names |= with_names

        work = FlushWork(offset, self.filesystem, files, paths, folder, ended)
        # A change meanwhile takes the marks away again.
        self._epochs.is_durable = True
        self._has_new_names = False
        return work

    def _flushed(self, offset: int, sealed_to: int) -> None:
        if not self._is_doubtful:
            self.recovery_point = max(self.recovery_point, min(offset, self._end_offset))
            self._sealed_durable_to = max(self._sealed_durable_to, sealed_to)

    def flush(self) -> None:
        """Make everything durable, here and now. Raises StorageError."""
        if (work := self.begin_flush()) is not None:
            try:
                work.run()
            finally:
                work.finish()

    def close(self) -> None:
        """Write what a clean stop leaves (producer snapshot, indexes to the end), durably, and close the files.

        The log may be used again afterwards; it then opens its files anew.
        """
        if (active := self._active) is not None:
            if self.write_end():
                active.sync_all(f"{self.path}/{EPOCHS_FILE}", self._snapshots[-1:])
            self.close_files()

    def write_end(self, *, without_empty_snapshot: bool = False) -> bool:
        """Write what a clean stop leaves, without making it durable; whether there are files. Raises StorageError.

        A stop with many logs leaves out the snapshots of those that never had a producer: after a clean stop no
        snapshot at all means no producer, to Kafka as well, which then makes empty ones.
        """
        if (active := self._active) is None:
            return False
        if not without_empty_snapshot or self._producers.producers or self._snapshots:
            self._take_snapshot()
        self._epochs.write_pending()
        if not active.size and not self.filesystem.exists(active.file.path):
            return False
        active.write_indexes(is_final=True)
        return True

    def note_synced(self) -> None:
        """All files of the log were made durable as they are now, and their names. What a failed sync has put in doubt
        stays so."""
        if (active := self._active) is not None:
            self._epochs.is_durable = True
            self._has_new_names = False
            self._flushed(self._end_offset, active.base_offset)

    def close_files(self) -> None:
        """Close the files without writing anything."""
        for segment in self._segments:
            segment.close()
