"""Leader epochs with their start offsets (`leader-epoch-checkpoint`, KIP-101, KIP-279).

One line "epoch start_offset" per epoch, ascending in both. The last epoch is open: it ends at the log end.
"""

from __future__ import annotations

from bisect import bisect_right

from pykbroker.logstore.checkpoint_file import encode_lines, read_lines
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one partition.

    Removed epochs are removed from the file at once. New ones are not written to it, because a recovery finds them in
    the records after the recovery point, and drops an epoch without records: the log writes them (`write_pending`)
    before the records are sealed or made durable, and at a stop. A change that cannot be written raises StorageError
    and is not made.
    """

    __slots__ = ("_entries", "_entries_in_file", "_filesystem", "_has_file", "is_durable", "latest_epoch", "path")

    def __init__(self, filesystem: FileSystem, path: str, *, is_new: bool = False) -> None:
        """Reads the file, unless the log is new and has none."""
        self._filesystem = filesystem
        self.path = path
        self._entries: list[tuple[int, int]] = []
        # The epoch of the last entry.
        self.latest_epoch = UNDEFINED_EPOCH
        # True if the file was synced since the last write; set by the code that syncs it.
        self.is_durable = True
        entries: list[tuple[int, int]] = []
        lines = [] if is_new else read_lines(filesystem, path)
        # A file without lines is created again, like a missing one.
        self._has_file = bool(lines)
        for line in lines:
            try:
                epoch, start_offset = line.split()
                entries.append((int(epoch), int(start_offset)))
            except ValueError as error:
                raise CorruptFile(path, f"line {line!r} is not 'epoch start_offset'") from error
        self._entries_in_file = entries
        self._set_entries(entries)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), ascending."""
        return tuple(self._entries)

    def _set_entries(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1][0] if entries else UNDEFINED_EPOCH

    def _write(self, entries: list[tuple[int, int]]) -> None:
        content = encode_lines(f"{e} {o}" for e, o in entries)
        if self._has_file:
            self._filesystem.write_file(self.path, content, durable=False)
        else:
            # A kill may leave the first file incomplete. It is then read as damaged or empty, and the epochs are taken
            # from the records.
            self._filesystem.create_file(self.path, content)
            self._has_file = True
        self.is_durable = False
        self._entries_in_file = entries
        self._set_entries(entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; later epochs and those with later start offsets are removed.

        `write_pending` writes it to the file.
        """
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if epoch == last_epoch and start_offset >= last_start:
                return
        entries = self._entries[:]
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self._set_entries(entries)

    def write_pending(self) -> None:
        """Writes new epochs to the file. Raises StorageError; it must then be called again."""
        if self._entries is not self._entries_in_file:
            self._write(self._entries)

    def end_offset_for(self, epoch: int, log_start_offset: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch at or below `epoch`, where it ends), (-1, -1) when unknown (P-87).

        Epochs that ended at or below the log start are unknown, though the file may have them until their segments
        are deleted.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        first = max(0, self._count_begun_at(log_start_offset) - 1)
        number = bisect_right(self._entries, epoch, lo=first, key=lambda entry: entry[0])
        if number == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end_offset = max(self._entries[number][1], log_start_offset)
        if number == first:
            return epoch, end_offset
        return self._entries[number - 1][0], end_offset

    def _count_begun_at(self, offset: int) -> int:
        """Number of epochs that begin at or below `offset`."""
        return bisect_right(self._entries, offset, key=lambda entry: entry[1])

    def epoch_for(self, offset: int) -> int:
        """The epoch in which `offset` was or will be written, -1 when unknown."""
        number = self._count_begun_at(offset)
        return self._entries[number - 1][0] if number else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops epochs that begin at or after `end_offset`."""
        count = len(self._entries)
        while count and self._entries[count - 1][1] >= end_offset:
            count -= 1
        if count == len(self._entries):
            return
        if self._entries[:count] == self._entries_in_file:
            self._set_entries(self._entries_in_file)
        else:
            self._write(self._entries[:count])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops epochs that ended before `start_offset`; the one that holds it now begins there."""
        number = self._count_begun_at(start_offset)
        if number and self._entries[number - 1][1] != start_offset:
            self._write([(self._entries[number - 1][0], start_offset), *self._entries[number:]])
        elif number > 1:
            self._write(self._entries[number - 1 :])

    def clear(self) -> None:
        """Removes all epochs."""
        self._write([])
