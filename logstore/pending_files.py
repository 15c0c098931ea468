"""Files of a log that are still to be renamed or deleted.

A file system may refuse at any time. What it refused stays here and is tried again, while the log goes on without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.producer_history import ProducerHistory
from pykbroker.logstore.segment import SWAP_SUFFIX, SealedSegment, Segment


class PendingFiles:
    """Segments that are out of the log, and cleaned ones that still lack their names.

    Times are ms; `due_ms` is when files that get the suffix `.deleted` now may go (`file.delete.delay.ms`).
    """

    __slots__ = ("_deleted", "_filesystem", "_history", "_removed", "_swaps")

    def __init__(self, filesystem: FileSystem, history: ProducerHistory) -> None:
        self._filesystem = filesystem
        self._history = history
        # (due, paths) of files with the suffix `.deleted`.
        self._deleted: list[tuple[int, list[str]]] = []
        # Segments that are out of the log and whose files still have their names.
        self._removed: list[Segment] = []
        # Cleaned segments that are in use and not in place yet, with those whose names they will get.
        self._swaps: list[tuple[SealedSegment, list[Segment]]] = []

    @property
    def has_removed(self) -> bool:
        """True while files of removed segments still have their names, which a start would take for the log's."""
        return bool(self._removed)

    def mark_deleted(self, segment: Segment, due_ms: int) -> None:
        """Rename a segment's files and its producer snapshot to `.deleted`. Raises StorageError; can be repeated."""
        paths = segment.mark_deleted()
        self._deleted.append((due_ms, paths + self._history.mark_deleted(segment.base_offset)))

    def remove(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Mark the files of segments that are out of the log. Raises StorageError; what is left waits."""
        self._removed += segments
        self.mark_removed(due_ms)

    def mark_removed(self, due_ms: int) -> None:
        """Mark the files of removed segments that still have their names. Raises StorageError."""
        while self._removed:
            self.mark_deleted(self._removed[0], due_ms)
            del self._removed[0]

    def swap(self, cleaned: SealedSegment, olds: Sequence[Segment], due_ms: int) -> None:
        """Give a `.swap` segment the names of those that it replaces. Raises StorageError; what is left waits."""
        self._swaps.append((cleaned, list(olds)))
        self.finish_swaps(due_ms)

    def finish_swaps(self, due_ms: int) -> None:
        """Give cleaned segments the names of those that they replace. Raises StorageError; then it can be tried again.

        What was tried half may not be compacted again before.
        """
        while self._swaps:
            cleaned, olds = self._swaps[0]
            while olds:
                old = olds[-1]
                if old.base_offset == cleaned.base_offset:
                    # The producer snapshot there is the cleaned segment's too.
                    self._deleted.append((due_ms, old.mark_deleted()))
                else:
                    self.mark_deleted(old, due_ms)
                del olds[-1]
            cleaned.change_suffix(SWAP_SUFFIX, "")
            del self._swaps[0]

    def delete_due(self, now_ms: int) -> int:
        """Delete the files whose time has come; returns how many. Raises StorageError."""
        count = 0
        while self._deleted and self._deleted[0][0] <= now_ms:
            for path in self._deleted[0][1]:
                if self._filesystem.exists(path):
                    self._filesystem.remove(path)
                    count += 1
            del self._deleted[0]
        return count
