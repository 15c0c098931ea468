"""One partition's log: ordered segments, of which the last is written.

Knows record batches and offsets, not requests, replicas or the high watermark; where a reader may read to, and up to
where segments may be deleted, comes as an argument. Synchronous; one thread uses it (`begin_flush` says what may run
elsewhere). Nothing is read or opened before the first use, so that a thousand idle partitions cost next to nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.batch_scan import PREFIX_SIZE
from pykbroker.logstore.errors import BatchTooLarge, OffsetOutOfRange, UnexpectedAppendOffset
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import Buffer, FileSystem, OsFileSystem
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import LoadRequest, load_log, load_producers
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import read_topic_id, write_topic_id
from pykbroker.logstore.producer_snapshot import encode_snapshot
from pykbroker.logstore.producer_state import ProducerState
from pykbroker.logstore.recovery import add_aborted, marker_of, record_marker
from pykbroker.logstore.retention import SegmentFacts, count_to_delete
from pykbroker.logstore.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, Segment, TimestampOffset, segment_path
from pykbroker.protocol.records.batch import RecordBatch, iter_batches
from pykbroker.protocol.records.compression import codec_of_topic
from pykbroker.protocol.records.errors import CorruptRecord
from pykbroker.protocol.records.validation import AppendPolicy, validate_client_batches

_ASSIGNED: Final = Struct(">qii")
_ASSIGNED_SIZE: Final = 16
_BOUNDARIES_KEPT: Final = 64


class AppendOrigin(Enum):
    """Who appends, which decides what is checked.

    CLIENT: one batch of a producer, everything is checked. COORDINATOR: batches that this broker's coordinators made,
    markers among them: only producer epochs are checked. RAFT: the metadata log; control batches allowed.
    """

    CLIENT = 0
    COORDINATOR = 1
    RAFT = 2


class AppendResult(NamedTuple):
    """Where an append went. `log_append_time_ms` is -1 unless the topic uses LogAppendTime; a duplicate (P-51) carries
    the original's offsets and its largest timestamp."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


class LogRead(NamedTuple):
    """Result of a read: a range to send and to release, or None when there is nothing; `first_offset` is the base
    offset of its first batch (P-62), or the asked offset when there is nothing or it is not known without reading."""

    range: FileRange | None
    first_offset: int


def append_policy(config: LogConfig) -> AppendPolicy:
    """What these settings ask of client batches."""
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


