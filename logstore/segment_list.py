"""The segments of one log in order, the last of which is active, and searches in them by offset or by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.segment import SealedSegment, Segment, TimestampOffset
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordBatch

_PLACES_KEPT: Final = 64
LEFT_OFF_MIN: Final = 1 << 14
"""An incomplete batch of this many bytes or more is left off at the end of a read (P-61).

A replication throttle counts smaller ones, too: they are less than 2 % of the 1 MiB that a follower requests.
"""


class LogRead(NamedTuple):
    """Result of a read: a range to send and to release, or None for nothing.

    `first_offset` is the base offset of its first batch (P-62); it is the requested offset for nothing, or if the base
    offset is unknown without reading.
    """

    range: FileRange | None
    first_offset: int


class SegmentList:
    """The segments of one log, ascending; there is always one.

    Attributes:
        segments: all of them.
        base_offsets: the base offset of each.
        active: the last one, which is appended to.
        end_offset: the offset of the next record.
    """

    __slots__ = ("_open_files", "_path", "_places", "active", "base_offsets", "end_offset", "segments")

    def __init__(
        self, path: str, open_files: OpenFiles, segments: list[Segment], active: ActiveSegment, end_offset: int
    ) -> None:
        self._path = path
        self._open_files = open_files
        self.segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = active
        self.end_offset = end_offset
        # Offset at which a next read probably begins -> segment, position in it, size of the batch there in bytes. The
        # size is 0 for log ends that readers have reached.
        self._places: dict[int, tuple[Segment, int, int]] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes in the `.log` files."""
        return sum(segment.size for segment in self.segments)

    def number_at(self, offset: int) -> int:
        """Number of the segment with an offset; 0 for offsets before the first segment."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment with an offset, and all later ones."""
        return self.segments[self.number_at(offset) :]

    # Changes

    def new_segment(self, base_offset: int, now_ms: int) -> ActiveSegment:
        """Creates a segment with an empty file, without adding it to the list. Raises StorageError."""
        segment = ActiveSegment(self._path, base_offset, self._open_files, now_ms)
        segment.create_file()
        return segment

    def append_segment(self, segment: ActiveSegment) -> None:
        """Makes `segment` the active one. The previous active segment is sealed, or removed if it is empty."""
        if self.active.size:
            self.segments[-1] = self.active.sealed(self._open_files)
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment
        self._places.clear()

    def remove(self, segment: Segment) -> None:
        """Removes one segment from the list."""
        number = self.base_offsets.index(segment.base_offset)
        del self.segments[number], self.base_offsets[number]
        self._places.clear()

    def replace(self, olds: Sequence[Segment], cleaned: SealedSegment) -> None:
        """Replaces neighbouring segments by one segment."""
        number = self.base_offsets.index(olds[0].base_offset)
        cleaned.close()
        cleaned.file.open_files = self._open_files
        self.segments[number : number + len(olds)] = [cleaned]
        self.base_offsets = [segment.base_offset for segment in self.segments]
        self._places.clear()

    def restart(self, segment: ActiveSegment) -> None:
        """Makes `segment` the only one."""
        self.segments = [segment]
        self.base_offsets = [segment.base_offset]
        self.active = segment
        self._places.clear()

    def truncate_active(self, offset: int, now_ms: int) -> int:
        """Truncates the last segment at an offset and makes it the active one; returns its end offset.

        Raises StorageError.
        """
        last = self.segments[-1]
        if last is not self.active:
            last.close()
            self.active = ActiveSegment(self._path, last.base_offset, self._open_files, now_ms, last.size)
            self.active.resume()
            self.segments[-1] = self.active
        self.active.truncate_to(offset)
        self._places.clear()
        return self.active.next_offset()

    def move(self, path: str) -> None:
        """Notes the new path of the log's directory."""
        self._path = path
        for segment in self.segments:
            segment.move(path)

    def close(self) -> None:
        """Closes the files without writing anything; a later use opens them again."""
        for segment in self.segments:
            segment.close()

    # Reading

    def read(self, offset: int, size_max: int, bound_offset: int, at_least_one: bool) -> LogRead:
        """Batches from the one with `offset` on, as `PartitionLog.read`; the offset must be within the log."""
        if offset >= bound_offset or offset == self.end_offset:
            if offset == self.end_offset:
                self._cache_end()
            return LogRead(None, offset)
        first_offset = offset
        place = self._places.get(offset)
        if place is None:
            number = bisect_right(self.base_offsets, offset) - 1
            segment = self.segments[number]
            found = segment.locate(offset)
            while found is None:
                # Compaction may have removed the end of a segment.
                number += 1
                if number == len(self.segments):
                    return LogRead(None, offset)
                segment = self.segments[number]
                found = segment.locate(offset)
            position, first_size, first_offset, _ = found
        else:
            segment, position, first_size = place
        limit = self._position_of_bound(segment, bound_offset)
        size = limit - position
        left_off = 0
        if size > size_max:
            first_size = first_size or segment.batch_size_at(position)
            if first_size <= size_max:
                left_off = self._cache_following(segment, position + first_size, position + size_max)
                size = size_max - left_off
            elif at_least_one:
                size = min(size, first_size)
            else:
                return LogRead(None, first_offset)
        elif size <= 0:
            return LogRead(None, first_offset)
        elif segment is self.active and limit == self.active.size:
            self._cache_end()
        if place is not None and place[2]:
            # Its reader is now behind it.
            self._places.pop(offset, None)
        return LogRead(FileRange(segment.file, position, size, left_off), first_offset)

    def _cache_end(self) -> None:
        """Notes the place of the log end, which a reader has reached: its next read starts there without a search."""
        self._cache_place(self.end_offset, (self.active, self.active.size, 0))

    def _cache_following(self, segment: Segment, begin: int, end: int) -> int:
        """Notes the place of the first batch that is not complete in a read; returns its bytes that are left off.

        Args:
            segment: the segment that is read.
            begin: position of a batch.
            end: position at which the read ends, at or after `begin` and before the end of the data.
        """
        following = segment.batch_at(begin, end)
        if following is None:
            return 0
        self._cache_place(following.base_offset, (segment, following.position, following.size))
        incomplete = end - following.position
        return incomplete if incomplete >= LEFT_OFF_MIN else 0

    def _cache_place(self, offset: int, place: tuple[Segment, int, int]) -> None:
        if len(self._places) >= _PLACES_KEPT:
            self._places.clear()
        self._places[offset] = place

    def _position_of_bound(self, segment: Segment, bound_offset: int) -> int:
        if bound_offset >= self.end_offset:
            return segment.size
        place = self._places.get(bound_offset)
        if place is not None and place[0] is segment:
            return place[1]
        found = segment.locate(bound_offset)
        return found.position if found is not None else segment.size

    def size_between(self, offset: int, end_offset: int) -> int | None:
        """Number of bytes from the batch with `offset` up to `end_offset`; None if they are in several segments."""
        number = bisect_right(self.base_offsets, offset) - 1
        segment = self.segments[number]
        if segment is not self.active and self.base_offsets[number + 1] < end_offset:
            return None
        found = segment.locate(offset) if offset < self.end_offset else None
        return 0 if found is None else self._position_of_bound(segment, end_offset) - found.position

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Copies of all batches from the one with `offset` on, with or without those that are appended meanwhile."""
        for number in range(self.number_at(offset), len(self.segments)):
            segment = self.segments[number]
            found = segment.locate(offset) if segment.size else None
            if found is not None:
                yield from segment.batches(found.position)

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record at or above `start_offset` with this timestamp or a later one; None when there is none.

        As in Kafka the first segment that reaches the time decides, even if its records have no timestamp and its time
        is that of the file.
        """
        for segment in self.segments:
            if segment.largest_timestamp() >= timestamp_ms:
                return segment.offset_for_timestamp(timestamp_ms, start_offset)
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp; None in an empty log."""
        newest = max(self.segments, key=lambda segment: segment.max_timestamp()[0])
        return newest.offset_of_max_timestamp()

    def offset_behind(self, offset: int, records: FileRange) -> int | None:
        """An offset at or above the end of a range that was read at `offset`, from the sparse index.

        None if the range's segment is no longer in the log.
        """
        number = self.number_at(offset)
        while number < len(self.segments) and not records.is_of(self.segments[number].file):
            number += 1
        if number == len(self.segments):
            return None
        segment = self.segments[number]
        behind = segment.offset_index.offset_above(records.position + len(records))
        if behind is not None:
            return behind
        return self.end_offset if segment is self.active else self.base_offsets[number + 1]

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `from_offset` to below `upper_offset` (P-67)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(from_offset):
            segment.load_aborted()
            if not segment.aborted.entries:
                continue
            for transaction in segment.aborted.all():
                if transaction.last_offset >= from_offset and transaction.first_offset < upper_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_offset:
                    return found
        return found
