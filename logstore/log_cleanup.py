"""Getting rid of data: the log start moves, old segments go, the end is cut off."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.errors import OffsetOutOfRange, StorageError
from pykbroker.logstore.log_durability import LogDurability
from pykbroker.logstore.log_loader import load_producers
from pykbroker.logstore.producer_state import ProducerState
from pykbroker.logstore.retention import SegmentFacts, count_to_delete
from pykbroker.logstore.segment import (
    CLEANED_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    SealedSegment,
    Segment,
    segment_path,
)


class LogCleanup(LogDurability):
    """Deletes and truncates."""

    __slots__ = ()

    def advance_log_start(self, offset: int) -> bool:
        """Hide everything below `offset` (DeleteRecords, P-150); whole segments below go with `delete_old_segments`.

        False when the log start is there or beyond. Raises OffsetOutOfRange above the log end.
        """
        self._ready()
        if offset > self._end_offset:
            raise OffsetOutOfRange(f"{self._name}: {offset} is above the log end {self._end_offset}")
        if offset <= self._start_offset:
            return False
        self._start_offset = offset
        self.recovery_point = max(self.recovery_point, offset)
        # Epochs go with the segments that hold them: a kill may take the new start back, which is noted now and then.
        self._producers.on_high_watermark(offset)
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention allows (P-164); the log start moves along. Returns the number of segments.

        Files are renamed to `.deleted` and go with a later `delete_due_files`. When everything may go, the active
        segment is rolled first. Raises StorageError.
        """
        if self.is_known_empty and not self.has_hidden_start and len(self._bases) <= 1:
            return 0
        self._ready()
        ends = [*self._bases[1:], self._end_offset]
        facts = [
            SegmentFacts(segment.size, self._retention_timestamp(segment), end)
            for segment, end in zip(self._segments, ends, strict=True)
        ]
        count = count_to_delete(facts, self._config, now_ms, self._start_offset, high_watermark)
        if count == 0:
            return 0
        if count == len(self._segments):
            self._roll(self._end_offset, now_ms)
        self.advance_log_start(self._bases[count])
        self._remove_segments(self._segments[:count], now_ms)
        self._epochs.truncate_from_start(self._bases[0])
        return count

    @staticmethod
    def _retention_timestamp(segment: Segment) -> int:
        timestamp_ms = segment.max_timestamp()[0]
        if timestamp_ms >= 0 or segment.size == 0:
            return timestamp_ms
        return segment.filesystem.modified_ms(segment.file.path)

    def delete_due_files(self, now_ms: int) -> int:
        """Remove `.deleted` files whose `file.delete.delay.ms` has passed; returns how many.

        What the file system refused before is tried again. Raises StorageError.
        """
        self._mark_doomed(now_ms)
        self.finish_swaps(now_ms)
        count = 0
        while self._deleted_files and self._deleted_files[0][0] <= now_ms:
            for path in self._deleted_files[0][1]:
                if self._open_files.filesystem.exists(path):
                    self._open_files.filesystem.remove(path)
                    count += 1
            del self._deleted_files[0]
        return count

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that have been idle for `producer.id.expiration.ms` (P-56)."""
        if self._active is not None:
            self._producers.remove_expired(now_ms, self._config.producer_id_expiration_ms)

    def replace_segments(self, cleaned: SealedSegment, olds: Sequence[Segment], now_ms: int) -> None:
        """Put a `.cleaned` segment in place of neighbouring sealed ones. A crash leaves all old ones or the new one.

        Raises StorageError. Then the old segments are still in the log; or the new one is, which waits for its place,
        see `finish_swaps`.
        """
        number = self._bases.index(olds[0].base_offset)
        # From its new name on it holds: a start would put it in place.
        cleaned.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        cleaned.close()
        cleaned.file.open_files = self._open_files
        self._segments[number : number + len(olds)] = [cleaned]
        self._bases = [segment.base_offset for segment in self._segments]
        self._swaps.append((cleaned, list(olds)))
        self.finish_swaps(now_ms)

    def finish_swaps(self, now_ms: int) -> None:
        """Give cleaned segments the names of those that they replace. Raises StorageError; then it can be tried again.

        What was tried half may not be compacted again before.
        """
        while self._swaps:
            cleaned, olds = self._swaps[0]
            while olds:
                old = olds[-1]
                keeps_snapshot = old.base_offset == cleaned.base_offset
                paths = old.mark_deleted() if keeps_snapshot else self._mark_deleted(old)
                self._deleted_files.append((now_ms + self._config.file_delete_delay_ms, paths))
                del olds[-1]
            cleaned.change_suffix(SWAP_SUFFIX, "")
            del self._swaps[0]

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything from `offset` on; a batch that holds it goes whole. False when the log ends there.

        Raises StorageError; the log must not be used then before a truncation to this offset or below has succeeded.
        """
        self._ready()
        if offset >= self._end_offset:
            self._epochs.truncate_from_end(self._end_offset)
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self._truncations += 1
        self.finish_swaps(now_ms)
        self._drop_from(bisect_right(self._bases, offset), now_ms)
        last = self._segments[-1]
        if last is not self._active:
            last.close()
            self._active = ActiveSegment(self.path, last.base_offset, self._open_files, now_ms, last.size)
            self._active.resume()
            self._segments[-1] = self._active
        self._active.truncate_to(offset)
        self._boundaries.clear()
        end_offset = self._active.next_offset()
        self._start_offset = min(self._start_offset, end_offset)
        self._lower_recovery_point(end_offset)
        self._sealed_durable_to = min(self._sealed_durable_to, self._active.base_offset)
        self._epochs.truncate_from_end(end_offset)
        self._producers = load_producers(
            self._segments,
            self._snapshots,
            self._start_offset,
            end_offset,
            self._load_request(),
            without_producers_to=self._without_producers_to,
        )
        # Last: while it is the old one, another call does all of this again.
        self._end_offset = end_offset
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything; the next record gets `offset`. Raises StorageError as `truncate_to` does."""
        self._ready()
        self._truncations += 1
        self._lower_recovery_point(offset)
        self.finish_swaps(now_ms)
        self._mark_doomed(now_ms)
        self._drop_from(0, now_ms)
        for snapshot in self._snapshots:
            self._open_files.filesystem.remove(segment_path(self.path, snapshot, SNAPSHOT_SUFFIX))
        self._snapshots.clear()
        self._active = ActiveSegment(self.path, offset, self._open_files, now_ms)
        self._active.create_file()
        self._segments = [self._active]
        self._bases = [offset]
        self._has_new_names = True
        self._boundaries.clear()
        self._epochs.clear()
        self._producers = ProducerState()
        self._producers.end_offset = self._start_offset = self._end_offset = offset
        self._sealed_durable_to = self.recovery_point

    def _lower_recovery_point(self, offset: int) -> None:
        """What comes at `offset` and behind it is not durable any more; noted durably before any of it is written.

        After a loss of power a start looks only at what lies behind the point that was noted, and would take what is
        left of new records below it for whole. Raises StorageError, and then the point is what it was.
        """
        if offset < self.recovery_point:
            before, self.recovery_point = self.recovery_point, offset
            try:
                self.on_point_lowered()
            except StorageError:
                self.recovery_point = before
                raise

    def _drop_from(self, number: int, now_ms: int) -> None:
        """Drop the segments from a number on, the last one first, each when its files no longer have their names: a
        segment that begins at the same offset may come after it."""
        while len(self._segments) > number:
            paths = self._mark_deleted(self._segments[-1])
            self._deleted_files.append((now_ms + self._config.file_delete_delay_ms, paths))
            del self._segments[-1], self._bases[-1]
