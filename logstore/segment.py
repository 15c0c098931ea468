"""One segment of a log: a `.log` file and its indexes. `Segment` has the reading of sealed and active segments.

`SealedSegment` never changes, opens no file until it is read, and drops its indexes from memory when its file is closed
after a time without reads. The segment that is appended to is `ActiveSegment`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransactions
from pykbroker.logstore.batch_scan import Located, batch_at, first_batch_reaching, last_offset_of_first
from pykbroker.logstore.errors import CorruptSegment, StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from pykbroker.logstore.open_files import OpenFiles, SegmentFile
from pykbroker.logstore.time_index import TimeIndex
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.layout import (
    HEADER_SIZE,
    LEGACY_LENGTH_MIN,
    LEGACY_SIZE_MIN,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LENGTH_TO_MAGIC,
    MAGIC_POSITION,
    SCAN_STEP_SIZE,
    BatchHeader,
    read_header,
)
from pykbroker.protocol.records.record import Record

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# Bytes that the search for an offset usually reads: one index interval and the header after it.
_SEARCH_SIZE: Final = 4096 + HEADER_SIZE
# Log bytes between two entries of a rebuilt index: the default of index.interval.bytes.
_REBUILT_INTERVAL_BYTES: Final = 4096
_SCAN_SIZE: Final = 1 << 16
_REPLAY_SIZE: Final = 1 << 20


class TimestampOffset(NamedTuple):
    """Result of a search by time: a record's offset, its timestamp and the leader epoch of its batch (-1: unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int


def producer_snapshot_path(directory: str, offset: int) -> str:
    """Path of the producer snapshot at an offset, in 20 digits."""
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


