"""A log in use: append, truncation and deletion over its segments, epochs, producers, durability and pending files.

Callers use it through `PartitionLog`, which documents the methods and their errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.batch_scan import is_valid as is_valid_message
from pykbroker.logstore.durability import Durability
from pykbroker.logstore.errors import BatchTooLarge, OffsetOutOfRange, UnexpectedAppendOffset
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import Buffer
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import LoadedParts
from pykbroker.logstore.pending_files import PendingFiles
from pykbroker.logstore.producer_state import Verification
from pykbroker.logstore.recovery import Marker, add_aborted, marker_of, record_marker
from pykbroker.logstore.retention import SegmentFacts, count_to_delete
from pykbroker.logstore.segment import CLEANED_SUFFIX, SWAP_SUFFIX, SealedSegment, Segment
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import LOG_APPEND_TIME, RecordBatch, iter_batches, iter_headers
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.compression import codec_of_topic
from pykbroker.protocol.records.errors import CorruptRecord, UnsupportedRecordFormat
from pykbroker.protocol.records.layout import ASSIGNED, ASSIGNED_SIZE, ATTRIBUTES_POSITION, LENGTH_OVERHEAD, BatchHeader
from pykbroker.protocol.records.validation import AppendPolicy, validate_client_batches


class AppendOrigin(Enum):
    """Source of an append, which decides the checks.

    CLIENT: one batch of a producer, with all checks. COORDINATOR: batches and markers of this broker's coordinators;
    only producer epochs are checked. RAFT: the metadata log, with control batches; no producers, so nothing is checked.
    """

    CLIENT = 0
    COORDINATOR = 1
    RAFT = 2


class AppendResult(NamedTuple):
    """Result of an append.

    `log_append_time_ms` is -1 unless the topic uses LogAppendTime. The result of a duplicate (P-51) has the offsets and
    the largest timestamp of the original.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


