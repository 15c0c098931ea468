"""Files of a log that are still to be renamed or deleted.

Any call to the file system may fail. Files whose renaming or deletion has failed stay here and are tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.producer_history import ProducerHistory
from pykbroker.logstore.segment import SWAP_SUFFIX, SealedSegment, Segment


class PendingFiles:
    """Files of removed segments, and cleaned segments that still lack their final names.

    Times are in ms; files that get the suffix `.deleted` may be deleted from `due_ms` on (`file.delete.delay.ms`).
    """

    __slots__ = ("_deleted", "_filesystem", "_history", "_removed", "_swaps")

    def __init__(self, filesystem: FileSystem, history: ProducerHistory) -> None:
        self._filesystem = filesystem
        self._history = history
        # (due, paths) of files with the suffix `.deleted`.
        self._deleted: list[tuple[int, list[str]]] = []
        # Removed segments whose files are still to be renamed.
        self._removed: list[Segment] = []
        # Cleaned segments without their final names, and the old segments that have these names.
        self._swaps: list[tuple[SealedSegment, list[Segment]]] = []

    @property
    def has_removed(self) -> bool:
        """True while files of removed segments are still to be renamed; a start would load them."""
        return bool(self._removed)

    def mark_deleted(self, segment: Segment, due_ms: int) -> None:
        """Renames a segment's files and its producer snapshot to `.deleted`. Raises StorageError; can be repeated."""
        paths = segment.mark_deleted()
        self._deleted.append((due_ms, paths + self._history.mark_deleted(segment.base_offset)))

    def remove(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Renames the files of removed segments to `.deleted`. Raises StorageError; the rest stays pending."""
        self._removed += segments
        self.mark_removed(due_ms)

    def mark_removed(self, due_ms: int) -> None:
        """Renames the pending files of removed segments to `.deleted`. Raises StorageError."""
        while self._removed:
            self.mark_deleted(self._removed[0], due_ms)
            del self._removed[0]

    def swap(self, cleaned: SealedSegment, olds: Sequence[Segment], due_ms: int) -> None:
        """Gives a `.swap` segment the names of the old ones. Raises StorageError; the rest stays pending."""
        self._swaps.append((cleaned, list(olds)))
        self.finish_swaps(due_ms)

    def finish_swaps(self, due_ms: int) -> None:
        """Gives cleaned segments the file names of those that they replace. Raises StorageError; can be called again.

        Segments whose replacement is incomplete must not be compacted before this has succeeded.
        """
        while self._swaps:
            cleaned, olds = self._swaps[0]
            while olds:
                old = olds[-1]
                if old.base_offset == cleaned.base_offset:
                    # The producer snapshot at this offset also belongs to the cleaned segment.
                    self._deleted.append((due_ms, old.mark_deleted()))
                else:
                    self.mark_deleted(old, due_ms)
                del olds[-1]
            cleaned.change_suffix(SWAP_SUFFIX, "")
            del self._swaps[0]

    def delete_due(self, now_ms: int) -> int:
        """Deletes the files whose delay has passed; returns their number. Raises StorageError."""
        count = 0
        while self._deleted and self._deleted[0][0] <= now_ms:
            for path in self._deleted[0][1]:
                if self._filesystem.exists(path):
                    self._filesystem.remove(path)
                    count += 1
            del self._deleted[0]
        return count
