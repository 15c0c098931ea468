"""The sparse index from offsets to byte positions of one segment (`.index`).

Entries of 8 bytes, big-endian: offset minus the segment's base offset, i32; position in the `.log` file, i32
(protocol.md 1.4). An entry names the last offset of a batch and the position where this batch begins; one is added
when more than `index.interval.bytes` were written since the last one. An index is a cache of the log: it is written
lazily and rebuilt by recovery, so it needs no checksum.
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
# Entries wait in memory until this many bytes are worth a write.
_WRITE_SIZE: Final = 512


class IndexFile:
    """The file behind an index: entries in memory, the file a prefix of them."""

    __slots__ = ("_shrunk", "_written", "entries", "filesystem", "is_building", "path")

    entry_size: int = ENTRY_SIZE

    def __init__(self, path: str, filesystem: FileSystem) -> None:
        self.path = path
        self.filesystem = filesystem
        self.entries = bytearray()
        self._written = 0
        # While all entries are made anew nothing is written, see finish_building.
        self.is_building = False
        # Whether the file may be longer than what was written of it.
        self._shrunk = False

    def __len__(self) -> int:
        return len(self.entries) // self.entry_size

    @property
    def is_written(self) -> bool:
        """True if the file has just these entries."""
        return not self._shrunk and self._written == len(self.entries)

    def write(self) -> None:
        """Bring the file up to date; makes it when missing."""
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
        """Write entries that were made anew, unless the file has just these: most recoveries change nothing."""
        self.is_building = False
        if self.filesystem.read_file(self.path) == bytes(self.entries):
            self._written = len(self.entries)
            self._shrunk = False
        else:
            self.write()

    def reset(self) -> None:
        """Forget all entries; the file follows at the next write."""
        self._cut(0)

    def _cut(self, count: int) -> None:
        del self.entries[count * self.entry_size :]
        self._shrunk = True
        self._written = min(self._written, len(self.entries))

    def _added(self) -> None:
        if len(self.entries) - self._written >= _WRITE_SIZE and not self.is_building:
            # The batch is in the log already; what does not fit on a full disk now is written later or rebuilt.
            with suppress(StorageError):
                self.write()

    def load(self) -> bool:
        """Read the file; False when it is missing or its length is no multiple of an entry.

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
    """Offsets to positions, ascending in both."""

    __slots__ = ("base_offset",)

    def __init__(self, path: str, base_offset: int, filesystem: FileSystem) -> None:
        super().__init__(path, filesystem)
        self.base_offset = base_offset

    def add(self, offset: int, position: int) -> None:
        """Add an entry, above all others."""
        self.entries += _ENTRY.pack(offset - self.base_offset, position)
        self._added()

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of one entry."""
        relative, position = _ENTRY.unpack_from(self.entries, number * ENTRY_SIZE)
        return self.base_offset + relative, position

    def entry_for(self, offset: int) -> tuple[int | None, int]:
        """Beginning of a search for `offset`: (offset, position) of the last entry at or below it, else (None, 0)."""
        number = self._last_at_or_below(offset)
        return self.entry(number) if number >= 0 else (None, 0)

    def _last_at_or_below(self, offset: int) -> int:
        entries = self.entries
        unpack = _ENTRY.unpack_from
        relative = offset - self.base_offset
        high = len(entries) // ENTRY_SIZE - 1
        # Most readers are at the end.
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
        """The offset of the first entry that points to `position` or behind it."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Drop entries for `offset` and above."""
        self._cut(self._last_at_or_below(offset - 1) + 1)

    def is_sane(self, log_size: int) -> bool:
        """True if the entries can belong to a log of this size."""
        if not self.entries:
            return True
        offset, position = self.entry(len(self) - 1)
        return offset >= self.base_offset and 0 <= position < log_size
