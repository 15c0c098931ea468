"""One partition's log: ordered segments, of which the last is written.

Knows record batches and offsets, not requests, replicas or the high watermark; where a reader may read to, and up to
where segments may be deleted, comes as an argument. Synchronous; one thread uses it (`begin_flush` says what may run
elsewhere).

Nothing is read or opened before the first use: until then the log is an `UnloadedLog`, from then on a `LoadedLog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pykbroker.logstore.aborted_transactions import AbortedTransaction
from pykbroker.logstore.errors import OffsetOutOfRange
from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import Buffer, FileSystem, OsFileSystem
from pykbroker.logstore.flush import FlushWork
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.listeners import Report, no_report, nobody_listens
from pykbroker.logstore.loaded_log import AppendOrigin, AppendResult, LoadedLog, append_policy
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import Cut
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import read_topic_id
from pykbroker.logstore.producer_state import ProducerState, Verification
from pykbroker.logstore.segment import SealedSegment, Segment, TimestampOffset
from pykbroker.logstore.segment_list import LogRead
from pykbroker.logstore.unloaded_log import UnloadedLog
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.layout import BatchHeader

__all__ = ["AppendOrigin", "AppendResult", "LogRead", "PartitionLog", "append_policy"]

_EPOCH_MAX: Final = 0x7FFFFFFF


class PartitionLog:
    """The log of one partition. Build it with `open`.

    Every method that needs the records may raise what loading them raises: StorageError, CorruptFile, CorruptSegment.

    Attributes:
        topic, partition: whose log it is.
        cut: what recovery took away when the log was loaded, None for nothing but unused space.
        on_shortened: called when the log turns out to end before what `log_end_offset` has said.
    """

    __slots__ = (
        "_config",
        "_on_point_lowered",
        "_open_files",
        "_report",
        "_state",
        "_topic_id",
        "cut",
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
        self.on_shortened: Callable[[], None] = nobody_listens
        self._on_point_lowered: Callable[[], None] = nobody_listens
        self._config = config
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
        filesystem: FileSystem | None = None,
        open_files: OpenFiles | None = None,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_clean: bool = False,
        topic_id: bytes | None = None,
        end_offset: int | None = None,
        report: Report | None = None,
        make_directory: bool = True,
    ) -> PartitionLog:
        """Open the log in the directory `path`, which is made when missing.

        After a clean stop (`is_clean`) nothing is read until the first use, and then nothing is scanned; `end_offset`,
        when the caller knows it (a clean stop leaves it as the recovery point), is answered without reading. Otherwise
        the log is recovered now. `topic_id` is noted in a new directory. Logs of one broker share `open_files`; a log
        that stands alone may give just the `filesystem`. What is damaged or missing, seen now or later, is told to
        `report`. Without `make_directory` the caller knows that there is no directory; the method of that name makes
        it, or the first use that needs it. Raises StorageError, CorruptFile.
        """
        if open_files is None:
            open_files = OpenFiles(filesystem or OsFileSystem())
        has_directory = make_directory and open_files.filesystem.exists(path)
        state = UnloadedLog(
            path,
            open_files,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            is_clean=is_clean,
            has_directory=has_directory,
        )
        log = cls(topic, partition, config, open_files, state, topic_id, report or no_report)
        if make_directory:
            log.make_directory()
        if not state.is_clean:
            log._load(state)
        return log

    def make_directory(self) -> None:
        """Make the directory of a new log, if that was not done yet. Raises StorageError."""
        if isinstance(self._state, UnloadedLog):
            self._state.make_directory(self._topic_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"

    def _loaded(self) -> LoadedLog:
        """The log in use; the first use loads it."""
        state = self._state
        return state if isinstance(state, LoadedLog) else self._load(state)

    def _load(self, unloaded: UnloadedLog) -> LoadedLog:
        unloaded.make_directory(self._topic_id)
        name = f"{self.topic}-{self.partition}"
        loaded, self.cut = unloaded.load(name, self._config, self._report, self._on_point_lowered)
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

    # What it is and where it stands

    @property
    def path(self) -> str:
        """The log's directory."""
        return self._state.path

    @property
    def topic_id(self) -> bytes | None:
        """The topic id noted in the directory, None when none was."""
        if self._topic_id is None:
            self._topic_id = read_topic_id(self.filesystem, self.path)
        return self._topic_id

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
            self._state.config = config

    @property
    def is_directory_due(self) -> bool:
        """True while the directory of a new log is still to be made."""
        return isinstance(self._state, UnloadedLog) and self._state.is_directory_due

    @property
    def is_loaded(self) -> bool:
        """True once the log was used. One that was not has no appends to flush."""
        return isinstance(self._state, LoadedLog)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        state = self._state
        if isinstance(state, LoadedLog):
            return state.segments.end_offset
        return state.end_offset if state.end_offset is not None else self._load(state).log_end_offset

    @property
    def recovery_point(self) -> int:
        """Offset up to which the log is known to be durable; recovery begins here."""
        return self._state.recovery_point

    @property
    def is_known_empty(self) -> bool:
        """True if it takes no reading to know that there is no record."""
        state = self._state
        end_offset = state.end_offset if isinstance(state, UnloadedLog) else state.log_end_offset
        return end_offset == state.log_start_offset

    @property
    def has_hidden_start(self) -> bool:
        """True if the log start lies above the first segment's base offset, so that the files do not tell it."""
        return self._state.has_hidden_start

    @property
    def size_bytes(self) -> int:
        """Bytes in the `.log` files."""
        if isinstance(self._state, UnloadedLog) and self._state.is_new:
            return 0
        return self._loaded().segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, ascending; the last one is being written."""
        return tuple(self._loaded().segments.segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; the last one is being written."""
        return tuple(self._loaded().segments.base_offsets)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last append, -1 when unknown."""
        return self._loaded().epochs.latest_epoch

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epoch cache."""
        return self._loaded().epochs

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent and transactional producers."""
        return self._loaded().history.state

    @property
    def first_unstable_offset(self) -> int:
        """First offset of the oldest open transaction, -1 when there is none (P-68)."""
        return self._loaded().history.state.first_unstable_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """End of what read_committed consumers may read, given the end of what all may read (P-68).

        A transaction holds readers back until its marker lies below the high watermark. One that began before the log
        start (DeleteRecords) holds them back there.
        """
        return self._loaded().last_stable_offset(high_watermark)

    # Appending

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """The verification that a transactional batch brings to its append once the coordinator has agreed (P-135).

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
        header: BatchHeader | None = None,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Check batches as `origin` asks, give them the next offsets, and write them.

        Args:
            data: is not changed unless LogAppendTime asks for it and it is writable.
            header: of a client's batch, from `ProducedRecords` after its checks; None: they are made here.
            verification: from `start_verification`, for a transactional batch.
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
        """Append batches fetched from a leader as they are: offsets and epochs are the leader's, CRCs are checked.

        A batch that is not whole ends them, as one of an epoch above `leader_epoch` does, which that leader cannot have
        written. Raises UnexpectedAppendOffset when they do not come after the log end, CorruptRecord when there is not
        one whole batch or one is damaged: then nothing was appended. StorageFull, StorageError: what was appended
        before is complete.
        """
        return self._loaded().append_as_follower(data, now_ms, leader_epoch)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a leader epoch begins at the log end, whether or not anything is ever appended in it (KIP-279).

        Raises StorageError.
        """
        self._loaded().begin_leader_epoch(leader_epoch)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty and begins there."""
        self._loaded().roll(now_ms)

    # Reading

    def read(self, offset: int, size_max: int, bound_offset: int, *, at_least_one: bool) -> LogRead:
        """Batches from the one that holds `offset`, up to `size_max` bytes and below `bound_offset` (P-60 to P-62).

        The range may end within a batch. When its first batch is larger than `size_max`, it is that batch whole if
        `at_least_one`, else nothing. At or above the bound: nothing, no error. Raises OffsetOutOfRange (P-65),
        StorageError.
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

    def size_between(self, offset: int, end_offset: int) -> int | None:
        """Bytes from the batch that holds `offset` up to `end_offset`, which begins a batch or is the log end.

        None when they lie in more than one segment.
        """
        return self._loaded().segments.size_between(offset, end_offset)

    def iter_batches(self, from_offset: int | None = None) -> Iterator[RecordBatch]:
        """Copies of all batches from the one that holds `from_offset` (default: log start) to the log end, for replay.

        Batches appended meanwhile may be seen or not.
        """
        loaded = self._loaded()
        yield from loaded.segments.batches(max(loaded.log_start_offset, from_offset or 0))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with this timestamp or a later one; None when there is none (P-83)."""
        loaded = self._loaded()
        return loaded.segments.offset_for_timestamp(timestamp_ms, loaded.log_start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record that has the log's largest timestamp; None in an empty log (P-81)."""
        return self._loaded().segments.max_timestamp_offset()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known leader epoch at or below `epoch`, where it ends), (-1, -1) when unknown (P-87)."""
        loaded = self._loaded()
        return loaded.epochs.end_offset_for(epoch, loaded.log_end_offset)

    def aborted_transactions_in(self, offset: int, records: FileRange) -> list[AbortedTransaction]:
        """Aborted transactions that a reader of `records`, read at `offset`, must know of (P-67).

        The end of the records is found in the sparse index, so a few more than these may be named, as by Kafka.
        """
        return self._loaded().aborted_transactions_in(offset, records)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `from_offset` to below `upper_offset` (P-67)."""
        return self._loaded().segments.aborted_transactions(from_offset, upper_offset)

    # Deleting and truncating

    def advance_log_start(self, offset: int) -> bool:
        """Hide everything below `offset` (DeleteRecords, P-150); whole segments below go with `delete_old_segments`.

        False when the log start is there or beyond. Raises OffsetOutOfRange above the log end.
        """
        return self._loaded().advance_log_start(offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention allows (P-164); the log start moves along. Returns the number of segments.

        Files are renamed to `.deleted` and go with a later `delete_due_files`. When everything may go, the active
        segment is rolled first. Raises StorageError.
        """
        state = self._state
        has_one_segment = isinstance(state, UnloadedLog) or len(state.segments.base_offsets) == 1
        if has_one_segment and self.is_known_empty and not self.has_hidden_start:
            return 0
        return self._loaded().delete_old_segments(now_ms, high_watermark)

    def delete_due_files(self, now_ms: int) -> int:
        """Remove `.deleted` files whose `file.delete.delay.ms` has passed; returns how many.

        What the file system refused before is tried again. Raises StorageError.
        """
        return self._state.delete_due_files(now_ms)

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that have been idle for `producer.id.expiration.ms` (P-56)."""
        self._state.remove_expired_producers(now_ms)

    def replace_segments(self, cleaned: SealedSegment, olds: Sequence[Segment], now_ms: int) -> None:
        """Put a `.cleaned` segment in place of neighbouring sealed ones. A crash leaves all old ones or the new one.

        Raises StorageError. Then the old segments are still in the log; or the new one is, which waits for its place,
        see `finish_swaps`.
        """
        self._loaded().replace_segments(cleaned, olds, now_ms)

    def finish_swaps(self, now_ms: int) -> None:
        """Give cleaned segments the names of those that they replace. Raises StorageError; then it can be tried again.

        What was tried half may not be compacted again before.
        """
        self._loaded().finish_swaps(now_ms)

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything from `offset` on; a batch that holds it goes whole. False when the log ends there.

        Raises StorageError; the log must not be used then before a truncation to this offset or below has succeeded.
        """
        return self._loaded().truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything; the next record gets `offset`. Raises StorageError as `truncate_to` does."""
        self._loaded().truncate_fully_and_start_at(offset, now_ms)

    # Durability and the end

    @property
    def is_durable(self) -> bool:
        """True if everything was made durable, so that a start need not look at it."""
        return self._state.is_durable

    @property
    def has_unflushed_segments(self) -> bool:
        """True if sealed segments are not durable yet, their indexes among them."""
        return self._state.has_unflushed_segments

    @property
    def on_point_lowered(self) -> Callable[[], None]:
        """Called when the recovery point is lower than it was, to write it down. Raises StorageError if that fails."""
        return self._on_point_lowered

    @on_point_lowered.setter
    def on_point_lowered(self, listener: Callable[[], None]) -> None:
        self._on_point_lowered = listener
        if isinstance(self._state, LoadedLog):
            self._state.durability.on_point_lowered = listener

    def begin_flush(self, *, include_active: bool = True) -> FlushWork | None:
        """Start to make the log durable; None when there is nothing to do. See FlushWork for what follows.

        Of the active segment only the log file is synced: recovery makes its indexes anew.
        """
        return self._state.begin_flush(include_active=include_active)

    def flush(self) -> None:
        """Make everything durable, here and now. Raises StorageError."""
        self._state.flush()

    def close(self) -> None:
        """Write what a clean stop leaves (producer snapshot, indexes to the end), durably, and close the files.

        The log may be used again afterwards; it then opens its files anew.
        """
        self._state.close()

    def write_end(self, *, without_empty_snapshot: bool = False) -> bool:
        """Write what a clean stop leaves, without making it durable; True if there are files. Raises StorageError.

        A stop with many logs leaves out the snapshots of those that never had a producer: after a clean stop no
        snapshot at all means no producer, to Kafka as well, which then makes empty ones.
        """
        return self._state.write_end(without_empty_snapshot=without_empty_snapshot)

    def note_synced(self) -> None:
        """All files of the log were made durable as they are now, and their names. What a failed sync has put in doubt
        stays so."""
        self._state.note_synced()

    def close_files(self) -> None:
        """Close the files without writing anything."""
        self._state.close_files()

    def move(self, path: str) -> None:
        """Rename the directory, for instance to mark it for deletion; open ranges stay valid. Raises StorageError."""
        self._state.rename_directory(path)