class PartitionLog:
    """The log of one partition. Build it with `open`."""

    __slots__ = (
        "_active",
        "_bases",
        "_boundaries",
        "_config",
        "_deleted_files",
        "_end_offset",
        "_epochs",
        "_expected_end_offset",
        "_is_clean",
        "_open_files",
        "_opened_ms",
        "_policy",
        "_producers",
        "_segments",
        "_snapshots",
        "_start_offset",
        "_topic_id",
        "partition",
        "path",
        "recovery_point",
        "topic",
    )

    def __init__(self, path: str, topic: str, partition: int, config: LogConfig, open_files: OpenFiles) -> None:
        self.path = path
        self.topic = topic
        self.partition = partition
        # Offset up to which the log is known to be durable; recovery begins here.
        self.recovery_point = 0
        self._open_files = open_files
        self._config = config
        self._policy: AppendPolicy | None = None
        self._active: ActiveSegment | None = None
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._boundaries: dict[int, int] = {}
        self._deleted_files: list[tuple[int, list[str]]] = []
        self._start_offset = 0
        self._end_offset = 0
        self._expected_end_offset: int | None = None
        self._is_clean = False
        self._opened_ms = 0
        self._snapshots: list[int] = []
        self._topic_id: bytes | None = None
        self._epochs: LeaderEpochs
        self._producers: ProducerState

    @classmethod
    def open(
        cls,
        path: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        filesystem: FileSystem | None = None,
        open_files: OpenFiles | None = None,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_clean: bool = False,
        topic_id: bytes | None = None,
        end_offset: int | None = None,
    ) -> PartitionLog:
        """Open the log in the folder `path`, which is made when missing.

        After a clean stop (`is_clean`) nothing is read until the first use, and then nothing is scanned; `end_offset`,
        when the caller knows it (a clean stop leaves it as the recovery point), is answered without reading. Otherwise
        the log is recovered now. `topic_id` is noted in a new folder. Logs of one broker share `open_files`; a log that
        stands alone may give just the `filesystem`. Raises StorageError, CorruptFile.
        """
        if open_files is None:
            open_files = OpenFiles(filesystem or OsFileSystem())
        log = cls(path, topic, partition, config, open_files)
        log.recovery_point = recovery_point
        log._start_offset = log_start_offset
        log._is_clean = is_clean
        log._opened_ms = now_ms
        log._topic_id = topic_id
        log._expected_end_offset = end_offset
        filesystem = open_files.filesystem
        if not filesystem.exists(path):
            filesystem.make_directory(path)
            if topic_id is not None:
                write_topic_id(filesystem, path, topic_id)
            log._is_clean = True
        elif not is_clean:
            log._load()
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.path})"

    # What it is and where it stands

    @property
    def topic_id(self) -> bytes | None:
        """The topic id noted in the folder, None when none was."""
        if self._topic_id is None:
            self._topic_id = read_topic_id(self._open_files.filesystem, self.path)
        return self._topic_id

    @property
    def config(self) -> LogConfig:
        """The settings; may be set at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._policy = None

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        if self._active is None:
            if self._expected_end_offset is not None:
                return self._expected_end_offset
            self._load()
        return self._end_offset

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last append, -1 when unknown."""
        self._ready()
        return self._epochs.latest_epoch

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epoch cache."""
        self._ready()
        return self._epochs

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent and transactional producers."""
        self._ready()
        return self._producers

    @property
    def first_unstable_offset(self) -> int:
        """First offset of the oldest open transaction, -1 when there is none (P-68)."""
        return (
            self._producers.first_unstable_offset if self._active is not None else self.producers.first_unstable_offset
        )

    @property
    def has_hidden_start(self) -> bool:
        """Whether the log start lies above the first segment's base offset, so that the files do not tell it."""
        return self._start_offset > self._bases[0] if self._active is not None else self._start_offset > 0

    @property
    def size_bytes(self) -> int:
        """Bytes in the `.log` files."""
        self._ready()
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; the last one is being written."""
        self._ready()
        return tuple(self._bases)

    def _ready(self) -> ActiveSegment:
        return self._active or self._load()

    def _load_request(self) -> LoadRequest:
        return LoadRequest(
            self.path,
            self._start_offset,
            self.recovery_point,
            self._is_clean,
            self._opened_ms,
            self._config.index_interval_bytes,
            self._config.producer_id_expiration_ms,
        )

    def _load(self) -> ActiveSegment:
        self._epochs = LeaderEpochs(self._open_files.filesystem, f"{self.path}/{EPOCHS_FILE}")
        loaded = load_log(self._load_request(), self._open_files, self._epochs)
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._start_offset = loaded.log_start_offset
        self._end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._active = loaded.active
        if not self._is_clean:
            self._take_snapshot()
        return loaded.active

    # Appending

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Check batches as `origin` asks, give them the next offsets, and write them.

        `data` is not changed unless LogAppendTime asks for it and it is writable. Raises a RecordError of
        protocol.records for bad batches, OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState,
        BatchTooLarge, StorageFull, StorageError; after any of them the log is as it was.
        """
        active = self._active or self._load()
        if origin is not AppendOrigin.CLIENT:
            return self._append_trusted(active, data, leader_epoch, now_ms)
        policy = self._policy
        if policy is None:
            policy = self._policy = append_policy(self._config)
        batch = validate_client_batches(data, policy, now_ms, f"{self.topic}-{self.partition}")
        data, size, record_count, max_timestamp, producer_id, epoch, sequence, is_transactional, append_time_ms = batch
        if producer_id >= 0:
            duplicate = self._producers.check_append(producer_id, epoch, sequence, record_count - 1, is_transactional)
            if duplicate is not None:
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms, self._start_offset, True
                )
        first_offset = self._end_offset
        last_offset = first_offset + record_count - 1
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first_offset)
        if self._must_roll(active, size, last_offset, max_timestamp, now_ms):
            active = self._roll(first_offset, now_ms)
        view = data if isinstance(data, memoryview) else memoryview(data)
        assigned = _ASSIGNED.pack(first_offset, size - PREFIX_SIZE, leader_epoch)
        active.append(
            (assigned, view[_ASSIGNED_SIZE:]), size, last_offset, max_timestamp, self._config.index_interval_bytes
        )
        self._end_offset = last_offset + 1
        if producer_id >= 0:
            self._producers.record_batch(
                producer_id, epoch, sequence, first_offset, record_count - 1, max_timestamp, is_transactional
            )
        self._producers.end_offset = last_offset + 1
        if last_offset + 1 - self.recovery_point >= self._config.flush_messages:
            self.flush()
        return AppendResult(first_offset, last_offset, append_time_ms, self._start_offset, False)

    def _append_trusted(self, active: ActiveSegment, data: Buffer, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches that this broker made: offsets and epoch are assigned to each, the rest is taken as it is."""
        view = memoryview(data)
        next_offset = self._end_offset
        parts: list[Buffer] = []
        metas: list[tuple[int, int, int]] = []
        with_producer: list[tuple[RecordBatch, int]] = []
        for batch in iter_batches(view):
            size = batch.size_bytes
            parts.append(_ASSIGNED.pack(next_offset, size - PREFIX_SIZE, leader_epoch))
            parts.append(view[batch.position + _ASSIGNED_SIZE : batch.position + size])
            if batch.producer_id >= 0:
                self._check_trusted(batch)
                with_producer.append((batch, next_offset))
            last_offset = next_offset + batch.last_offset_delta
            metas.append((size, last_offset, batch.max_timestamp))
            next_offset = last_offset + 1
        if not metas:
            raise ValueError("an append needs at least one whole batch")
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, self._end_offset)
        first_offset = self._end_offset
        self._write_batches(active, parts, metas, first_offset, now_ms)
        for batch, offset in with_producer:
            self._record_trusted(batch, offset)
        return AppendResult(first_offset, next_offset - 1, -1, self._start_offset, False)

    def append_as_follower(self, data: Buffer, now_ms: int) -> AppendResult:
        """Append batches fetched from a leader as they are: offsets and epochs are the leader's, CRCs are checked.

        Raises UnexpectedAppendOffset when they do not come after the log end, CorruptRecord, StorageFull, StorageError.
        """
        active = self._ready()
        view = memoryview(data)
        next_offset = self._end_offset
        metas: list[tuple[int, int, int]] = []
        batches: list[RecordBatch] = []
        end = 0
        for batch in iter_batches(view):
            if batch.base_offset < next_offset:
                raise UnexpectedAppendOffset(
                    f"{self.topic}-{self.partition}: a batch at offset {batch.base_offset}, the log ends at {next_offset}"
                )
            if not batch.verify_crc():
                raise CorruptRecord(f"{self.topic}-{self.partition}: CRC of the batch at {batch.base_offset} is wrong")
            next_offset = batch.next_offset
            metas.append((batch.size_bytes, next_offset - 1, batch.max_timestamp))
            batches.append(batch)
            end = batch.position + batch.size_bytes
        if not metas:
            raise ValueError("an append needs at least one whole batch")
        for batch in batches:
            if batch.partition_leader_epoch != self._epochs.latest_epoch and batch.partition_leader_epoch >= 0:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        first_offset = batches[0].base_offset
        self._write_batches(active, [view[:end]], metas, first_offset, now_ms)
        for batch in batches:
            if batch.producer_id >= 0:
                self._record_trusted(batch, batch.base_offset)
        return AppendResult(first_offset, next_offset - 1, -1, self._start_offset, False)

    def _write_batches(
        self,
        active: ActiveSegment,
        parts: list[Buffer],
        metas: list[tuple[int, int, int]],
        first_offset: int,
        now_ms: int,
    ) -> None:
        size = sum(meta[0] for meta in metas)
        if size > self._config.segment_bytes:
            raise BatchTooLarge(
                f"{self.topic}-{self.partition}: {size} bytes in one append, segment.bytes is {self._config.segment_bytes}"
            )
        last_offset = metas[-1][1]
        if self._must_roll(active, size, last_offset, max(meta[2] for meta in metas), now_ms):
            active = self._roll(first_offset, now_ms)
        active.append_batches(parts, metas, self._config.index_interval_bytes)
        self._end_offset = self._producers.end_offset = last_offset + 1
        if last_offset + 1 - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def _check_trusted(self, batch: RecordBatch) -> None:
        if not batch.is_control:
            self._producers.check_coordinator_append(batch.producer_id, batch.producer_epoch)
            return
        marker = marker_of(batch)
        if marker is not None:
            self._producers.check_marker(batch.producer_id, batch.producer_epoch, marker[1], 0)

    def _record_trusted(self, batch: RecordBatch, offset: int) -> None:
        if batch.is_control:
            completed = record_marker(self._producers, batch, offset)
            if completed is not None and completed.is_aborted:
                add_aborted(self._segments[-1], self._producers, completed)
            return
        self._producers.record_batch(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            offset,
            batch.last_offset_delta,
            batch.max_timestamp,
            batch.is_transactional,
        )

    # Rolling

    def _must_roll(self, active: ActiveSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch needs a new segment (P-165)."""
        config = self._config
        if active.size > config.segment_bytes - size:
            return True
        if active.size == 0:
            return not active.can_hold(last_offset)
        return (
            active.age_for_roll(max_timestamp, now_ms) > config.segment_ms - self._jitter_ms(active)
            or not active.has_index_room(config.segment_index_bytes)
            or not active.can_hold(last_offset)
        )

    def _jitter_ms(self, active: ActiveSegment) -> int:
        """Spreads rolls over time: any number below segment.jitter.ms that stays the same for one segment."""
        jitter_ms = self._config.segment_jitter_ms
        return crc32(active.file.path.encode()) % jitter_ms if jitter_ms > 0 else 0

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty and begins there."""
        active = self._ready()
        if active.size or active.base_offset != self._end_offset:
            self._roll(self._end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> ActiveSegment:
        old = self._ready()
        base_offset = max(base_offset, self._end_offset)
        if old.size == 0:
            # An empty segment that cannot hold the next offset is replaced, not kept.
            self._remove_segments([old], now_ms)
        else:
            self._segments[-1] = old.sealed(self._open_files)
            self._producers.end_offset = base_offset
            self._take_snapshot()
        active = ActiveSegment(self.path, base_offset, self._open_files, now_ms)
        active.create_file()
        self._segments.append(active)
        self._bases.append(base_offset)
        self._boundaries.clear()
        self._active = active
        return active

    def _take_snapshot(self) -> None:
        """Write producer state at the log end, unless there is a snapshot of it (P-57)."""
        offset = self._producers.end_offset
        if offset > (self._snapshots[-1] if self._snapshots else self._start_offset):
            path = segment_path(self.path, offset, SNAPSHOT_SUFFIX)
            self._open_files.filesystem.write_file(path, encode_snapshot(self._producers.producers), durable=False)
            self._snapshots.append(offset)

    # Reading

    def read(self, offset: int, size_max: int, bound_offset: int, *, at_least_one: bool) -> LogRead:
        """Batches from the one that holds `offset`, up to `size_max` bytes and below `bound_offset` (P-60 to P-62).

        The range may end within a batch. When its first batch is larger than `size_max`, it is that batch whole if
        `at_least_one`, else nothing. At or above the bound: nothing, no error. Raises OffsetOutOfRange (P-65),
        StorageError.
        """
        active = self._active or self._load()
        end_offset = self._end_offset
        if offset < self._start_offset or offset > end_offset:
            raise OffsetOutOfRange(
                f"{self.topic}-{self.partition}: offset {offset} is not in {self._start_offset}..{end_offset}"
            )
        if offset >= bound_offset or offset == end_offset:
            if offset == end_offset:
                self._remember_end(active)
            return LogRead(None, offset)
        segment: Segment = active
        first_size = 0
        first_offset = offset
        position = self._boundaries.get(offset, -1)
        if position < 0:
            number = bisect_right(self._bases, offset) - 1
            segment = self._segments[number]
            found = segment.locate(offset)
            while found is None:
                # Compaction may have removed the end of a segment.
                number += 1
                if number == len(self._segments):
                    return LogRead(None, offset)
                segment = self._segments[number]
                found = segment.locate(offset)
            position, first_size, first_offset, _ = found
        limit = self._position_of_bound(segment, bound_offset)
        size = limit - position
        if size > size_max:
            if not first_size:
                first_size = PREFIX_SIZE + int.from_bytes(
                    self._open_files.filesystem.read(segment.file.descriptor(), 4, position + 8), "big"
                )
            if first_size <= size_max:
                size = size_max
            elif at_least_one:
                size = min(size, first_size)
            else:
                return LogRead(None, first_offset)
        elif size <= 0:
            return LogRead(None, first_offset)
        elif segment is active and limit == active.size:
            self._remember_end(active)
        return LogRead(FileRange(segment.file, position, size), first_offset)

    def _remember_end(self, active: ActiveSegment) -> None:
        """A reader has come to the end: its next read will begin here, and needs no search."""
        boundaries = self._boundaries
        if len(boundaries) >= _BOUNDARIES_KEPT:
            boundaries.clear()
        boundaries[self._end_offset] = active.size

    def _position_of_bound(self, segment: Segment, bound_offset: int) -> int:
        if bound_offset >= self._end_offset:
            return segment.size
        position = self._boundaries.get(bound_offset) if segment is self._active else None
        if position is None:
            found = segment.locate(bound_offset)
            position = found.position if found is not None else segment.size
        return position

    def iter_batches(self, from_offset: int | None = None) -> Iterator[RecordBatch]:
        """Copies of all batches from the one that holds `from_offset` (default: log start) to the log end, for replay.

        Batches appended meanwhile may be seen or not.
        """
        self._ready()
        offset = max(self._start_offset, from_offset if from_offset is not None else 0)
        for number in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._segments)):
            segment = self._segments[number]
            found = segment.locate(offset) if segment.size else None
            if found is not None:
                yield from segment.batches(found.position)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with this timestamp or a later one; None when there is none (P-83)."""
        self._ready()
        for segment in self._segments:
            if segment.max_timestamp()[0] >= timestamp_ms:
                return segment.offset_for_timestamp(timestamp_ms, self._start_offset)
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record that has the log's largest timestamp; None in an empty log (P-81)."""
        self._ready()
        newest = max(self._segments, key=lambda segment: segment.max_timestamp()[0])
        return newest.offset_of_max_timestamp()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known leader epoch at or below `epoch`, where it ends), (-1, -1) when unknown (P-87)."""
        self._ready()
        return self._epochs.end_offset_for(epoch, self._end_offset)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `from_offset` to below `upper_offset` (P-67)."""
        self._ready()
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(bisect_right(self._bases, from_offset) - 1, 0) :]:
            segment.load_indexes()
            for transaction in segment.aborted.all():
                if transaction.last_offset >= from_offset and transaction.first_offset < upper_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_offset:
                    return found
        return found

    # Getting rid of data

    def advance_log_start(self, offset: int) -> bool:
        """Hide everything below `offset` (DeleteRecords, P-150); whole segments below go with `delete_old_segments`.

        False when the log start is there or beyond. Raises OffsetOutOfRange above the log end.
        """
        self._ready()
        if offset > self._end_offset:
            raise OffsetOutOfRange(f"{self.topic}-{self.partition}: {offset} is above the log end {self._end_offset}")
        if offset <= self._start_offset:
            return False
        self._start_offset = offset
        self.recovery_point = max(self.recovery_point, offset)
        self._epochs.truncate_from_start(offset)
        self._producers.on_high_watermark(offset)
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention allows (P-164); the log start moves along. Returns the number of segments.

        Files are renamed to `.deleted` and go with a later `delete_due_files`. When everything may go, the active
        segment is rolled first. Raises StorageError.
        """
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
        return count

    @staticmethod
    def _retention_timestamp(segment: Segment) -> int:
        timestamp_ms = segment.max_timestamp()[0]
        if timestamp_ms >= 0 or segment.size == 0:
            return timestamp_ms
        return segment.filesystem.modified_ms(segment.file.path)

    def _remove_segments(self, segments: list[Segment], now_ms: int) -> None:
        """Take segments out of the log and mark their files, with their producer snapshots."""
        filesystem = self._open_files.filesystem
        paths: list[str] = []
        for segment in segments:
            number = self._bases.index(segment.base_offset)
            del self._segments[number], self._bases[number]
            paths += segment.mark_deleted()
            if segment.base_offset in self._snapshots:
                self._snapshots.remove(segment.base_offset)
                path = segment_path(self.path, segment.base_offset, SNAPSHOT_SUFFIX)
                filesystem.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
        if paths:
            self._deleted_files.append((now_ms + self._config.file_delete_delay_ms, paths))

    def delete_due_files(self, now_ms: int) -> int:
        """Remove `.deleted` files whose `file.delete.delay.ms` has passed; returns how many."""
        count = 0
        while self._deleted_files and self._deleted_files[0][0] <= now_ms:
            for path in self._deleted_files.pop(0)[1]:
                self._open_files.filesystem.remove(path)
                count += 1
        return count

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that have been idle for `producer.id.expiration.ms` (P-56)."""
        if self._active is not None:
            self._producers.remove_expired(now_ms, self._config.producer_id_expiration_ms)

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop everything from `offset` on; a batch that holds it goes whole. False when the log ends there or before."""
        self._ready()
        if offset >= self._end_offset:
            self._epochs.truncate_from_end(self._end_offset)
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        kept = bisect_right(self._bases, offset)
        self._remove_segments(self._segments[kept:], now_ms)
        last = self._segments[-1]
        if last is not self._active:
            last.close()
            self._active = ActiveSegment(self.path, last.base_offset, self._open_files, now_ms, last.size)
            self._active.resume()
            self._segments[-1] = self._active
        self._active.truncate_to(offset)
        self._boundaries.clear()
        self._end_offset = self._active.next_offset()
        self._start_offset = min(self._start_offset, self._end_offset)
        self.recovery_point = min(self.recovery_point, self._end_offset)
        self._epochs.truncate_from_end(self._end_offset)
        self._producers = load_producers(
            self._segments, self._snapshots, self._start_offset, self._end_offset, self._load_request()
        )
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next record gets `offset`."""
        self._ready()
        self._remove_segments(self._segments[:], now_ms)
        for snapshot in self._snapshots:
            self._open_files.filesystem.remove(segment_path(self.path, snapshot, SNAPSHOT_SUFFIX))
        self._snapshots.clear()
        self._active = ActiveSegment(self.path, offset, self._open_files, now_ms)
        self._active.create_file()
        self._segments = [self._active]
        self._bases = [offset]
        self._boundaries.clear()
        self._epochs.clear()
        self._producers = ProducerState()
        self._producers.end_offset = self._start_offset = self._end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    # Durability and the end

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether sealed segments are not durable yet."""
        return self._active is not None and self.recovery_point < self._active.base_offset

    def begin_flush(self, *, include_active: bool = True) -> FlushWork | None:
        """Start to make the log durable; None when there is nothing to do. See FlushWork for what follows."""
        if self._active is None:
            return None
        active = self._active
        offset = self._end_offset if include_active else active.base_offset
        if offset <= self.recovery_point:
            return None
        number = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        segments = [s for s in self._segments[number:] if s.base_offset < offset and s.size]
        if include_active and active.size:
            active.write_indexes(is_final=False)
        paths = [f"{self.path}/{EPOCHS_FILE}"]
        for segment in segments:
            paths += (segment.offset_index.path, segment.time_index.path)
        paths += [segment_path(self.path, s, SNAPSHOT_SUFFIX) for s in self._snapshots if s > self.recovery_point]
        return FlushWork(
            offset, self._open_files.filesystem, [segment.file for segment in segments], paths, self._flushed
        )

    def _flushed(self, offset: int) -> None:
        self.recovery_point = max(self.recovery_point, min(offset, self._end_offset))

    def flush(self) -> None:
        """Make everything durable, here and now. Raises StorageError."""
        work = self.begin_flush()
        if work is not None:
            try:
                work.run()
            finally:
                work.finish()

    def close(self) -> None:
        """Write what a clean stop leaves (producer snapshot, indexes to the end) and close the files.

        The log may be used again afterwards; it then opens its files anew.
        """
        if self._active is not None:
            self._take_snapshot()
            if self._active.size or self._open_files.filesystem.exists(self._active.file.path):
                self._active.write_indexes(is_final=True)
            self.close_files()

    def close_files(self) -> None:
        """Close the files without writing anything."""
        for segment in self._segments:
            segment.close()

    def delete(self) -> None:
        """Remove the folder and everything in it; leased bytes stay readable."""
        for segment in self._segments:
            segment.file.discard()
        self._open_files.filesystem.remove_tree(self.path)
        self._segments = []
        self._active = None

    def move(self, path: str) -> None:
        """Rename the folder, for instance to mark it for deletion; open ranges stay valid."""
        self._open_files.filesystem.rename(self.path, path)
        self.path = path
        for segment in self._segments:
            segment.move(path)
        if self._active is not None:
            self._epochs.move(f"{path}/{EPOCHS_FILE}")
