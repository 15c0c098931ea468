"""Steps of long work that wait for the disk, and the replacement of a file in such steps."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import Buffer, FileSystem

STAGED_SUFFIX: Final = ".staged"
"""Suffix of a file with new content that has not replaced the old file yet. `FileSystem.write_file`, which may replace
the same file meanwhile, uses another suffix."""


class BlockingStep:
    """A step that only waits for the disk, so that it may run in another thread.

    An iterator yields it. The receiver may call `run`, in any thread, before it asks for the next item; otherwise
    `finish` does the work.
    """

    __slots__ = ("_error", "_is_done", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._is_done = False
        self._error: StorageError | None = None

    def run(self) -> None:
        """Does the work, and keeps its StorageError for `finish`."""
        self._is_done = True
        try:
            self._work()
        except StorageError as error:
            self._error = error

    def finish(self) -> None:
        """Does the work if it was not done yet. Raises its StorageError."""
        if not self._is_done:
            self.run()
        if self._error is not None:
            raise self._error


def replace_file(
    filesystem: FileSystem, path: str, content: Buffer, still_holds: Callable[[], bool]
) -> Iterator[BlockingStep]:
    """Replaces a file durably, as `FileSystem.write_file` does, with the syncs as steps of their own.

    The new content is made durable beside the file first. Then the file is replaced at once if `still_holds` returns
    True, and stays as it is otherwise: older content never replaces what was written to the file meanwhile.

    Raises:
        StorageError: the file has the old or the new content, and which of them is not known after a loss of power.
    """
    staged = path + STAGED_SUFFIX

    def write() -> None:
        filesystem.create_file(staged, content)
        filesystem.sync_file(staged)

    is_replaced = False
    try:
        step = BlockingStep(write)
        yield step
        step.finish()
        if not still_holds():
            return
        filesystem.rename(staged, path)
        is_replaced = True
    finally:
        if not is_replaced:
            with suppress(StorageError):
                filesystem.remove(staged)
    step = BlockingStep(lambda: filesystem.sync_directory(posixpath.dirname(path)))
    yield step
    step.finish()
