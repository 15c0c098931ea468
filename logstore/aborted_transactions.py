"""Index of the aborted transactions of one segment (`.txnindex`), which read_committed consumers skip (P-67).

Entries of 34 bytes, big-endian: version i16 = 0, producer id, first offset, last offset (the marker's), last stable
offset at that time, i64 each (docs/storage-format.md). The file exists only when there are entries.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Final

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.offset_index import IndexFile
from pykbroker.named_tuple import NamedTuple

_ENTRY: Final = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions(IndexFile):
    """The aborted transactions whose markers are in one segment, by marker offset."""

    __slots__ = ()

    entry_size = _ENTRY.size

    def add(self, transaction: AbortedTransaction) -> None:
        """Adds a transaction whose marker is behind all others. It is written to the file at once, if possible."""
        self.entries += _ENTRY.pack(0, *transaction)
        self._write_or_later()

    def _write_or_later(self) -> None:
        # The marker is in the log already. Missing entries are written at the segment's end, or rebuilt by recovery.
        with suppress(StorageError):
            self.write()

    def all(self) -> list[AbortedTransaction]:
        """All entries, by marker offset."""
        return [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(bytes(self.entries))]

    def truncate_to(self, offset: int) -> None:
        """Drops transactions whose marker is at `offset` or above."""
        kept = sum(1 for transaction in self.all() if transaction.last_offset < offset)
        if kept < len(self):
            self._truncate_to_entries(kept)
            self._write_or_later()