class Segment:
    """Reads one segment. `base_offset` is the lowest offset it can hold, `size` its length in bytes."""

    __slots__ = ("aborted", "base_offset", "directory", "file", "filesystem", "offset_index", "time_index")

    size: int

    def __init__(self, directory: str, base_offset: int, open_files: OpenFiles, suffix: str = "") -> None:
        filesystem = open_files.filesystem
        self.directory = directory
        self.base_offset = base_offset
        self.filesystem: FileSystem = filesystem
        prefix = f"{directory}/{base_offset:020d}"
        self.file = SegmentFile(f"{prefix}{LOG_SUFFIX}{suffix}", open_files)
        self.offset_index = OffsetIndex(f"{prefix}{INDEX_SUFFIX}{suffix}", base_offset, filesystem)
        self.time_index = TimeIndex(f"{prefix}{TIME_INDEX_SUFFIX}{suffix}", base_offset, filesystem)
        self.aborted = AbortedTransactions(f"{prefix}{TRANSACTION_INDEX_SUFFIX}{suffix}", filesystem)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.file.path})"

    def load_indexes(self) -> None:
        """Loads the indexes into memory, unless they are there."""

    def load_aborted(self) -> None:
        """Loads the aborted transactions into memory, unless they are there; the larger indexes need not be."""

    def locate(self, offset: int) -> Located | None:
        """The first batch whose last offset is `offset` or more; None if this segment ends below.

        Raises CorruptSegment for bytes that cannot be a batch.
        """
        self.load_indexes()
        size = self.size
        entry_offset, position = self.offset_index.entry_for(offset)
        want = _SEARCH_SIZE
        if entry_offset is not None and not 0 <= position < size:
            return self._locate_after_rebuild(offset)
        while position < size:
            # The file may be longer than its data, see append_mapping.
            chunk = self.filesystem.read(self.file.descriptor(), min(want, size - position), position)
            if len(chunk) < SCAN_STEP_SIZE:
                # The shortest message of the oldest format, at the end of the file.
                chunk = chunk.ljust(SCAN_STEP_SIZE, b"\0")
            if entry_offset is not None:
                # An entry has the last offset of the batch at its position; another one means that the index is wrong.
                if last_offset_of_first(chunk) != entry_offset:
                    return self._locate_after_rebuild(offset)
                entry_offset = None
            found, next_position = first_batch_reaching(chunk, position, offset)
            if found is not None:
                return found
            if next_position == position:
                raise CorruptSegment(self.file.path, position, "no record batch where one should begin")
            position = next_position
            want = HEADER_SIZE if want == _SEARCH_SIZE and len(chunk) < SCAN_STEP_SIZE else _SEARCH_SIZE
        return None

    def _locate_after_rebuild(self, offset: int) -> Located | None:
        """Rebuilds an index that does not match the log, and searches again."""
        self.rebuild_indexes()
        return self.locate(offset)

    def _search_start(self, offset: int) -> int:
        """Position of a batch at or shortly before the one with `offset`."""
        self.load_indexes()
        entry_offset, _ = self.offset_index.entry_for(offset)
        if entry_offset is None:
            return 0
        found = self.locate(entry_offset)
        return found.position if found is not None else 0

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from `position`, where one begins."""
        size = self.size
        start = end = position
        chunk = b""
        want = HEADER_SIZE
        while position + LEGACY_SIZE_MIN <= size:
            if position + HEADER_SIZE > end:
                chunk = self.filesystem.read(self.file.descriptor(), want, position)
                start, end = position, position + len(chunk)
                chunk = chunk.ljust(HEADER_SIZE, b"\0")
            header = read_header(chunk, position - start)
            if header.length < LEGACY_LENGTH_MIN:
                reason = f"a record batch has the impossible length {header.length}"
                raise CorruptSegment(self.file.path, position, reason)
            if header.magic < 2:
                header = _old_header(chunk, position - start, header)
            yield position, header
            # Between large batches only the headers are read.
            want = HEADER_SIZE if header.length > _SEARCH_SIZE else _SCAN_SIZE
            position += header.size_bytes

    def batch_size_at(self, position: int) -> int:
        """Size in bytes of the batch that begins at `position`."""
        length = self.filesystem.read(self.file.descriptor(), 4, position + LENGTH_POSITION)
        return LENGTH_OVERHEAD + int.from_bytes(length, "big")

    def batch_at(self, begin: int, place: int) -> Located | None:
        """The batch that has the byte at position `place`, by one short read; None if that does not find it.

        Args:
            begin: position of a batch at or before `place`.
            place: any position below the end of the data.
        """
        self.load_indexes()
        entry_offset, position = self.offset_index.entry_to(place)
        if position <= begin:
            entry_offset, position = None, begin
        # Batches between two index entries are in one interval.
        chunk = self.filesystem.read(self.file.descriptor(), min(_SEARCH_SIZE, self.size - position), position)
        if len(chunk) < SCAN_STEP_SIZE:
            return None
        if entry_offset is not None and last_offset_of_first(chunk) != entry_offset:
            # The index is wrong. `locate` finds that out, too, and rebuilds it.
            return None
        return batch_at(chunk, position, place)

    def read_batch(self, position: int, size: int) -> RecordBatch:
        """A copy of one whole batch."""
        data = self.filesystem.read(self.file.descriptor(), size, position)
        return _old_batch(data, 0) if data[MAGIC_POSITION] < 2 else RecordBatch(data)

    def records_at(self, position: int, size: int) -> list[Record]:
        """The records of one whole batch. Raises CorruptSegment where they cannot be read."""
        try:
            return list(self.read_batch(position, size).records())
        except RecordError as error:
            raise CorruptSegment(self.file.path, position, str(error)) from error

    def batches(self, position: int = 0) -> Iterator[RecordBatch]:
        """Copies of all batches from `position`, where one begins, read in large steps."""
        size = self.size
        while position < size:
            chunk = self.filesystem.read(self.file.descriptor(), min(_REPLAY_SIZE, size - position), position)
            start = 0
            while start + LEGACY_SIZE_MIN <= len(chunk):
                length, _, magic = LENGTH_TO_MAGIC.unpack_from(chunk, start + LENGTH_POSITION)
                end = start + LENGTH_OVERHEAD + length
                if end - start < (HEADER_SIZE if magic == 2 else LEGACY_SIZE_MIN) or not 0 <= magic <= 2:
                    raise CorruptSegment(self.file.path, position + start, "no record batch where one should begin")
                if end > len(chunk):
                    break
                yield RecordBatch(chunk, start) if magic == 2 else _old_batch(chunk, start)
                start = end
            if start == 0:
                # A batch that is larger than a step, or an end without a complete batch.
                length = read_header(chunk.ljust(HEADER_SIZE, b"\0")).size_bytes
                if length < LEGACY_SIZE_MIN or position + length > size:
                    raise CorruptSegment(self.file.path, position, "the last record batch is cut off")
                yield self.read_batch(position, length)
                start = length
            position += start

    def rebuild_indexes(self) -> None:
        """Rebuilds the indexes from the batch headers. Raises CorruptSegment if offsets do not ascend."""
        builder = IndexBuilder(self, _REBUILT_INTERVAL_BYTES)
        next_offset = self.base_offset
        for position, header in self.headers():
            last_offset = header.base_offset + header.last_offset_delta
            if not next_offset <= last_offset <= self.base_offset + MAX_RELATIVE_OFFSET:
                raise CorruptSegment(self.file.path, position, f"offset {last_offset} where {next_offset} was expected")
            next_offset = last_offset + 1
            builder.add(position, last_offset, header.max_timestamp)
        builder.finish()

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset if empty. Raises CorruptSegment for an incomplete batch."""
        self.load_indexes()
        end = self.base_offset
        end_position = 0
        if self.size:
            for position, header in self.headers(self._search_start(self.base_offset + MAX_RELATIVE_OFFSET)):
                end = header.base_offset + header.last_offset_delta + 1
                end_position = position + header.size_bytes
        if end_position != self.size:
            raise CorruptSegment(self.file.path, min(end_position, self.size), "the last record batch is cut off")
        return end

    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms, last offset of its batch), (-1, base offset) without a timestamp."""
        self.load_indexes()
        return self.time_index.last()

    def largest_timestamp(self) -> int:
        """Largest timestamp in ms, or the time of the last write to the file if no record has one; -1 if empty."""
        timestamp_ms = self.max_timestamp()[0]
        if timestamp_ms >= 0 or self.size == 0:
            return timestamp_ms
        return self.filesystem.modified_ms(self.file.path)

    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch in ms, -1 if empty: the beginning of `segment.ms` (P-165)."""
        for _, header in self.headers():
            return header.max_timestamp
        return -1

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record at or above `start_offset` with this timestamp or a later one (P-83)."""
        self.load_indexes()
        position = self._search_start(max(self.time_index.offset_before(timestamp_ms), start_offset))
        for batch_position, header in self.headers(position):
            if header.max_timestamp < timestamp_ms or header.base_offset + header.last_offset_delta < start_offset:
                continue
            for record in self.records_at(batch_position, header.size_bytes):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has this segment's largest timestamp (P-81), -1 if no record has a timestamp.

        None in an empty segment, and, as in Kafka, for messages of format 0, which cannot have one.
        """
        timestamp_ms, offset = self.max_timestamp()
        found = self.locate(offset)
        if found is None:
            return None
        for position, header in self.headers(found.position):
            if header.max_timestamp == timestamp_ms:
                if header.magic == 0:
                    return None
                for record in self.records_at(position, header.size_bytes):
                    if record.timestamp == timestamp_ms:
                        return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
        return None

    def paths(self) -> list[str]:
        """Paths of the segment's files that exist."""
        return [path for path in self._possible_paths() if self.filesystem.exists(path)]

    def _possible_paths(self) -> tuple[str, ...]:
        return self.file.path, self.offset_index.path, self.time_index.path, self.aborted.path

    def mark_deleted(self) -> list[str]:
        """Renames the files to `.deleted`; returns the new paths. The segment ends, but leased bytes stay readable.

        Raises StorageError; a later call continues with the files that are left.
        """
        for path in self.paths():
            self.filesystem.rename(path, path + DELETED_SUFFIX)
        with suppress(StorageError):
            self.file.close()
        return [path + DELETED_SUFFIX for path in self._possible_paths()]

    def change_suffix(self, old_suffix: str, new_suffix: str) -> None:
        """Renames the existing files, the log file last: its name alone decides what a later start does."""
        for owner in (self.aborted, self.time_index, self.offset_index, self.file):
            path = owner.path.removesuffix(old_suffix) + new_suffix
            if self.filesystem.exists(owner.path):
                self.filesystem.rename(owner.path, path)
            owner.path = path

    def move(self, directory: str) -> None:
        """Notes the new path of the partition's directory."""
        old = len(self.directory)
        self.directory = directory
        for owner in (self.file, self.offset_index, self.time_index, self.aborted):
            owner.path = directory + owner.path[old:]

    def close(self) -> None:
        """Closes the file; a later read opens it again."""
        self.file.close()


