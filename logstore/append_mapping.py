"""Appends to a file through a memory mapping of its end, or by writes if they are large.

Space is allocated before it is mapped: a full disk is then an error of the allocation. A store into a mapped file
without allocated space would end the process with SIGBUS.

The file of a log with few appends has no mapping (`OsFileSystem.append_mapped`) and is exactly as long as its data: for
one batch a mapping costs more than a write. A log that gets 64 KiB between two calls of `is_idle` is busy: space is
allocated ahead of its data, in steps that double up to 2 MiB, with a few system calls for every hundred batches. Its
pages are populated in parts of 64 KiB, when the data get there, so that no append waits for the pages of a whole step,
which may take tens of milliseconds. The pages are small for the same reason. The file is then longer than its data, by
zeros, which `close` cuts off; after a crash recovery does.

An append of `WRITTEN_SIZE` bytes or more is a gathering write (pwritev) into space that is allocated in the same steps.
The system call costs less than the pages of a mapping, which the system zeroes before the data are copied.
docs/decisions/0003-allocate-then-map.md has figures.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pykbroker.logstore.gathering_write import write_all

BUSY_SIZE: Final = 1 << 16
STEP_MIN: Final = 1 << 16
STEP_MAX: Final = 1 << 21
POPULATED_SIZE: Final = 1 << 16
"""Bytes whose pages are populated with one call."""
WRITTEN_SIZE: Final = 1 << 11
"""Bytes from which on an append is written; a smaller one is copied into the mapping."""

# Advice of madvise(2) since Linux 5.14; the mmap module has no constant for it.
_MADV_POPULATE_WRITE: Final = 23

IS_AVAILABLE: Final = hasattr(os, "posix_fallocate")
"""True if the system can allocate space ahead; without that a mapping is not safe."""


class AppendMapping:
    """The mapped end of one open file. `size` is the length of its data in bytes.

    Not thread-safe: only the thread that owns the log uses it.
    """

    __slots__ = (
        "_allocated_end",
        "_base",
        "_descriptor",
        "_end",
        "_mapping",
        "_ready_end",
        "_size_at_look",
        "_step",
        "size",
    )

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._step = 0
        # Space is allocated up to here; the mapped window ends here or before.
        self._allocated_end = 0
        self._base = 0
        self._end = 0
        # End of the part of the window that appends may fill without any preparation.
        self._ready_end = 0
        self._size_at_look = size
        self._mapping: mmap.mmap | None = None

    def append(self, parts: Sequence[bytes | bytearray | memoryview], size: int) -> None:
        """Stores all parts, `size` bytes in total, at the end of the data. Raises OSError; then nothing was stored."""
        position = self.size
        end = position + size
        if size >= WRITTEN_SIZE:
            self._write(parts, position, size)
            self.size = end
            return
        if end > self._ready_end:
            if end > self._end:
                self._advance(position, size)
            self._populate(end)
        mapping = self._mapping
        assert mapping is not None
        start = position - self._base
        for part in parts:
            stop = start + len(part)
            mapping[start:stop] = part
            start = stop
        self.size = end

    def _write(self, parts: Sequence[bytes | bytearray | memoryview], position: int, size: int) -> None:
        """Writes all parts at a position; allocates space for them first if there is too little."""
        if position + size > self._allocated_end:
            self._allocate_for(position, size)
        write_all(self._descriptor, parts, size, position)

    def _allocate_for(self, position: int, size: int) -> None:
        """Allocates space for `size` bytes at a position; for a busy log another step, if the disk has that much."""
        begin = max(position, self._allocated_end)
        _, end = _page_range(position, size + self._next_step())
        try:
            os.posix_fallocate(self._descriptor, begin, end - begin)
        except OSError:
            # The disk is nearly full: the data may fit without the step ahead.
            end = position + size
            os.posix_fallocate(self._descriptor, begin, end - begin)
        self._allocated_end = end

    def _next_step(self) -> int:
        """Bytes to allocate ahead of the data, twice as many as the last time."""
        self._step = min(max(2 * self._step, STEP_MIN), STEP_MAX)
        return self._step

    def _advance(self, position: int, size: int) -> None:
        """Maps a window from the page of `position` with space for `size` bytes.

        For a busy log the window has another step of space; otherwise the file ends with the data.
        """
        if position + size - self._size_at_look < BUSY_SIZE:
            self._map(position - position % mmap.ALLOCATIONGRANULARITY, position + size)
            return
        base, end = _page_range(position, size + self._next_step())
        try:
            self._map(base, end)
        except OSError:
            # The disk is nearly full: the data may fit without the step ahead.
            self._map(position - position % mmap.ALLOCATIONGRANULARITY, position + size)
            return
        self._ready_end = base

    def _populate(self, end: int) -> None:
        """Populates the next part of the window, which has the data up to `end` in any case."""
        if end <= self._ready_end:
            return
        mapping, begin = self._mapping, max(self._ready_end, self.size - self.size % mmap.ALLOCATIONGRANULARITY)
        assert mapping is not None
        self._ready_end = min(max(end + -end % mmap.ALLOCATIONGRANULARITY, begin + POPULATED_SIZE), self._end)
        # Older kernels lack this advice; then each page is populated by its own fault.
        with suppress(OSError):
            mapping.madvise(_MADV_POPULATE_WRITE, begin - self._base, self._ready_end - begin)

    def _map(self, base: int, end: int) -> None:
        os.posix_fallocate(self._descriptor, base, end - base)
        self._allocated_end = max(end, self._allocated_end)
        mapping = mmap.mmap(self._descriptor, end - base, offset=base)
        self._unmap()
        self._mapping, self._base, self._end = mapping, base, end
        # A window without space ahead is not populated.
        self._ready_end = end

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None

    def is_idle(self) -> bool:
        """True if less than 64 KiB was appended since the last call, too little for allocating ahead."""
        is_idle = self.size - self._size_at_look < BUSY_SIZE
        self._size_at_look = self.size
        return is_idle

    def close(self) -> None:
        """Unmaps the window and truncates the file to its data. Raises OSError."""
        self._unmap()
        self._allocated_end = self._end = self._ready_end = 0
        os.ftruncate(self._descriptor, self.size)


def _page_range(position: int, size: int) -> tuple[int, int]:
    """The smallest range of whole pages that covers `size` bytes from `position`, as (begin, end)."""
    end = position + size
    return position - position % mmap.ALLOCATIONGRANULARITY, end + -end % mmap.ALLOCATIONGRANULARITY