@lru_cache(maxsize=256)
def append_policy(config: LogConfig) -> AppendPolicy:
    """Rules for client batches under these settings; partitions with the same settings share one object."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return AppendPolicy(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        is_log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compression_codec=codec_of_topic(config.compression_type),
        compression_level=levels.get(config.compression_type),
        is_compacted=config.is_compacted,
    )


class LoadedLog:
    """One log whose directory was read.

    Attributes:
        path: its directory.
        log_start_offset: the first offset that may be read.
        segments: its segments.
        epochs: its leader epochs with their start offsets.
        history: state of its producers, with the snapshots.
        durability: its recovery point.
        pending: files still to be renamed or deleted.
        is_bulk: True for a copy that is written in large pieces.
    """

    __slots__ = (
        "_config",
        "_name",
        "_policy",
        "_start_batch",
        "durability",
        "epochs",
        "history",
        "is_bulk",
        "log_start_offset",
        "path",
        "pending",
        "segments",
    )

    def __init__(
        self, path: str, name: str, config: LogConfig, parts: LoadedParts, on_point_lowered: Callable[[], None]
    ) -> None:
        self.path = path
        self.is_bulk = False
        self._name = name
        self.use_config(config)
        self.segments = parts.segments
        self.epochs = parts.epochs
        self.history = parts.history
        self.log_start_offset = parts.log_start_offset
        # Argument and result of the last search of `_base_of_log_start`: log start offset, base offset of its batch.
        self._start_batch = (-1, -1)
        sealed_to = min(parts.recovery_point, parts.segments.active.base_offset)
        self.durability = Durability(parts.recovery_point, sealed_to, on_point_lowered)
        self.pending = PendingFiles(parts.segments.active.filesystem, parts.history)

    def use_config(self, config: LogConfig) -> None:
        """Uses these settings of the topic from now on."""
        self._config = config
        self._policy = append_policy(config)

    @property
    def log_end_offset(self) -> int:
        return self.segments.end_offset

    @property
    def recovery_point(self) -> int:
        return self.durability.recovery_point

    @property
    def has_hidden_start(self) -> bool:
        return self.log_start_offset > self.segments.base_offsets[0] or self.pending.has_removed

    # Appending

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        header: BatchHeader | None,
        verification: Verification | None,
        transaction_version: int,
    ) -> AppendResult:
        if origin is not AppendOrigin.CLIENT:
            return self._append_trusted(data, leader_epoch, now_ms, verification, transaction_version)
        batch = validate_client_batches(data, self._policy, now_ms, self._name, header)
        data, size, record_count, max_timestamp, producer_id, epoch, sequence, is_transactional, append_time_ms = batch
        producers, config = self.history.state, self._config
        if producer_id >= 0:
            duplicate = producers.check_append(
                producer_id,
                epoch,
                sequence,
                record_count - 1,
                is_transactional,
                verification,
                must_be_verified=config.transaction_partition_verification_enable,
            )
            if duplicate is not None:
                # The sync of `flush.messages` may have failed after the first attempt: it is tried again before the
                # producer gets the answer that the records are stored.
                self._flush_if_due()
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms, self.log_start_offset, True
                )
        segments = self.segments
        active = segments.active
        first_offset = segments.end_offset
        next_offset = first_offset + record_count
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, first_offset)
        if active.must_roll(config, size, next_offset - 1, max_timestamp, now_ms):
            active = self._roll(first_offset, now_ms)
        view = data if isinstance(data, memoryview) else memoryview(data)
        assigned = ASSIGNED.pack(first_offset, size - LENGTH_OVERHEAD, leader_epoch)
        active.append(
            (assigned, view[ASSIGNED_SIZE:]), size, next_offset - 1, max_timestamp, config.index_interval_bytes
        )
        segments.end_offset = producers.end_offset = next_offset
        if producer_id >= 0:
            producers.record_batch(
                producer_id, epoch, sequence, first_offset, record_count - 1, max_timestamp, is_transactional
            )
        # As `_flush_if_due`, without its call.
        if next_offset - self.durability.recovery_point >= config.flush_messages:
            self.flush()
        # As AppendResult(...), without the call of its Python function.
        return tuple.__new__(
            AppendResult, (first_offset, next_offset - 1, append_time_ms, self.log_start_offset, False)
        )

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Notes that a leader epoch begins at the log end, even if no record will be appended in it (KIP-279)."""
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, self.segments.end_offset)

    def _append_trusted(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None,
        transaction_version: int,
    ) -> AppendResult:
        """Appends batches that this broker has built.

        Offset and leader epoch are assigned to each, and the append time if the topic uses LogAppendTime; nothing else
        changes.
        """
        if self._config.message_timestamp_type == "LogAppendTime":
            data = bytearray(data)
            for batch in iter_batches(data):
                batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
        view = memoryview(data)
        first_offset = next_offset = self.segments.end_offset
        parts: list[Buffer] = []
        metas: list[tuple[int, int, int]] = []
        with_producer: list[tuple[int, BatchHeader, int, Marker | None]] = []
        for position, header in iter_headers(view):
            size = header.size_bytes
            parts.append(ASSIGNED.pack(next_offset, header.length, leader_epoch))
            parts.append(view[position + ASSIGNED_SIZE : position + size])
            if header.producer_id >= 0:
                marker = self._check_trusted(view, position, header, verification, transaction_version)
                with_producer.append((position, header, next_offset, marker))
            last_offset = next_offset + header.last_offset_delta
            metas.append((size, last_offset, header.max_timestamp))
            next_offset = last_offset + 1
        if not metas:
            raise ValueError("an append needs at least one whole batch")
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, first_offset)
        self._write_batches(parts, metas, first_offset, now_ms)
        for position, header, offset, marker in with_producer:
            self._record_trusted(view, position, header, offset, marker)
        self._flush_if_due()
        return AppendResult(first_offset, next_offset - 1, -1, self.log_start_offset, False)

    def append_as_follower(self, data: Buffer, now_ms: int, leader_epoch: int) -> AppendResult:
        view = memoryview(data)
        batches = self._check_followed(view, leader_epoch)
        first_offset = batches[0][1].base_offset
        size_max = self._config.segment_bytes
        start = 0
        while start < len(batches):
            # As many batches as fit into one segment.
            size, stop = batches[start][1].size_bytes, start + 1
            while stop < len(batches) and size + batches[stop][1].size_bytes <= size_max:
                size += batches[stop][1].size_bytes
                stop += 1
            self._append_followed(view, batches[start:stop], now_ms)
            start = stop
        return AppendResult(first_offset, self.segments.end_offset - 1, -1, self.log_start_offset, False)

    def _check_followed(self, view: memoryview, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
        """(position, header) of the batches to append. Raises as `append_as_follower` for invalid batches."""
        next_offset = self.segments.end_offset
        batches: list[tuple[int, BatchHeader]] = []
        for position, header in _followed_headers(view):
            base_offset = header.base_offset
            if header.leader_epoch > leader_epoch:
                break
            if base_offset < next_offset:
                raise UnexpectedAppendOffset(f"{self._name}: a batch at {base_offset}, the log ends at {next_offset}")
            if header.magic < 2:
                is_valid = is_valid_message(view, position, header.length)
            else:
                is_valid = crc32c(view[position + ATTRIBUTES_POSITION : position + header.size_bytes]) == header.crc
            if not is_valid:
                raise CorruptRecord(f"{self._name}: CRC of the batch at {base_offset} is wrong")
            next_offset = header.last_offset + 1
            if next_offset <= base_offset:
                raise CorruptRecord(f"{self._name}: the batch at {base_offset} ends at {next_offset}")
            batches.append((position, header))
        if not batches:
            raise CorruptRecord(f"{self._name}: no whole batch in {len(view)} bytes")
        return batches

    def _append_followed(self, view: memoryview, batches: list[tuple[int, BatchHeader]], now_ms: int) -> None:
        metas = []
        for _, header in batches:
            epoch = header.leader_epoch
            if epoch != self.epochs.latest_epoch and epoch >= 0:
                self.epochs.assign(epoch, header.base_offset)
            metas.append((header.size_bytes, header.last_offset, header.max_timestamp))
        (start, first), (end, last) = batches[0], batches[-1]
        # An old message begins below the offset in its header, if it is compressed.
        first_offset = first.base_offset if first.magic >= 2 else self.segments.end_offset
        self._write_batches([view[start : end + last.size_bytes]], metas, first_offset, now_ms)
        for position, header in batches:
            if header.producer_id >= 0:
                self._record_trusted(view, position, header, header.base_offset)
        self._flush_if_due()

    def _write_batches(
        self, parts: list[Buffer], metas: list[tuple[int, int, int]], first_offset: int, now_ms: int
    ) -> None:
        """Writes batches, each (size, last offset, max timestamp) of `metas`, in one step to one segment."""
        size = sum(meta[0] for meta in metas)
        if size > self._config.segment_bytes:
            raise BatchTooLarge(f"{self._name}: {size} bytes in one append are more than segment.bytes")
        last_offset = metas[-1][1]
        active = self.segments.active
        if active.must_roll(self._config, size, last_offset, max(meta[2] for meta in metas), now_ms):
            active = self._roll(first_offset, now_ms)
        active.append_batches(parts, metas, self._config.index_interval_bytes, is_bulk=self.is_bulk)
        self.segments.end_offset = self.history.state.end_offset = last_offset + 1

    def _check_trusted(
        self,
        view: memoryview,
        position: int,
        header: BatchHeader,
        verification: Verification | None,
        transaction_version: int,
    ) -> Marker | None:
        """Checks a batch of a producer by the producer's state. Returns the marker that it is, if it is one."""
        producers = self.history.state
        if not header.is_control:
            if header.is_transactional and self._config.transaction_partition_verification_enable:
                producers.check_verified(header.producer_id, header.producer_epoch, verification)
            producers.check_coordinator_append(header.producer_id, header.producer_epoch)
            return None
        marker = marker_of(RecordBatch(view, position))
        if marker is not None:
            producers.check_marker(header.producer_id, header.producer_epoch, marker[1], transaction_version)
        return marker

    def _record_trusted(
        self, view: memoryview, position: int, header: BatchHeader, offset: int, marker: Marker | None = None
    ) -> None:
        """Updates the producer's state by a batch or marker that is in the log at `offset`."""
        producers = self.history.state
        if header.is_control:
            completed = record_marker(producers, RecordBatch(view, position), offset, marker)
            if completed is not None and completed.is_aborted:
                add_aborted(self.segments.active, producers, completed)
            return
        producers.record_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.is_transactional,
        )

    # Rolling

    def roll(self, now_ms: int) -> None:
        active = self.segments.active
        if active.size or active.base_offset != self.segments.end_offset:
            self._roll(self.segments.end_offset, now_ms)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Moves the log end up to `offset` without records, for a copy of a log whose last records were compacted away.

        Raises StorageError.
        """
        self._roll(offset, now_ms)
        self.segments.end_offset = self.history.state.end_offset = offset

    def _roll(self, base_offset: int, now_ms: int) -> ActiveSegment:
        segments = self.segments
        old = segments.active
        base_offset = max(base_offset, segments.end_offset)
        # Steps that can fail on a full disk come first: the old segment stays active until all of them are done.
        self.epochs.write_pending()
        if old.size:
            old.finish()
            self.history.state.end_offset = base_offset
            self.history.take_snapshot(self.log_start_offset)
        active = segments.new_segment(base_offset, now_ms)
        segments.append_segment(active)
        self.durability.note_new_file()
        if not old.size:
            # An empty segment that cannot contain the next offset is replaced.
            self._remove_segments([old], now_ms)
        return active

    # Reading

    def last_stable_offset(self, high_watermark: int) -> int:
        producers = self.history.state
        # Transactions whose markers are replicated are dropped here, with the first reader, and not when the high
        # watermark moves, which then need not look at the state of producers. The result is the same.
        producers.forget_replicated(high_watermark)
        unstable = producers.first_unstable_offset
        if unstable < 0:
            return high_watermark
        if unstable < self.log_start_offset:
            unstable = self._base_of_log_start()
        return min(high_watermark, unstable)

    def _base_of_log_start(self) -> int:
        """Base offset of the batch that has the log start offset, or of the next batch; the log end without one."""
        start = self.log_start_offset
        if self._start_batch[0] != start:
            # A read of one byte finds the batch and reads nothing of it.
            found = self.segments.read(start, 1, self.segments.end_offset, at_least_one=False)
            self._start_batch = start, found.first_offset
        return self._start_batch[1]

    def aborted_transactions_in(self, offset: int, records: FileRange) -> list[AbortedTransaction]:
        upper_offset = self.segments.offset_behind(offset, records)
        # The end is unknown if the records are of a segment that was removed, or of the log that this one replaced.
        # Further transactions do no harm.
        return self.segments.aborted_transactions(
            offset, self.segments.end_offset if upper_offset is None else upper_offset
        )

    # Deleting

    def advance_log_start(self, offset: int) -> bool:
        if offset > self.segments.end_offset:
            raise OffsetOutOfRange(f"{self._name}: {offset} is above the log end {self.segments.end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.durability.recovery_point = max(self.durability.recovery_point, offset)
        # Epochs are removed together with their segments: after a kill the log start may be an older one, because its
        # checkpoint is written only at intervals.
        self.history.state.forget_replicated(offset)
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        segments = self.segments
        ends = [*segments.base_offsets[1:], segments.end_offset]
        facts = [
            SegmentFacts(segment.size, segment.largest_timestamp(), end)
            for segment, end in zip(segments.segments, ends, strict=True)
        ]
        count = count_to_delete(facts, self._config, now_ms, self.log_start_offset, high_watermark)
        if count == 0:
            return 0
        if count == len(segments.segments):
            self._roll(segments.end_offset, now_ms)
        self.advance_log_start(segments.base_offsets[count])
        self._remove_segments(segments.segments[:count], now_ms)
        self.epochs.truncate_from_start(segments.base_offsets[0])
        return count

    def _remove_segments(self, removed: list[Segment], now_ms: int) -> None:
        """Removes segments from the log and renames their files and producer snapshots to `.deleted`.

        Raises StorageError if a file could not be renamed; the segments are removed from the log even then.
        """
        for segment in removed:
            self.segments.remove(segment)
        self.pending.remove(removed, self._due_ms(now_ms))

    def _due_ms(self, now_ms: int) -> int:
        """Time, in ms since the epoch, from which files that are marked now may be deleted."""
        return now_ms + self._config.file_delete_delay_ms

    def delete_due_files(self, now_ms: int) -> int:
        self.pending.mark_removed(self._due_ms(now_ms))
        self.pending.finish_swaps(self._due_ms(now_ms))
        return self.pending.delete_due(now_ms)

    def remove_expired_producers(self, now_ms: int) -> None:
        self.history.state.remove_expired(now_ms, self._config.producer_id_expiration_ms)

    def replace_segments(self, cleaned: SealedSegment, olds: Sequence[Segment], now_ms: int) -> None:
        """Replaces neighbouring sealed segments by a `.cleaned` one. A crash leaves all old ones or the new one.

        Raises StorageError. Then the log has either still the old segments, or the new one without its final file
        names, see `finish_swaps`.
        """
        # With the `.swap` name the segment is valid: the next start would complete the replacement.
        cleaned.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        self.segments.replace(olds, cleaned)
        self.pending.swap(cleaned, olds, self._due_ms(now_ms))

    def finish_swaps(self, now_ms: int) -> None:
        """Gives cleaned segments the file names of those that they replace. Raises StorageError; can be called again.

        Segments whose replacement is incomplete must not be compacted before this has succeeded.
        """
        self.pending.finish_swaps(self._due_ms(now_ms))

    # Truncating

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        segments = self.segments
        if offset >= segments.end_offset:
            self.epochs.truncate_from_end(segments.end_offset)
            return False
        if offset < segments.base_offsets[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self.durability.begin_truncation()
        self.pending.finish_swaps(self._due_ms(now_ms))
        self._drop_from(bisect_right(segments.base_offsets, offset), now_ms)
        end_offset = segments.truncate_active(offset, now_ms)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.durability.lower(end_offset)
        self.durability.limit_sealed(segments.active.base_offset)
        self.epochs.truncate_from_end(end_offset)
        self.history.load(segments.segments, self.log_start_offset, end_offset, self._config.producer_id_expiration_ms)
        # Set last: until then, after a failure, another call repeats all steps.
        segments.end_offset = end_offset
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        due_ms = self._due_ms(now_ms)
        self.durability.begin_truncation()
        self.durability.lower(offset)
        self.pending.finish_swaps(due_ms)
        self.pending.mark_removed(due_ms)
        self._drop_from(0, now_ms)
        self.history.clear(offset)
        self.segments.restart(self.segments.new_segment(offset, now_ms))
        self.durability.note_new_file()
        self.epochs.clear()
        self.log_start_offset = self.segments.end_offset = offset
        self.durability.note_restart()

    def _drop_from(self, number: int, now_ms: int) -> None:
        """Removes the segments from a number on, the last one first.

        Each is removed after its files were renamed, because a new segment may begin at the same offset.
        """
        segments = self.segments
        while len(segments.segments) > number:
            self.pending.mark_deleted(segments.segments[-1], self._due_ms(now_ms))
            del segments.segments[-1], segments.base_offsets[-1]

    # Durability

    @property
    def is_durable(self) -> bool:
        return self.durability.recovery_point == self.segments.end_offset

    @property
    def has_unflushed_segments(self) -> bool:
        return not self.durability.is_sealed_durable(self.segments)

    def begin_flush(self, *, include_active: bool) -> FlushWork | None:
        return self.durability.begin_flush(
            self.path, self.segments, self.epochs, self.history, include_active=include_active
        )

    def flush(self) -> None:
        work = self.begin_flush(include_active=True)
        if work is not None:
            try:
                work.run()
            finally:
                work.finish()

    def _flush_if_due(self) -> None:
        """Syncs the log if `flush.messages` requires it.

        If the sync fails, the records are still in the log; so call this after the state of producers and transactions
        was updated.
        """
        if self.segments.end_offset - self.durability.recovery_point >= self._config.flush_messages:
            self.flush()

    def close(self) -> None:
        if self.write_end(without_empty_snapshot=False):
            self.segments.active.sync_all(self.epochs.path, self.history.snapshots[-1:])
        self.segments.close()

    def write_end(self, *, without_empty_snapshot: bool) -> bool:
        active = self.segments.active
        self.history.take_snapshot(self.log_start_offset, unless_empty=without_empty_snapshot)
        # The next start would drop an epoch without records.
        self.epochs.truncate_from_end(self.segments.end_offset)
        self.epochs.write_pending()
        if not active.size and not active.filesystem.exists(active.file.path):
            return False
        active.finish()
        return True

    def note_synced(self) -> None:
        self.durability.note_all_synced(self.segments, self.epochs)

    def close_files(self) -> None:
        self.segments.close()

    def rename_directory(self, path: str) -> None:
        self.segments.active.filesystem.rename(self.path, path)
        self.path = path
        self.segments.move(path)
        self.history.move(path)
        self.epochs.path = f"{path}/{EPOCHS_FILE}"


def _followed_headers(view: memoryview) -> Iterable[tuple[int, BatchHeader]]:
    """(position, header) of the batches that a follower has fetched, which may have an old format."""
    try:
        return list(iter_headers(view))
    except UnsupportedRecordFormat:
        from pykbroker.protocol.records.legacy import stored_headers

        return stored_headers(view)