def _old_batch(buffer: bytes, position: int) -> RecordBatch:
    # Imported here: few logs have messages of old formats.
    from pykbroker.protocol.records.legacy import LegacyBatch

    return LegacyBatch(buffer, position)


def _old_header(buffer: bytes, position: int, header: BatchHeader) -> BatchHeader:
    from pykbroker.protocol.records.legacy import as_batch_header

    return as_batch_header(buffer, position, header)


class SealedSegment(Segment):
    """A segment that is no longer written."""

    __slots__ = ("_has_aborted", "_loaded", "_size")

    def __init__(self, directory: str, base_offset: int, open_files: OpenFiles, suffix: str = "") -> None:
        super().__init__(directory, base_offset, open_files, suffix)
        self._size = -1
        self._loaded = False
        self._has_aborted = False
        self.file.on_close = self._unload_indexes

    @property
    def size(self) -> int:  # type: ignore[override]
        """Length of the log file in bytes."""
        if self._size < 0:
            self._size = self.filesystem.file_size(self.file.path)
        return self._size

    def adopt(self, segment: Segment) -> None:
        """Takes over the open file and the indexes of the active segment that becomes this sealed one."""
        self.file = segment.file
        self.file.on_close = self._unload_indexes
        self.offset_index = segment.offset_index
        self.time_index = segment.time_index
        self.aborted = segment.aborted
        self._size = segment.size
        self._loaded = self._has_aborted = True

    def _unload_indexes(self) -> None:
        if self._loaded:
            self._loaded = False
            self.offset_index.entries = bytearray()
            self.time_index.entries = bytearray()

    def load_indexes(self) -> None:
        if not self._loaded:
            self._loaded = True
            self.load_aborted()
            whole = self.offset_index.load() and self.time_index.load()
            if not whole or not self.offset_index.is_sane(self.size) or not self.time_index.is_sane():
                self.rebuild_indexes()

    def load_aborted(self) -> None:
        if not self._has_aborted:
            self._has_aborted = True
            self.aborted.load()


class IndexBuilder:
    """Builds the two indexes of a segment batch by batch, with the entries that appends would have added.

    Batches follow one another without gaps. `due_above` is the position above which the next batch gets an entry. A
    caller with a million batches calls `add` only for such a batch, and tracks the largest timestamp itself.
    """

    __slots__ = ("_interval_bytes", "_segment", "due_above", "max_timestamp", "max_timestamp_offset")

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self._segment = segment
        self._interval_bytes = interval_bytes
        self.due_above = interval_bytes
        self.max_timestamp = -1
        self.max_timestamp_offset = segment.base_offset
        for index in (segment.offset_index, segment.time_index):
            index.reset()
            index.is_building = True

    def add(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Adds a batch that begins at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position > self.due_above:
            self._segment.offset_index.add(last_offset, position)
            self._segment.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
            self.due_above = position + self._interval_bytes

    def finish(self) -> None:
        """Adds the segment's largest timestamp, and writes the files."""
        self._segment.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
        self._segment.offset_index.finish_building()
        self._segment.time_index.finish_building()
