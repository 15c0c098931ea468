"""Sparse index from timestamps to offsets of one segment (`.timeindex`).

Entries of 12 bytes, big-endian: the largest timestamp so far, i64; the last offset of the batch that has it, minus
the segment's base offset, i32 (docs/storage-format.md). Timestamps ascend. The last entry of a sealed segment is its
largest timestamp.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.offset_index import IndexFile

ENTRY_SIZE: Final = 12
_ENTRY: Final = Struct(">qi")


class TimeIndex(IndexFile):
    """Index entries from timestamps to offsets, ascending in both."""

    __slots__ = ("_last_timestamp", "base_offset")

    entry_size = ENTRY_SIZE

    def __init__(self, path: str, base_offset: int, filesystem: FileSystem) -> None:
        super().__init__(path, filesystem)
        self.base_offset = base_offset
        # Timestamp of the last entry; None if it must be read from the entries.
        self._last_timestamp: int | None = None

    def maybe_add(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry if its timestamp is larger than that of the last one."""
        last_timestamp = self._last_timestamp
        if last_timestamp is None:
            last_timestamp = self.last()[0]
        if timestamp_ms > last_timestamp:
            self.entries += _ENTRY.pack(timestamp_ms, offset - self.base_offset)
            self._last_timestamp = timestamp_ms
            self._added()
        else:
            self._last_timestamp = last_timestamp

    def _truncate_to_entries(self, count: int) -> None:
        super()._truncate_to_entries(count)
        self._last_timestamp = None

    def load(self) -> bool:
        self._last_timestamp = None
        return super().load()

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) when empty."""
        return self.entry(len(self) - 1)

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset) of one entry, (-1, base offset) for number -1."""
        if number < 0:
            return -1, self.base_offset
        timestamp_ms, relative = _ENTRY.unpack_from(self.entries, number * ENTRY_SIZE)
        return timestamp_ms, self.base_offset + relative

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset from which a search for the first record with this timestamp or a later one can start."""
        low, high = -1, len(self) - 1
        while low < high:
            middle = (low + high + 1) >> 1
            # Strictly below: records at and before the entry's offset may share the entry's timestamp.
            if self.entry(middle)[0] < timestamp_ms:
                low = middle
            else:
                high = middle - 1
        return self.entry(low)[1]

    def truncate_to(self, offset: int) -> None:
        """Drops entries for `offset` and above."""
        count = len(self)
        while count and self.entry(count - 1)[1] >= offset:
            count -= 1
        self._truncate_to_entries(count)

    def is_sane(self) -> bool:
        """True if the first and the last entry are in order, and the last one is not zero.

        After a loss of power an index that was not synced has zeros, which would make the segment the oldest one for
        retention. If all records really have the timestamp 0, the index is rebuilt with the same zeros.
        """
        if not self.entries:
            return True
        timestamp_ms, offset = self.last()
        if timestamp_ms == 0 and offset == self.base_offset:
            return False
        return timestamp_ms >= self.entry(0)[0] and offset >= self.base_offset
