"""Log compaction: keeps the last record of every key (P-161 to P-163).

Only sealed segments are cleaned. `plan_cleaning` computes the dirty range, `begin_compaction` captures the state of the
log, `CompactionWork.run` reads and writes in any thread, `finish` replaces the old segments by the new ones. Offsets
never change; a batch that loses records keeps its offset range, sequence and epoch. The log does not change before
`finish`; a crash at any moment leaves the old or the new segments (see `log_loader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.compaction_filter import BatchFilter, TransactionTracker
from pykbroker.logstore.errors import CorruptSegment
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.offset_index import MAX_RELATIVE_OFFSET
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.segment import CLEANED_SUFFIX, IndexBuilder, SealedSegment, Segment
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.key_filter import add_latest_offsets
from pykbroker.protocol.records.layout import read_header

if TYPE_CHECKING:
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.protocol.records.batch import RecordBatch

KEY_BYTES_MAX: Final = 64 << 20
"""Bytes of keys in memory while a log is cleaned; a log with more keys is cleaned in several runs."""

_WRITE_SIZE: Final = 1 << 20
_ENTRY_OVERHEAD: Final = 130


class CleaningPlan(NamedTuple):
    """A possible cleaning of one log.

    Segments below `first_dirty_offset` were cleaned before; those from `first_uncleanable_offset` on do not change.
    `is_overdue`: a record in between is older than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """Ratio of dirty bytes to all bytes that the cleaning reads."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    def is_due(self, config: LogConfig) -> bool:
        """True if `min.cleanable.dirty.ratio` or `max.compaction.lag.ms` is exceeded."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def plan_cleaning(log: PartitionLog, checkpoint: int | None, stable_offset: int, now_ms: int) -> CleaningPlan:
    """The cleaning that is possible now.

    `checkpoint` is the end offset of the last cleaning (cleaner-offset-checkpoint), None without one. Nothing at or
    above `stable_offset`, the last stable offset, is cleaned, because transactions there may be undecided.
    """
    segments = log.segments
    start = log.log_start_offset
    first_dirty = checkpoint if checkpoint is not None and start <= checkpoint <= log.log_end_offset else start
    config = log.config
    uncleanable = min(stable_offset, segments[-1].base_offset)
    dirty = [segment for segment, following in pairwise(segments) if following.base_offset > first_dirty]
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = (segment.base_offset for segment in dirty if segment.largest_timestamp() > youngest_ms)
        uncleanable = min(uncleanable, next(young, uncleanable))
    uncleanable = max(uncleanable, first_dirty)
    oldest_ms = now_ms - config.max_compaction_lag_ms
    overdue = oldest_ms > 0 and any(0 < segment.first_timestamp() < oldest_ms for segment in dirty)
    # A segment in which the dirty part begins counts twice, as in Kafka.
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < first_dirty)
    dirty_bytes = sum(
        segment.size for segment, following in pairwise(segments) if first_dirty < following.base_offset <= uncleanable
    )
    return CleaningPlan(first_dirty, uncleanable, clean_bytes, dirty_bytes, overdue)


