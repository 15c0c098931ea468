"""SpaceReserve: a file of zeros that is truncated when the disk is full, so that the metadata log can still be written.

A node with a full disk must still write the quorum's records, for example those that give the leadership of its
partitions to other brokers. Records of topics fill the disk and are then refused; metadata needs a few kilobytes, which
this file reserves. A single node has no reserve: it commits nothing while its disk is full.
"""

from __future__ import annotations

from contextlib import suppress

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.steps import Steps

FILE_NAME = "metadata-reserve"

RELEASE_STEP = 16 << 10
"""Bytes that are freed at a time: for a page of the log, the quorum state and the leader epochs."""

FILL_INTERVAL_MS = 5000
"""Pause in ms between attempts to fill the reserve, and before the first one, which keeps the start short."""

_ZEROS = bytes(64 << 10)


class SpaceReserve:
    """The file that reserves space. With `size_bytes` 0 there is no file, and no call does anything."""

    def __init__(self, filesystem: FileSystem, path: str, size_bytes: int) -> None:
        self._filesystem = filesystem
        self._path = path
        self._size_bytes = size_bytes
        # Present size of the file; -1 until it is read.
        self._held_bytes = -1 if size_bytes else 0
        self._fill_at_ms: int | None = None

    def tick(self, now_ms: int) -> Steps[None]:
        """Fills the reserve if an attempt is due."""
        if self._held_bytes >= self._size_bytes:
            return
        if self._fill_at_ms is None or now_ms >= self._fill_at_ms:
            is_due, self._fill_at_ms = self._fill_at_ms is not None, now_ms + FILL_INTERVAL_MS
            if is_due:
                yield from self.fill()

    def fill(self) -> Steps[None]:
        """Extends the file to its full size; without enough space it stays as it is."""
        with suppress(StorageError):
            descriptor = self._filesystem.open(self._path, create=True)
            try:
                before = self._held_bytes = self._filesystem.file_size(self._path)
                try:
                    yield from self._extend(descriptor)
                except StorageError:
                    self._filesystem.truncate(descriptor, before)
                    self._held_bytes = before
            finally:
                self._filesystem.close(descriptor)

    def _extend(self, descriptor: int) -> Steps[None]:
        held = self._held_bytes
        while self._held_bytes == held < self._size_bytes:  # less is held if some was released meanwhile
            part = _ZEROS[: self._size_bytes - held]
            self._filesystem.append(descriptor, [part], len(part), held, self._path)
            held = self._held_bytes = held + len(part)
            yield

    def release(self) -> bool:
        """Frees RELEASE_STEP bytes; False if there is nothing to free."""
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
