"""Space that is kept free for the metadata log by taking it: a file that is cut when nothing else is left.

A node of several whose disk is full must go on learning what its cluster decides: that others lead what it cannot
write, for instance. What fills a disk are records of topics, and those are refused then; metadata is a few kilobytes,
and the place for it was set aside in good time. A node that is alone has none: nobody decides anything there meanwhile.
"""

from __future__ import annotations

from contextlib import suppress

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import FileSystem

FILE_NAME = "metadata-reserve"

RELEASE_STEP = 16 << 10
"""Given back at once: room for a page of the log, the quorum state, and the epochs of the log."""

FILL_INTERVAL_MS = 5000
"""How often it is tried to set aside what is missing; first so long after the start, which it would make slower."""

_ZEROS = bytes(64 << 10)


class SpaceReserve:
    """One file of zeros; without a size there is none, and nothing is touched.

    Args:
        filesystem: where it lies.
        path: its name.
        size_bytes: how long it should be.
    """

    def __init__(self, filesystem: FileSystem, path: str, size_bytes: int) -> None:
        self._filesystem = filesystem
        self._path = path
        self._size_bytes = size_bytes
        # What is there now; -1 before anybody has looked.
        self._held_bytes = -1 if size_bytes else 0
        self._fill_at_ms: int | None = None

    def tick(self, now_ms: int) -> None:
        """Lets time pass: takes what is missing when it is time to try."""
        if self._held_bytes >= self._size_bytes:
            return
        if self._fill_at_ms is None or now_ms >= self._fill_at_ms:
            if self._fill_at_ms is not None:
                self.fill()
            self._fill_at_ms = now_ms + FILL_INTERVAL_MS

    def fill(self) -> None:
        """Takes what is missing. Where there is no room for it things stay as they are: the next call tries again."""
        with suppress(StorageError):
            descriptor = self._filesystem.open(self._path, create=True)
            try:
                held = self._held_bytes = self._filesystem.file_size(self._path)
                missing = self._size_bytes - held
                parts = [_ZEROS] * (missing // len(_ZEROS)) + [_ZEROS[: missing % len(_ZEROS)]]
                if missing > 0:
                    self._filesystem.append(descriptor, parts, missing, held, self._path)
                    self._held_bytes = self._size_bytes
            finally:
                self._filesystem.close(descriptor)

    def release(self) -> bool:
        """Gives some space back; False when nothing is left to give."""
        if not self._size_bytes:
            return False
        try:
            if self._held_bytes < 0:
                self._held_bytes = self._filesystem.file_size(self._path)
            if self._held_bytes == 0:
                return False
            descriptor = self._filesystem.open(self._path)
            try:
                self._filesystem.truncate(descriptor, max(self._held_bytes - RELEASE_STEP, 0))
            finally:
                self._filesystem.close(descriptor)
        except StorageError:
            return False
        self._held_bytes = max(self._held_bytes - RELEASE_STEP, 0)
        return True
