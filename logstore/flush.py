"""Making a log durable in three steps, so that the slow one can run in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.open_files import SegmentFile


class FlushWork:
    """A flush up to `offset`: the logs, side files, and the names in the directory.

    Made by `PartitionLog.begin_flush`; takes leases on the files, for which it raises StorageError.

    `run` only syncs files and may be called from another thread; `finish` belongs in the log's own thread and must
    be called once, whether `run` succeeded or not.
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
        """Sync logs, side files, directory. Raises StorageError.

        Without side files a start after an unclean stop must recover the log from an earlier offset than this flush's:
        recovery rebuilds them. For logs that are synced with every append.
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
        """Give the leases back; if `run` came to its end, the recovery point moves."""
        self._release()
        self._on_end(self.offset, self._done)
