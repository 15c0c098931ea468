"""Sparse index from offsets to byte positions of one segment (`.index`).

Entries of 8 bytes, big-endian: offset minus the segment's base offset, i32; position in the `.log` file, i32
(docs/storage-format.md). An entry has the last offset of a batch and the position where this batch begins; an entry is
added when more than `index.interval.bytes` were written since the previous one. An index is a cache of the log: it is
written lazily and rebuilt by recovery, so it needs no checksum.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Final

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import FileSystem

ENTRY_SIZE: Final = 8
_ENTRY: Final = Struct(">ii")
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
# Bytes of entries that are gathered in memory before a write.
_WRITE_SIZE: Final = 512


class IndexFile:
    """Base of the indexes: the entries in memory, and a file that has the first of them."""

    __slots__ = ("_shrunk", "_written", "entries", "filesystem", "is_building", "path")

    entry_size: int = ENTRY_SIZE

    def __init__(self, path: str, filesystem: FileSystem) -> None:
        self.path = path
        self.filesystem = filesystem
        self.entries = bytearray()
        self._written = 0
        # True while all entries are rebuilt; nothing is written then, see finish_building.
        self.is_building = False
        # True if the file may have more entries than the memory, and must be truncated.
        self._shrunk = False

    def __len__(self) -> int:
        return len(self.entries) // self.entry_size

    @property
    def is_written(self) -> bool:
        """True if the file has exactly these entries."""
        return not self._shrunk and self._written == len(self.entries)

    def write(self) -> None:
        """Writes the entries that the file lacks; creates a missing file."""
        descriptor = self.filesystem.open(self.path, create=True)
        try:
            if self._shrunk:
                self.filesystem.truncate(descriptor, self._written)
                self._shrunk = False
            end = len(self.entries)
            if end > self._written:
                rest = bytes(self.entries[self._written : end])
                self.filesystem.append(descriptor, (rest,), len(rest), self._written, self.path)
                self._written = end
        finally:
            self.filesystem.close(descriptor)

    def finish_building(self) -> None:
        """Writes the rebuilt entries, unless the file has exactly these: most recoveries change nothing."""
        self.is_building = False
        if self.filesystem.read_file(self.path) == bytes(self.entries):
            self._written = len(self.entries)
            self._shrunk = False
        else:
            self.write()

    def reset(self) -> None:
        """Removes all entries; the next write truncates the file."""
        self._truncate_to_entries(0)

    def _truncate_to_entries(self, count: int) -> None:
        del self.entries[count * self.entry_size :]
        self._shrunk = True
        self._written = min(self._written, len(self.entries))

    def _added(self) -> None:
        if len(self.entries) - self._written >= _WRITE_SIZE and not self.is_building:
            # The batch is in the log already; entries that cannot be written now are written later or rebuilt.
            with suppress(StorageError):
                self.write()

    def load(self) -> bool:
        """Reads the file; False if it is missing or its length is not a multiple of the entry size.

        Zero entries at the end (an index that Kafka had preallocated when it was killed) are dropped.
        """
        content = self.filesystem.read_file(self.path)
        if content is None or len(content) % self.entry_size:
            self.reset()
            return False
        whole = len(content)
        while len(content) > self.entry_size and not any(content[-self.entry_size :]):
            half = len(content) // 2 // self.entry_size * self.entry_size
            content = content[:half] if not any(content[half:]) else content[: -self.entry_size]
        self.entries = bytearray(content)
        self._written = len(content)
        self._shrunk = len(content) != whole
        return True


class OffsetIndex(IndexFile):
    """Index entries from offsets to file positions, ascending in both."""

    __slots__ = ("base_offset",)

    def __init__(self, path: str, base_offset: int, filesystem: FileSystem) -> None:
        super().__init__(path, filesystem)
        self.base_offset = base_offset

    def add(self, offset: int, position: int) -> None:
        """Adds an entry, above all others."""
        self.entries += _ENTRY.pack(offset - self.base_offset, position)
        self._added()

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of one entry."""
        relative, position = _ENTRY.unpack_from(self.entries, number * ENTRY_SIZE)
        return self.base_offset + relative, position

    def entry_for(self, offset: int) -> tuple[int | None, int]:
        """Start of a search for `offset`: (offset, position) of the last entry at or below it, else (None, 0)."""
        number = self._last_at_or_below(offset)
        return self.entry(number) if number >= 0 else (None, 0)

    def entry_to(self, place: int) -> tuple[int | None, int]:
        """(offset, position) of the last entry whose position is `place` or less, else (None, 0)."""
        entries, unpack = self.entries, _ENTRY.unpack_from
        low, high = -1, len(entries) // ENTRY_SIZE - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if unpack(entries, middle * ENTRY_SIZE)[1] <= place:
                low = middle
            else:
                high = middle - 1
        return self.entry(low) if low >= 0 else (None, 0)

    def _last_at_or_below(self, offset: int) -> int:
        entries = self.entries
        unpack = _ENTRY.unpack_from
        relative = offset - self.base_offset
        high = len(entries) // ENTRY_SIZE - 1
        # Most readers read at the end of the log.
        if high >= 0 and unpack(entries, high * ENTRY_SIZE)[0] <= relative:
            return high
        low = -1
        high -= 1
        while low < high:
            middle = (low + high + 1) >> 1
            if unpack(entries, middle * ENTRY_SIZE)[0] <= relative:
                low = middle
            else:
                high = middle - 1
        return low

    def offset_above(self, position: int) -> int | None:
        """Offset of the first entry whose position is `position` or more; None if there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Drops entries for `offset` and above."""
        self._truncate_to_entries(self._last_at_or_below(offset - 1) + 1)

    def is_sane(self, log_size: int) -> bool:
        """True if the entries can belong to a log of this size."""
        if not self.entries:
            return True
        offset, position = self.entry(len(self) - 1)
        return offset >= self.base_offset and 0 <= position < log_size