class CompactionWork:
    """One cleaning of one log. `run` may be called in another thread, the other methods only in the log's thread."""

    def __init__(self, log: PartitionLog, plan: CleaningPlan, now_ms: int) -> None:
        self.log = log
        self._plan = plan
        self._config = log.config
        self._now_ms = now_ms
        self._filesystem = log.filesystem
        ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
        self._sources = [
            (segment, end)
            for segment, end in zip(log.segments, ends, strict=True)
            if end <= plan.first_uncleanable_offset and segment is not log.segments[-1]
        ]
        # The last batch of the range stays, also without records. Its end is the beginning of a segment.
        self._upper_offset = self._sources[-1][1] if self._sources else plan.first_dirty_offset
        self._aborted = log.aborted_transactions(log.log_start_offset, plan.first_uncleanable_offset)
        # A producer's last batch must stay: without its sequence the producer's next batch would be out of order.
        self._last_offsets = {
            producer_id: entry.batches[-1].last_offset if entry.batches else -1 - entry.epoch
            for producer_id, entry in log.producers.producers.items()
        }
        self._replacements: list[tuple[SealedSegment, list[Segment]]] = []
        self._end_offset = plan.first_dirty_offset
        self._is_complete = False
        # True once `run` has found unreadable records: another attempt would fail too.
        self.is_unreadable = False
        self._source_name = ""
        # Own descriptors, because those of the log's segments are used by the log's thread.
        self._open_files = OpenFiles(self._filesystem, 16)

    @property
    def topic_partition(self) -> tuple[str, int]:
        """(topic, partition) of the log."""
        return self.log.topic, self.log.partition

    def run(self) -> None:
        """Writes the cleaned segments to `.cleaned` files, durably.

        Raises StorageError, and CorruptSegment for unreadable records; `finish` must be called even then.
        """
        try:
            self._compact_segments()
        except RecordError as error:
            self.is_unreadable = True
            raise CorruptSegment(f"{self.log.path}/{self._source_name}", 0, str(error)) from error
        except CorruptSegment:
            self.is_unreadable = True
            raise

    def _compact_segments(self) -> None:
        latest = self._latest_offsets()
        if self._end_offset <= self._plan.first_dirty_offset:
            return
        tracker = TransactionTracker(self._aborted)
        for group in self._segment_groups(
            [source for source in self._sources if source[0].base_offset < self._end_offset]
        ):
            batch_filter = BatchFilter(
                latest,
                self._end_offset,
                self._last_offsets,
                self._upper_offset,
                self._now_ms,
                self._config.delete_retention_ms,
                tracker,
            )
            first = group[0][0]
            cleaned = SealedSegment(first.directory, first.base_offset, self._open_files, CLEANED_SUFFIX)
            self._replacements.append((cleaned, [segment for segment, _ in group]))
            self._clean_segments(cleaned, group, batch_filter, tracker)
        self._is_complete = True

    def finish(self, now_ms: int) -> int:
        """Replaces the old segments by the cleaned ones, unless `run` failed or the old ones changed meanwhile.

        Returns the offset up to which the log is clean now, for the cleaner checkpoint.
        """
        self._open_files.close_all()
        end_offset = self._plan.first_dirty_offset
        current = self.log.segments
        is_current = self._is_complete and all(segment in current for _, olds in self._replacements for segment in olds)
        for cleaned, olds in self._replacements:
            if is_current:
                self.log.loaded.replace_segments(cleaned, olds, now_ms)
                end_offset = self._end_offset
            else:
                for path in cleaned.paths():
                    self._filesystem.remove(path)
        self._replacements = []
        return end_offset

    def _copy_of(self, segment: Segment) -> SealedSegment:
        self._source_name = f"{segment.base_offset:020d}.log"
        return SealedSegment(segment.directory, segment.base_offset, self._open_files)

    def _latest_offsets(self) -> dict[bytes, int]:
        """Last offset of each key in the dirty part of the log, as far as the keys fit in memory."""
        latest: dict[bytes, int] = {}
        room = KEY_BYTES_MAX
        dirty = [source for source in self._sources if source[1] > self._plan.first_dirty_offset]
        # Transactions that ended earlier are left out: their markers are not read, so they would stay open here.
        start = dirty[0][0].base_offset if dirty else self._plan.first_dirty_offset
        tracker = TransactionTracker([transaction for transaction in self._aborted if transaction.last_offset >= start])
        for source, end in dirty:
            if room <= 0:
                break
            for batch in self._copy_of(source).batches():
                if batch.is_control:
                    tracker.on_marker(batch)
                elif not tracker.on_data(batch):
                    room -= self._add_keys(batch, latest)
            self._end_offset = end
        return latest

    def _add_keys(self, batch: RecordBatch, latest: dict[bytes, int]) -> int:
        """Adds the offsets of a batch's keys to `latest`; returns the bytes of memory that its new keys take."""
        first_offset = self._plan.first_dirty_offset
        known = len(latest)
        if batch.magic == 2:
            key_bytes = add_latest_offsets(batch, first_offset, latest)
        else:
            key_bytes = 0
            for record in batch.records():
                if record.key is not None and record.offset >= first_offset:
                    key_bytes += 0 if record.key in latest else len(record.key)
                    latest[record.key] = record.offset
        return key_bytes + (len(latest) - known) * _ENTRY_OVERHEAD

    def _segment_groups(self, sources: Sequence[tuple[Segment, int]]) -> list[list[tuple[Segment, int]]]:
        """Groups of neighbouring segments that can become one: their total size and range of offsets fit a segment."""
        groups: list[list[tuple[Segment, int]]] = []
        size = index_size = 0
        for source in sources:
            segment, end = source
            copy = self._copy_of(segment)
            copy.load_indexes()
            own_index_size = max(len(copy.offset_index.entries), len(copy.time_index.entries))
            if (
                groups
                and size + copy.size <= self._config.segment_bytes
                and index_size + own_index_size <= self._config.segment_index_bytes
                and end - 1 - groups[-1][0][0].base_offset <= MAX_RELATIVE_OFFSET
            ):
                groups[-1].append(source)
                size += copy.size
                index_size += own_index_size
            else:
                groups.append([source])
                size, index_size = copy.size, own_index_size
        return groups

    def _clean_segments(
        self,
        cleaned: SealedSegment,
        group: list[tuple[Segment, int]],
        batch_filter: BatchFilter,
        tracker: TransactionTracker,
    ) -> None:
        """Writes the remaining records of a group of segments to one `.cleaned` segment."""
        for path in cleaned.paths():
            self._filesystem.remove(path)
        cleaned.file.descriptor(create=True)
        # The lease keeps the file open while many others are read: a closed descriptor's number would be used again.
        descriptor = cleaned.file.acquire()
        try:
            self._write_cleaned(cleaned, descriptor, group, batch_filter, tracker)
        finally:
            cleaned.file.release()

    def _write_cleaned(
        self,
        cleaned: SealedSegment,
        descriptor: int,
        group: list[tuple[Segment, int]],
        batch_filter: BatchFilter,
        tracker: TransactionTracker,
    ) -> None:
        builder = IndexBuilder(cleaned, self._config.index_interval_bytes)
        parts: list[bytes] = []
        waiting = position = 0
        for source, _ in group:
            for batch in self._copy_of(source).batches():
                data = batch_filter.filtered(batch)
                if data is None:
                    continue
                builder.add(position + waiting, batch.last_offset, _max_timestamp(batch, data))
                parts.append(data)
                waiting += len(data)
                if waiting >= _WRITE_SIZE:
                    self._filesystem.append(descriptor, parts, waiting, position, cleaned.file.path)
                    position += waiting
                    parts, waiting = [], 0
        if waiting:
            self._filesystem.append(descriptor, parts, waiting, position, cleaned.file.path)
        builder.finish()
        for transaction in tracker.kept:
            cleaned.aborted.add(AbortedTransaction(*transaction))
        if not cleaned.aborted.is_written:
            cleaned.aborted.write()
        tracker.kept.clear()
        self._filesystem.sync(descriptor)
        for path in (cleaned.offset_index.path, cleaned.time_index.path, cleaned.aborted.path):
            self._filesystem.sync_file(path)


def _max_timestamp(batch: RecordBatch, data: bytes) -> int:
    """Largest timestamp in the remaining bytes of a batch; a message of an old format stays as it was."""
    return batch.max_timestamp if batch.magic < 2 else read_header(data).max_timestamp


def begin_compaction(log: PartitionLog, plan: CleaningPlan, now_ms: int) -> CompactionWork:
    """Captures the state of the log for a cleaning. Call `run` and then, always, `finish` on the result.

    Raises StorageError if the files of an earlier cleaning still cannot be renamed.
    """
    log.loaded.finish_swaps(now_ms)
    return CompactionWork(log, plan, now_ms)
