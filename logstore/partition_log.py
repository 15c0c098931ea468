"""The log of one partition: ordered segments, of which the last is the active one.

The log handles record batches and offsets, and no requests, replicas or high watermarks: the end of the readable
records, and the offset up to which segments may be deleted, are arguments. Synchronous, for one thread (`begin_flush`
makes work that may run in another one).

No file is read or opened before the first use: until then the log is an `UnloadedLog`, from then on a `LoadedLog`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.callbacks import Report, no_listener, no_report
from pykbroker.logstore.errors import OffsetOutOfRange
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import Buffer, FileSystem
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.loaded_log import AppendOrigin, AppendResult, LoadedLog, append_policy
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import Cut
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import read_topic_id, write_topic_id
from pykbroker.logstore.producer_state import ProducerState, Verification
from pykbroker.logstore.segment import Segment, TimestampOffset
from pykbroker.logstore.segment_list import LogRead
from pykbroker.logstore.unloaded_log import NEW_LOG, LastStop, UnloadedLog
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.layout import BatchHeader

__all__ = ["AppendOrigin", "AppendResult", "LogRead", "PartitionLog", "append_policy"]

NO_LIMIT: Final = (1 << 63) - 1
"""`clean_limit` of a log without a truncation."""
_EPOCH_MAX: Final = 0x7FFFFFFF


def no_cut_listener(log: PartitionLog, offset: int) -> None:
    """Does nothing."""


class PartitionLog:
    """The log of one partition. Made by `open`.

    Every method that needs the records may load them, and so raise StorageError, CorruptFile or CorruptSegment.

    Attributes:
        topic, partition: the partition of the log.
        cut: the end that recovery cut off when the log was loaded; None if that was at most unused space.
        on_shortened: called when loading finds that the log ends before the `log_end_offset` of the unloaded log.
        clean_limit: smallest offset of a truncation since the cleaner last finished; from there on nothing is clean.
        on_clean_part_cut: called before a truncation of a compacted log with the log and its new `clean_limit`; writes
            the cleaner checkpoint. Raises StorageError.
    """

    __slots__ = (
        "_config",
        "_is_bulk",
        "_on_point_lowered",
        "_open_files",
        "_report",
        "_state",
        "_topic_id",
        "clean_limit",
        "cut",
        "on_clean_part_cut",
        "on_shortened",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        open_files: OpenFiles,
        state: UnloadedLog,
        topic_id: bytes | None,
        report: Report,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.cut: Cut | None = None
        self.clean_limit = NO_LIMIT
        self.on_clean_part_cut: Callable[[PartitionLog, int], None] = no_cut_listener
        self.on_shortened: Callable[[], None] = no_listener
        self._on_point_lowered: Callable[[], None] = no_listener
        self._config = config
        self._is_bulk = False
        self._open_files = open_files
        self._state: UnloadedLog | LoadedLog = state
        self._topic_id = topic_id
        self._report = report

    @classmethod
    def open(
        cls,
        path: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        open_files: OpenFiles,
        now_ms: int,
        last_stop: LastStop = NEW_LOG,
        topic_id: bytes | None = None,
        report: Report = no_report,
        make_directory: bool = True,
    ) -> PartitionLog:
        """Opens the log in the directory `path`, which is created if it is missing.

        After a clean stop no file is read before the first use, and no segment is scanned then; otherwise the log is
        recovered now. Raises StorageError, CorruptFile.

        Args:
            open_files: shared by the logs of one broker.
            topic_id: written to a new directory.
            report: called with a text for each damaged or missing file, now or later.
            make_directory: False for a new log whose directory is created later, by the method of this name or by the
                first use that needs it.
        """
        has_directory = make_directory and open_files.filesystem.exists(path)
        state = UnloadedLog(path, open_files, last_stop, now_ms=now_ms, has_directory=has_directory)
        log = cls(topic, partition, config, open_files, state, topic_id, report)
        if make_directory:
            log.make_directory()
        if not state.is_clean:
            log._load(state)
        return log

    def make_directory(self) -> None:
        """Creates the directory of a new log, if that was not done yet. Raises StorageError."""
        if isinstance(self._state, UnloadedLog):
            self._state.make_directory(self._topic_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"

    @property
    def loaded(self) -> LoadedLog:
        """The log with its parts, which the first use loads; for operations that few callers need."""
        state = self._state
        return state if isinstance(state, LoadedLog) else self._load(state)

    def _load(self, unloaded: UnloadedLog) -> LoadedLog:
        unloaded.make_directory(self._topic_id)
        name = f"{self.topic}-{self.partition}"
        loaded, self.cut = unloaded.load(name, self._config, self._report, self._on_point_lowered)
        loaded.is_bulk = self._is_bulk
        self._state = loaded
        if not unloaded.is_clean:
            loaded.history.take_snapshot(loaded.log_start_offset)
        if self.cut is not None:
            path, position, size, dropped = self.cut
            self._report(
                f"{path}: {size} bytes from {position} on were not whole records and were cut off; "
                f"{dropped} segment(s) after them set aside"
            )
        end_offset, expected = loaded.log_end_offset, unloaded.end_offset
        if expected is not None and end_offset < expected:
            if self.cut is None:
                self._report(f"{self.path}: the records from offset {end_offset} to {expected - 1} are missing")
            self.on_shortened()
        return loaded

    # Identity and offsets

    @property
    def path(self) -> str:
        """The log's directory."""
        return self._state.path

    @property
    def topic_id(self) -> bytes | None:
        """Topic id in the directory's `partition.metadata`; None without one."""
        if self._topic_id is None:
            self._topic_id = read_topic_id(self.filesystem, self.path)
        return self._topic_id

    def take_topic_id(self, topic_id: bytes | None) -> None:
        """Writes the topic id of a log whose directory has lost it (P-486). Raises StorageError."""
        if topic_id is not None and self.topic_id is None:
            write_topic_id(self.filesystem, self.path, topic_id)
            self._topic_id = topic_id

    @property
    def filesystem(self) -> FileSystem:
        """The file system that holds the log."""
        return self._open_files.filesystem

    @property
    def config(self) -> LogConfig:
        """The settings; may be set at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        if isinstance(self._state, LoadedLog):
            self._state.use_config(config)

    @property
    def is_bulk(self) -> bool:
        """True for a copy that is written in large pieces, so that no space is mapped ahead; may be set at any time."""
        return self._is_bulk

    @is_bulk.setter
    def is_bulk(self, is_bulk: bool) -> None:
        self._is_bulk = is_bulk
        if isinstance(self._state, LoadedLog):
            self._state.is_bulk = is_bulk

    @property
    def is_directory_due(self) -> bool:
        """True while the directory of a new log is still to be created."""
        return isinstance(self._state, UnloadedLog) and self._state.is_directory_due

    @property
    def is_loaded(self) -> bool:
        """True from the first use on. An unloaded log has no appends to flush."""
        return isinstance(self._state, LoadedLog)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        state = self._state
        if isinstance(state, LoadedLog):
            return state.segments.end_offset
        return state.end_offset if state.end_offset is not None else self._load(state).log_end_offset

    @property
    def recovery_point(self) -> int:
        """Offset below which all records are durable; recovery begins here."""
        return self._state.recovery_point

    @property
    def is_known_empty(self) -> bool:
        """True if the log is known to be empty, without reading its files."""
        state = self._state
        end_offset = state.end_offset if isinstance(state, UnloadedLog) else state.log_end_offset
        return end_offset == state.log_start_offset

    @property
    def has_hidden_start(self) -> bool:
        """True if the log start is above the first segment's base offset, so that only the checkpoint has it."""
        return self._state.has_hidden_start

    @property
    def size_bytes(self) -> int:
        """Bytes in the `.log` files."""
        if isinstance(self._state, UnloadedLog) and self._state.is_new:
            return 0
        return self.loaded.segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order of their offsets; the last one is active."""
        return tuple(self.loaded.segments.segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; the last segment is active."""
        return tuple(self.loaded.segments.base_offsets)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self.loaded.epochs

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent and transactional producers."""
        return self.loaded.history.state

    def last_stable_offset(self, high_watermark: int) -> int:
        """Last stable offset: read_committed consumers may read below it (P-68).

        It is the first offset of the oldest transaction whose marker is not below the high watermark, else the high
        watermark. For a transaction that began below the log start (DeleteRecords) it is the base offset of the batch
        that has the log start, and so may be below the log start, as in Kafka.
        """
        return self.loaded.last_stable_offset(high_watermark)

    # Appending

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        header: BatchHeader | None = None,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Checks batches with the checks of `origin`, gives them the next offsets, and writes them.

        Args:
            data: the batches. Timestamp type and greatest timestamp of a header that are not right for the topic are
                corrected in place if the buffer is writable, else in a copy.
            header: of a client's batch, from `ProducedRecords` after its checks; None: they are made here.
            verification: from `producers.start_verification`, for a transactional batch.
            transaction_version: that of the transaction which a marker ends.

        Raises:
            RecordError: a bad batch.
            OutOfOrderSequence, InvalidProducerEpoch, InvalidTransactionState, TransactionCoordinatorFenced,
                BatchTooLarge, StorageFull, StorageError: after any of them the log is as it was.
        """
        state = self._state
        if not isinstance(state, LoadedLog):
            state = self._load(state)
        return state.append_as_leader(data, leader_epoch, now_ms, origin, header, verification, transaction_version)

    def append_as_follower(self, data: Buffer, now_ms: int, leader_epoch: int = _EPOCH_MAX) -> AppendResult:
        """Appends batches that were fetched from a leader, with the leader's offsets and epochs. CRCs are checked.

        The append ends before an incomplete batch, and before a batch with an epoch above `leader_epoch`, which this
        leader cannot have written. Raises UnexpectedAppendOffset if the batches do not follow the log end, and
        CorruptRecord if there is no complete batch or one is damaged; then nothing was appended. After StorageFull and
        StorageError the batches that were appended are complete.
        """
        return self.loaded.append_as_follower(data, now_ms, leader_epoch)

    def roll(self, now_ms: int) -> None:
        """Starts a new segment at the log end, unless the active one is empty and starts there."""
        self.loaded.roll(now_ms)

    # Reading

    def read(self, offset: int, size_max: int, bound_offset: int, *, at_least_one: bool) -> LogRead:
        """Batches from the one that holds `offset`, up to `size_max` bytes and below `bound_offset` (P-60 to P-62).

        The range may end within a batch. If the first batch is larger than `size_max`, the result is this whole batch
        with `at_least_one`, else nothing. At or above the bound the result is nothing, and no error. Raises
        OffsetOutOfRange (P-65), StorageError.
        """
        state = self._state
        if not isinstance(state, LoadedLog):
            state = self._load(state)
        start_offset, end_offset = state.log_start_offset, state.segments.end_offset
        if offset < start_offset or offset > end_offset:
            raise OffsetOutOfRange(
                f"{self.topic}-{self.partition}: offset {offset} is not in {start_offset}..{end_offset}"
            )
        return state.segments.read(offset, size_max, bound_offset, at_least_one)

    def iter_batches(self, from_offset: int | None = None) -> Iterator[RecordBatch]:
        """Copies of all batches from the one that holds `from_offset` (default: log start) to the log end, for replay.

        Batches that are appended meanwhile may be included or not.
        """
        loaded = self.loaded
        yield from loaded.segments.batches(max(loaded.log_start_offset, from_offset or 0))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with this timestamp or a later one; None when there is none (P-83)."""
        loaded = self.loaded
        return loaded.segments.offset_for_timestamp(timestamp_ms, loaded.log_start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record that has the log's largest timestamp; None in an empty log (P-81)."""
        return self.loaded.segments.max_timestamp_offset()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known leader epoch at or below `epoch`, its end offset), (-1, -1) if unknown (P-87)."""
        loaded = self.loaded
        return loaded.epochs.end_offset_for(epoch, loaded.log_start_offset, loaded.log_end_offset)

    def aborted_transactions_in(self, offset: int, records: FileRange) -> list[AbortedTransaction]:
        """Aborted transactions in `records`, which were read at `offset`, for a read_committed consumer (P-67).

        The end of the records comes from the sparse index, so the result may contain a few later ones, as in Kafka.
        """
        return self.loaded.aborted_transactions_in(offset, records)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `from_offset` to below `upper_offset` (P-67)."""
        return self.loaded.segments.aborted_transactions(from_offset, upper_offset)

    # Deleting and truncating

    def advance_log_start(self, offset: int) -> bool:
        """Moves the log start to `offset` (DeleteRecords, P-150); `delete_old_segments` deletes whole segments below.

        False if the log start is there already or above. Raises OffsetOutOfRange above the log end.
        """
        return self.loaded.advance_log_start(offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Deletes segments by retention (P-164), and moves the log start. Returns the number of deleted segments.

        Files are renamed to `.deleted`; a later `delete_due_files` removes them. If all segments can be deleted, the
        active one is rolled first. Raises StorageError.
        """
        state = self._state
        has_one_segment = isinstance(state, UnloadedLog) or len(state.segments.base_offsets) == 1
        if has_one_segment and self.is_known_empty and not self.has_hidden_start:
            return 0
        return self.loaded.delete_old_segments(now_ms, high_watermark)

    def delete_due_files(self, now_ms: int) -> int:
        """Removes `.deleted` files whose `file.delete.delay.ms` has passed; returns their number.

        Renames and deletions that failed before are tried again. Raises StorageError.
        """
        return self._state.delete_due_files(now_ms)

    def remove_expired_producers(self, now_ms: int) -> None:
        """Removes the state of producers that have been idle for `producer.id.expiration.ms` (P-56)."""
        self._state.remove_expired_producers(now_ms)

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Removes all batches from the one with `offset` on. False if the log ends there or below.

        Raises StorageError; the log must then not be used before a truncation to this offset or below has succeeded.
        """
        state = self.loaded
        bases = state.segments.base_offsets
        if offset < bases[-1]:
            # The segment with `offset` becomes the active one; records appended to it later have never been cleaned.
            self._limit_clean_part(offset if offset < bases[0] else bases[bisect_right(bases, offset) - 1])
        return state.truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Removes all batches; the next record gets `offset`. Raises StorageError as `truncate_to` does."""
        state = self.loaded
        self._limit_clean_part(offset)
        state.truncate_fully_and_start_at(offset, now_ms)

    def _limit_clean_part(self, offset: int) -> None:
        # Otherwise new records would count as clean ones: they would hide no earlier record of their keys, and after
        # the removal of a tombstone among them an earlier value would be back.
        if self._config.is_compacted:
            self.on_clean_part_cut(self, offset)
            self.clean_limit = min(self.clean_limit, offset)

    # Durability and the end

    @property
    def is_durable(self) -> bool:
        """True if all records are durable, so that the next start need not recover the log."""
        return self._state.is_durable

    @property
    def has_unflushed_segments(self) -> bool:
        """True if sealed segments or their indexes are not durable yet."""
        return self._state.has_unflushed_segments

    @property
    def on_point_lowered(self) -> Callable[[], None]:
        """Callback that writes the checkpoint after the recovery point became lower. Raises StorageError."""
        return self._on_point_lowered

    @on_point_lowered.setter
    def on_point_lowered(self, listener: Callable[[], None]) -> None:
        self._on_point_lowered = listener
        if isinstance(self._state, LoadedLog):
            self._state.durability.on_point_lowered = listener

    def begin_flush(self, *, include_active: bool = True) -> FlushWork | None:
        """Begins a flush; None if there is nothing to do. `FlushWork` describes the next steps.

        Of the active segment only the log file is synced, because recovery rebuilds its indexes.
        """
        return self._state.begin_flush(include_active=include_active)

    def flush(self) -> None:
        """Makes the whole log durable at once. Raises StorageError."""
        self._state.flush()

    def close(self) -> None:
        """Writes the files of a clean stop (producer snapshot, complete indexes), durably, and closes all files.

        The log can still be used; it then opens its files again.
        """
        self._state.close()

    def write_end(self, *, without_empty_snapshot: bool = False) -> bool:
        """Writes the files of a clean stop without making them durable; True if there are any. Raises StorageError.

        `without_empty_snapshot` leaves out the snapshot of a log that never had a producer, for a stop with many logs:
        a log without any snapshot after a clean stop has no producers, in Kafka as well, which then writes an empty
        one.
        """
        return self._state.write_end(without_empty_snapshot=without_empty_snapshot)

    def note_synced(self) -> None:
        """Notes that all files and names are durable as they are now. The doubt after a failed sync remains."""
        self._state.note_synced()

    def close_files(self) -> None:
        """Closes the files without writing anything."""
        self._state.close_files()

    def move(self, path: str) -> None:
        """Renames the directory, for example to mark it for deletion; open ranges stay valid. Raises StorageError."""
        self._state.rename_directory(path)
