"""Segment files, and a limit on the number of open ones.

A partition that is not used holds no file descriptor. A file is opened at its first use; when more than
`OpenFiles.limit` are open, the least recently used ones without a lease are closed and reopen when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from pykbroker.logstore.filesystem import FileSystem


class OpenFiles:
    """All open segment files of one broker, least recently used first.

    `limit` is a target, not a ceiling: files with leases (bytes on their way to a client) stay open.
    """

    __slots__ = ("_files", "filesystem", "limit")

    def __init__(self, filesystem: FileSystem, limit: int = 512) -> None:
        self.filesystem = filesystem
        self.limit = limit
        self._files: OrderedDict[SegmentFile, None] = OrderedDict()

    def opened(self, file: SegmentFile) -> None:
        """Counts a file that was opened, and closes others when there are too many."""
        self._files[file] = None
        excess = len(self._files) - self.limit
        if excess > 0:
            # A generator instead of a list: with more logs in use than open files, every use runs this.
            idle = (other for other in self._files if other.leases == 0 and other is not file)
            for other in list(islice(idle, excess)):
                other.close()

    def close_all(self) -> None:
        """Closes every file without a lease."""
        for file in list(self._files):
            file.close()

    def used(self, file: SegmentFile) -> None:
        """Notes a use of a file, which is now the last one to be closed."""
        self._files.move_to_end(file)

    def closed(self, file: SegmentFile) -> None:
        """Notes that a file was closed."""
        self._files.pop(file, None)


class SegmentFile:
    """One `.log` file: its path, and a descriptor while it is in use.

    A lease keeps the descriptor open and its bytes readable after the file was renamed, removed or closed.
    """

    __slots__ = ("_descriptor", "_is_closing", "leases", "on_close", "open_files", "path")

    def __init__(self, path: str, open_files: OpenFiles) -> None:
        self.path = path
        self.leases = 0
        # Called after a close, to drop the caches of the file.
        self.on_close: Callable[[], None] | None = None
        self.open_files = open_files
        self._descriptor = -1
        self._is_closing = False

    @property
    def filesystem(self) -> FileSystem:
        """The file system that holds the file."""
        return self.open_files.filesystem

    def descriptor(self, *, create: bool = False) -> int:
        """The descriptor, opened if it is not."""
        if self._descriptor < 0:
            self._descriptor = self.open_files.filesystem.open(self.path, create=create)
            self.open_files.opened(self)
        else:
            self._is_closing = False
            self.open_files.used(self)
        return self._descriptor

    @property
    def is_open(self) -> bool:
        """True while there is a descriptor."""
        return self._descriptor >= 0

    def acquire(self) -> int:
        """Takes a lease and returns the descriptor, which stays valid until `release`."""
        descriptor = self.descriptor()
        self.leases += 1
        return descriptor

    def release(self) -> None:
        """Releases one lease."""
        self.leases -= 1
        if self._is_closing and self.leases == 0:
            self.close()

    def close(self) -> None:
        """Closes the descriptor now, or when the last lease is released; the next use opens the file again."""
        if self.leases:
            self._is_closing = True
        elif self._descriptor >= 0:
            self._is_closing = False
            self.open_files.closed(self)
            # The descriptor is closed even if the system fails to write the rest of the data.
            descriptor, self._descriptor = self._descriptor, -1
            if self.on_close is not None:
                self.on_close()
            self.open_files.filesystem.close(descriptor)
