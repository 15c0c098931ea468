"""Durability of one log: its recovery point, and the records in doubt after a failed sync."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.producer_history import ProducerHistory
from pykbroker.logstore.segment_list import SegmentList


class Durability:
    """The recovery point of a log, and the files that the next sync must include.

    Attributes:
        recovery_point: records below it are durable; recovery after an unclean stop begins there.
        on_point_lowered: writes the checkpoint after the recovery point became lower. Raises StorageError.
    """

    __slots__ = ("_has_new_names", "_is_doubtful", "_sealed_to", "_truncations", "on_point_lowered", "recovery_point")

    def __init__(self, recovery_point: int, sealed_to: int, on_point_lowered: Callable[[], None]) -> None:
        """`sealed_to`: sealed segments below it are durable with their indexes."""
        self.recovery_point = recovery_point
        self._sealed_to = sealed_to
        self.on_point_lowered = on_point_lowered
        # True if files were created since the last sync of the directory.
        self._has_new_names = True
        # True after a failed sync: the system may have dropped pages that it could not write, and reports this only
        # once. The recovery point then stays, so that the next start checks everything after it.
        self._is_doubtful = False
        # Number of truncations. A sync that was begun before a truncation does not move the recovery point.
        self._truncations = 0

    def is_sealed_durable(self, segments: SegmentList) -> bool:
        """True if all sealed segments are durable, their indexes among them."""
        return self._sealed_to >= segments.active.base_offset

    def begin_flush(
        self,
        directory: str,
        segments: SegmentList,
        epochs: LeaderEpochs,
        history: ProducerHistory,
        *,
        include_active: bool,
    ) -> FlushWork | None:
        """Chooses the files that a flush has to sync; None if everything before its end is durable.

        Args:
            include_active: True flushes up to the log's end offset, False the sealed segments alone.
        """
        active = segments.active
        offset = segments.end_offset if include_active else active.base_offset
        if offset <= self.recovery_point and self.is_sealed_durable(segments):
            return None
        epochs.write_pending()
        from_offset = min(self.recovery_point, self._sealed_to)
        unsynced = [segment for segment in segments.from_offset(from_offset) if segment.size]
        if not include_active and active in unsynced:
            unsynced.remove(active)
        paths: list[str] = []
        for segment in unsynced:
            if segment is not active:
                paths += (segment.offset_index.path, segment.time_index.path, segment.aborted.path)
        paths += history.paths_above(from_offset)
        with_epochs, with_names = not epochs.is_durable, self._has_new_names
        if with_epochs:
            paths.append(epochs.path)
        files = [segment.file for segment in unsynced]
        sealed_to = active.base_offset
        truncations = self._truncations

        def ended(offset: int, is_done: bool) -> None:
            if is_done:
                if truncations == self._truncations:
                    self._synced(min(offset, segments.end_offset), sealed_to)
            else:
                self._is_doubtful = True
                epochs.is_durable &= not with_epochs
                self._has_new_names |= with_names

        synced_directory = directory if paths or with_names else None
        work = FlushWork(offset, active.filesystem, files, paths, synced_directory, ended)
        # A change during the sync resets these marks.
        epochs.is_durable = True
        self._has_new_names = False
        return work

    def _synced(self, offset: int, sealed_to: int) -> None:
        if not self._is_doubtful:
            self.recovery_point = max(self.recovery_point, offset)
            self._sealed_to = max(self._sealed_to, sealed_to)

    def note_all_synced(self, segments: SegmentList, epochs: LeaderEpochs) -> None:
        """Notes that all files are durable as they are now. The doubt after a failed sync remains."""
        epochs.is_durable = True
        self._has_new_names = False
        self._synced(segments.end_offset, segments.active.base_offset)

    def note_new_file(self) -> None:
        """Notes that a file was created whose name is not durable yet."""
        self._has_new_names = True

    def begin_truncation(self) -> None:
        """Notes that a truncation begins, so that a sync under way no longer moves the recovery point."""
        self._truncations += 1

    def lower(self, offset: int) -> None:
        """Lowers the recovery point to `offset`, durably, before records from there on are written again.

        After a loss of power only records from the recovery point on are checked; incomplete new records below it would
        be taken for valid. Raises StorageError; the recovery point is then unchanged.
        """
        if offset < self.recovery_point:
            before, self.recovery_point = self.recovery_point, offset
            try:
                self.on_point_lowered()
            except StorageError:
                self.recovery_point = before
                raise

    def limit_sealed(self, offset: int) -> None:
        """Notes that no sealed segment ends above `offset` any more."""
        self._sealed_to = min(self._sealed_to, offset)

    def note_restart(self) -> None:
        """Notes that there is no sealed segment any more, and so none to sync."""
        self._sealed_to = self.recovery_point
