"""Flush of a log in three steps, so that the slow one (`run`) can run in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.open_files import SegmentFile


class FlushWork:
    """A flush up to `offset`: log files, side files, and the names in the directory.

    `PartitionLog.begin_flush` makes it. It takes leases on the files, which may raise StorageError.

    `run` only syncs files and may be called in another thread. `finish` must be called once, in the log's thread,
    whether `run` succeeded or not.
    """

    __slots__ = ("_directory", "_done", "_files", "_filesystem", "_on_end", "_paths", "offset")

    def __init__(
        self,
        offset: int,
        filesystem: FileSystem,
        files: Sequence[SegmentFile],
        paths: Sequence[str],
        directory: str | None,
        on_end: Callable[[int, bool], None],
    ) -> None:
        self.offset = offset
        self._filesystem = filesystem
        self._files: list[tuple[SegmentFile, int]] = []
        self._paths = paths
        self._directory = directory
        self._on_end = on_end
        self._done = False
        try:
            for file in files:
                self._files.append((file, file.acquire()))
        except StorageError:
            self._release()
            raise

    def _release(self) -> None:
        for file, _ in self._files:
            file.release()
        self._files = []

    def run(self, *, with_side_files: bool = True) -> None:
        """Syncs logs, side files, directory. Raises StorageError.

        Without side files, for logs that are synced with every append, recovery after an unclean stop must begin at an
        offset before this flush's, because it rebuilds the side files.
        """
        for _, descriptor in self._files:
            self._filesystem.sync(descriptor)
        if with_side_files:
            for path in self._paths:
                self._filesystem.sync_file(path)
        if self._directory is not None:
            self._filesystem.sync_directory(self._directory)
        self._done = True

    def finish(self) -> None:
        """Releases the leases, and moves the recovery point if `run` succeeded."""
        self._release()
        self._on_end(self.offset, self._done)
