"""One partition's log: ordered segments, of which the last is written.

Knows record batches and offsets, not requests, replicas or the high watermark; where a reader may read to, and up to
where segments may be deleted, comes as an argument. Synchronous; one thread uses it (`begin_flush` says what may run
elsewhere).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.batch_scan import PREFIX_SIZE
from pykbroker.logstore.errors import BatchTooLarge, OffsetOutOfRange, UnexpectedAppendOffset
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import Buffer
from pykbroker.logstore.log_cleanup import LogCleanup
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.producer_state import Verification
from pykbroker.logstore.recovery import add_aborted, marker_of, record_marker
from pykbroker.logstore.segment import Segment, TimestampOffset
from pykbroker.protocol.records.batch import LOG_APPEND_TIME, RecordBatch, iter_batches
from pykbroker.protocol.records.compression import codec_of_topic
from pykbroker.protocol.records.errors import CorruptRecord
from pykbroker.protocol.records.validation import AppendPolicy, validate_client_batches

_ASSIGNED: Final = Struct(">qii")
_ASSIGNED_SIZE: Final = 16
_BOUNDARIES_KEPT: Final = 64
_EPOCH_MAX: Final = 0x7FFFFFFF


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


class PartitionLog(LogCleanup):
    """The log of one partition. Build it with `open`."""

    __slots__ = ()

    # Appending

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """What a transactional batch must bring to its append once the coordinator has agreed (P-135).

        None when it may be appended as it is: its transaction is open here. `supports_epoch_bump`: the client begins
        every transaction with a new epoch (transaction.version 2). Raises InvalidProducerEpoch (P-55).
        """
        return self.producers.start_verification(
            producer_id, epoch, first_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Check batches as `origin` asks, give them the next offsets, and write them.

        `verification` is what `start_verification` gave for a transactional batch; `transaction_version` is that of the
        transaction which a marker ends. `data` is not changed unless LogAppendTime asks for it and it is writable.
        Raises a RecordError of protocol.records for bad batches, OutOfOrderSequence, InvalidProducerEpoch,
        InvalidTransactionState, TransactionCoordinatorFenced, BatchTooLarge, StorageFull, StorageError; after any of
        them the log is as it was.
        """
        active = self._active or self._load()
        if origin is not AppendOrigin.CLIENT:
            return self._append_trusted(active, data, leader_epoch, now_ms, verification, transaction_version)
        policy = self._policy
        if policy is None:
            policy = self._policy = append_policy(self._config)
        batch = validate_client_batches(data, policy, now_ms, self._name)
        data, size, record_count, max_timestamp, producer_id, epoch, sequence, is_transactional, append_time_ms = batch
        if producer_id >= 0:
            duplicate = self._producers.check_append(
                producer_id,
                epoch,
                sequence,
                record_count - 1,
                is_transactional,
                verification,
                must_be_verified=self._config.transaction_partition_verification_enable,
            )
            if duplicate is not None:
                # It may be the one whose sync failed.
                self._flush_if_due()
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms, self._start_offset, True
                )
        first_offset = self._end_offset
        last_offset = first_offset + record_count - 1
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first_offset, with_records=True)
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
        self._flush_if_due()
        return AppendResult(first_offset, last_offset, append_time_ms, self._start_offset, False)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a leader epoch begins at the log end, whether or not anything is ever appended in it (KIP-279).

        Raises StorageError.
        """
        self._ready()
        if leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, self._end_offset)

    def _append_trusted(
        self,
        active: ActiveSegment,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None,
        transaction_version: int,
    ) -> AppendResult:
        """Append batches that this broker made: offsets and epoch are assigned to each, and the time where the topic
        asks for it; the rest is taken as it is."""
        if self._config.message_timestamp_type == "LogAppendTime":
            data = bytearray(data)
            for batch in iter_batches(data):
                batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
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
                self._check_trusted(batch, verification, transaction_version)
                with_producer.append((batch, next_offset))
            last_offset = next_offset + batch.last_offset_delta
            metas.append((size, last_offset, batch.max_timestamp))
            next_offset = last_offset + 1
        if not metas:
            raise ValueError("an append needs at least one whole batch")
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, self._end_offset, with_records=True)
        first_offset = self._end_offset
        self._write_batches(active, parts, metas, first_offset, now_ms)
        for batch, offset in with_producer:
            self._record_trusted(batch, offset)
        self._flush_if_due()
        return AppendResult(first_offset, next_offset - 1, -1, self._start_offset, False)

    def append_as_follower(self, data: Buffer, now_ms: int, leader_epoch: int = _EPOCH_MAX) -> AppendResult:
        """Append batches fetched from a leader as they are: offsets and epochs are the leader's, CRCs are checked.

        A batch that is not whole ends them, as one of an epoch above `leader_epoch` does, which that leader cannot have
        written. Raises UnexpectedAppendOffset when they do not come after the log end, CorruptRecord when there is not
        one whole batch or one is damaged: then nothing was appended. StorageFull, StorageError: what was appended
        before is complete.
        """
        self._ready()
        view = memoryview(data)
        batches = self._check_followed(view, leader_epoch)
        first_offset = batches[0].base_offset
        size_max = self._config.segment_bytes
        start = 0
        while start < len(batches):
            # As many as go into one segment.
            size, stop = batches[start].size_bytes, start + 1
            while stop < len(batches) and size + batches[stop].size_bytes <= size_max:
                size += batches[stop].size_bytes
                stop += 1
            self._append_followed(view, batches[start:stop], now_ms)
            start = stop
        return AppendResult(first_offset, self._end_offset - 1, -1, self._start_offset, False)

    def _check_followed(self, view: memoryview, leader_epoch: int) -> list[RecordBatch]:
        """The batches to append. Raises as `append_as_follower` for what a leader would not send."""
        next_offset = self._end_offset
        batches: list[RecordBatch] = []
        for batch in iter_batches(view):
            base_offset = batch.base_offset
            if batch.partition_leader_epoch > leader_epoch:
                break
            if base_offset < next_offset:
                raise UnexpectedAppendOffset(f"{self._name}: a batch at {base_offset}, the log ends at {next_offset}")
            if not batch.verify_crc():
                raise CorruptRecord(f"{self._name}: CRC of the batch at {base_offset} is wrong")
            next_offset = batch.next_offset
            if next_offset <= base_offset:
                raise CorruptRecord(f"{self._name}: the batch at {base_offset} ends at {next_offset}")
            batches.append(batch)
        if not batches:
            raise CorruptRecord(f"{self._name}: not one whole batch in {len(view)} bytes")
        return batches

    def _append_followed(self, view: memoryview, batches: list[RecordBatch], now_ms: int) -> None:
        active = self._ready()
        first, last = batches[0], batches[-1]
        for batch in batches:
            epoch = batch.partition_leader_epoch
            if epoch != self._epochs.latest_epoch and epoch >= 0:
                self._epochs.assign(epoch, batch.base_offset, with_records=True)
        metas = [(batch.size_bytes, batch.next_offset - 1, batch.max_timestamp) for batch in batches]
        whole = view[first.position : last.position + last.size_bytes]
        self._write_batches(active, [whole], metas, first.base_offset, now_ms)
        for batch in batches:
            if batch.producer_id >= 0:
                self._record_trusted(batch, batch.base_offset)
        self._flush_if_due()

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
            raise BatchTooLarge(f"{self._name}: {size} bytes in one append are more than segment.bytes")
        last_offset = metas[-1][1]
        if self._must_roll(active, size, last_offset, max(meta[2] for meta in metas), now_ms):
            active = self._roll(first_offset, now_ms)
        active.append_batches(parts, metas, self._config.index_interval_bytes)
        self._end_offset = self._producers.end_offset = last_offset + 1

    def _flush_if_due(self) -> None:
        """Sync the log if `flush.messages` asks for it. Where that fails the records are in the log all the same: to be
        called when all is noted that they say of producers and transactions."""
        if self._end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def _check_trusted(self, batch: RecordBatch, verification: Verification | None, transaction_version: int) -> None:
        if not batch.is_control:
            if batch.is_transactional and self._config.transaction_partition_verification_enable:
                self._producers.check_verified(batch.producer_id, batch.producer_epoch, verification)
            self._producers.check_coordinator_append(batch.producer_id, batch.producer_epoch)
            return
        marker = marker_of(batch)
        if marker is not None:
            self._producers.check_marker(batch.producer_id, batch.producer_epoch, marker[1], transaction_version)

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
            raise OffsetOutOfRange(f"{self._name}: offset {offset} is not in {self._start_offset}..{end_offset}")
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

    def size_between(self, offset: int, end_offset: int) -> int | None:
        """Bytes from the batch that holds `offset` up to `end_offset`, which begins a batch or is the log end.

        None when they lie in more than one segment.
        """
        active = self._ready()
        number = bisect_right(self._bases, offset) - 1
        segment = self._segments[number]
        if segment is not active and self._bases[number + 1] < end_offset:
            return None
        found = segment.locate(offset) if offset < self._end_offset else None
        return 0 if found is None else self._position_of_bound(segment, end_offset) - found.position

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

    def aborted_transactions_in(self, offset: int, records: FileRange) -> list[AbortedTransaction]:
        """Aborted transactions that a reader of `records`, read at `offset`, must know of (P-67).

        The end of the records is found in the sparse index, so a few more than these may be named, as by Kafka.
        """
        number = max(bisect_right(self._bases, offset) - 1, 0)
        while number < len(self._segments) and not records.is_of(self._segments[number].file):
            number += 1
        if number == len(self._segments):
            return []
        segment = self._segments[number]
        upper_offset = segment.offset_index.offset_above(records.position + len(records))
        if upper_offset is None:
            upper_offset = self._end_offset if segment is self._active else self._bases[number + 1]
        return self.aborted_transactions(offset, upper_offset)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `from_offset` to below `upper_offset` (P-67)."""
        self._ready()
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(bisect_right(self._bases, from_offset) - 1, 0) :]:
            segment.load_aborted()
            if not segment.aborted.entries:
                continue
            for transaction in segment.aborted.all():
                if transaction.last_offset >= from_offset and transaction.first_offset < upper_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_offset:
                    return found
        return found
