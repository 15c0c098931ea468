"""Leader epochs and the offsets at which they began (`leader-epoch-checkpoint`, KIP-101, KIP-279).

One line "epoch start_offset" per epoch, ascending in both. The last epoch is open: it ends at the log end.
"""

from __future__ import annotations

from bisect import bisect_right

from pykbroker.logstore.checkpoint_file import create_lines, read_lines, write_lines
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one partition.

    Changes are in the file at once, except those a reload would make again: an epoch that begins with records behind
    the recovery point, which a recovery finds in these. The log writes it (`write_pending`) before the records are
    sealed or made durable, and at a stop. A change that cannot be written raises StorageError and has not been made.
    """

    __slots__ = ("_entries", "_filesystem", "_has_file", "_is_pending", "is_durable", "latest_epoch", "path")

    def __init__(self, filesystem: FileSystem, path: str, *, is_new: bool = False) -> None:
        """Read the file; a new one is known to be missing."""
        self._filesystem = filesystem
        self.path = path
        self._entries: list[tuple[int, int]] = []
        # The epoch of the last entry.
        self.latest_epoch = UNDEFINED_EPOCH
        # Whether the file was synced since it was last written; who syncs it says so here.
        self.is_durable = True
        self._is_pending = False
        entries = []
        lines = [] if is_new else read_lines(filesystem, path)
        # An empty file may be there where there are no lines; it is made anew like a missing one.
        self._has_file = bool(lines)
        for line in lines:
            try:
                epoch, start_offset = line.split()
                entries.append((int(epoch), int(start_offset)))
            except ValueError as error:
                raise CorruptFile(path, f"line {line!r} is not 'epoch start_offset'") from error
        self._set(entries)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), ascending."""
        return tuple(self._entries)

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1][0] if entries else UNDEFINED_EPOCH

    def _write(self, entries: list[tuple[int, int]]) -> None:
        lines = (f"{e} {o}" for e, o in entries)
        if self._has_file:
            write_lines(self._filesystem, self.path, lines, durable=False)
        else:
            # What a kill leaves of the first one is read as damaged, or as empty: all that it says is found in records.
            create_lines(self._filesystem, self.path, lines)
            self._has_file = True
        self.is_durable = False
        self._is_pending = False
        self._set(entries)

    def assign(self, epoch: int, start_offset: int, *, with_records: bool = False) -> None:
        """Note that `epoch` begins at `start_offset`; later epochs and those that begin later are dropped.

        With records that are appended now it need not be in the file at once: see `write_pending`.
        """
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if epoch == last_epoch and start_offset >= last_start:
                return
        entries = self._entries[:]
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        if with_records:
            self.is_durable = False
            self._is_pending = True
            self._set(entries)
        else:
            self._write(entries)

    def write_pending(self) -> None:
        """Bring the file up to date. Raises StorageError, and is to be called again then."""
        if self._is_pending:
            self._write(self._entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch at or below `epoch`, where it ends), (-1, -1) when unknown (P-87)."""
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        number = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if number == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end_offset = self._entries[number][1]
        if number == 0:
            return epoch, end_offset
        return self._entries[number - 1][0], end_offset

    def epoch_for(self, offset: int) -> int:
        """The epoch in which `offset` was or will be written, -1 when unknown."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[number - 1][0] if number else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at or after `end_offset`."""
        count = len(self._entries)
        while count and self._entries[count - 1][1] >= end_offset:
            count -= 1
        if count != len(self._entries):
            self._write(self._entries[:count])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the one that holds it now begins there."""
        number = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if number and self._entries[number - 1][1] != start_offset:
            self._write([(self._entries[number - 1][0], start_offset), *self._entries[number:]])
        elif number > 1:
            self._write(self._entries[number - 1 :])

    def clear(self) -> None:
        """Forget all epochs."""
        self._write([])
