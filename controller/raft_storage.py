"""RaftStorage: the files of a replica of the metadata log, in `<data directory>/__cluster_metadata-0`.

These are the log, `quorum-state` and snapshots. Everything that `persist` writes is durable when it returns.

The newest two snapshots are kept, and the log from the end of the older one: if the newest cannot be read, the older
one and the log after it are complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from pykbroker.controller.control_records import control_of, records_of
from pykbroker.controller.quorum_state_file import read_quorum_state, write_quorum_state
from pykbroker.controller.raft.log_view import BEGINNING, LogView, OffsetAndEpoch
from pykbroker.controller.raft.messages import Entries
from pykbroker.controller.raft.output import Output, QuorumState
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.controller.snapshot_file import (
    Snapshot,
    list_snapshots,
    parse_snapshot,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from pykbroker.controller.space_reserve import FILE_NAME as RESERVE_FILE
from pykbroker.controller.space_reserve import SpaceReserve
from pykbroker.logstore.errors import CorruptFile, InconsistentDirectory, StorageFull
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directory import parse_log_name
from pykbroker.logstore.log_loader import base_offset_of
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.logstore.segment import SNAPSHOT_SUFFIX
from pykbroker.logstore.unloaded_log import LastStop
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordBatch, batch_of_frames, build_batch, iter_batches
from pykbroker.protocol.uuids import METADATA_TOPIC_ID

logger = logging.getLogger(__name__)

R = TypeVar("R")

TOPIC = "__cluster_metadata"
HOW_TO_REPAIR = f"restore {TOPIC}-0 from a backup, or begin with another data directory"
SNAPSHOTS_KEPT = 2


class StorageSettings(NamedTuple):
    """Kafka's settings `metadata.log.*`. `reserve_bytes` is the size of the SpaceReserve."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    reserve_bytes: int = 0


class CommittedBatch(NamedTuple):
    """A batch of the log.

    `values` are its encoded metadata records, each read from the batch when the iteration reaches it; empty for a
    control batch.
    """

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    values: Iterable[bytes]


class RaftStorage:
    """The files of one replica. Made by `open`, ended by `close`.

    Attributes:
        state: the quorum state in the file.
        snapshots: the snapshots on disk, oldest first.
        reserve: space for the log and the quorum state when the disk is full.
    """

    def __init__(self, directory: str, log: PartitionLog, filesystem: FileSystem, reserve: SpaceReserve) -> None:
        """Use `open`, which prepares these files."""
        self.reserve = reserve
        self._directory = directory
        self._log = log
        self._filesystem = filesystem
        self.state = read_quorum_state(filesystem, directory) or QuorumState()
        self._unwritten_state: QuorumState | None = None
        self.snapshots: list[OffsetAndEpoch] = []
        self._start = BEGINNING

    @classmethod
    def open(
        cls,
        data_directory: str,
        *,
        filesystem: FileSystem,
        settings: StorageSettings,
        now_ms: int,
        is_clean: bool = False,
        is_sole_voter: bool = False,
    ) -> RaftStorage:
        """Opens or creates the directory.

        Args:
            is_clean: the last stop was clean, so the log need not be scanned.
            is_sole_voter: this log was never truncated, and no other node has it: a log that has become shorter is
                refused. One of several voters may lose uncommitted records, and fetches the others again.

        Raises:
            CorruptFile, StorageError: the files cannot be used; nothing was changed.
            InconsistentDirectory: records are missing at the end of the log.
        """
        directory = f"{data_directory}/{TOPIC}-0"
        is_new = not filesystem.exists(directory)
        snapshots = [] if is_new else list_snapshots(filesystem, directory)
        # With two snapshots the log starts at the end of the older one, even if a crash prevented the deletion.
        start = snapshots[-SNAPSHOTS_KEPT] if len(snapshots) >= SNAPSHOTS_KEPT else BEGINNING
        last_stop = LastStop(is_clean, log_start_offset=start.offset)
        evidence = _read_evidence(filesystem, data_directory, directory) if is_sole_voter else _Evidence([], 0)
        log = _load_log(directory, filesystem, settings, last_stop, now_ms)
        if is_new:
            filesystem.sync_directory(data_directory)
        _check_end(filesystem, directory, evidence, max([log.log_end_offset, *(found.offset for found in snapshots)]))
        reserve = SpaceReserve(filesystem, f"{data_directory}/{RESERVE_FILE}", settings.reserve_bytes)
        storage = cls(directory, log, filesystem, reserve)
        if snapshots and snapshots[-1].offset > log.log_end_offset:
            # The process ended after a leader's snapshot was written, and before the log was emptied.
            log.truncate_fully_and_start_at(snapshots[-1].offset, now_ms)
        storage.snapshots = snapshots
        storage._start = next((found for found in snapshots if found.offset == log.log_start_offset), start)
        # A process that ended while a leader's snapshot was installed has left older ones.
        while storage.snapshots and storage.snapshots[0].offset < storage._start.offset:
            storage._remove_snapshot(storage.snapshots.pop(0))
        return storage

    def close(self) -> None:
        """Writes the files of a clean stop and closes them. Raises StorageError; the files are closed even then."""
        try:
            self._with_reserve(self._log.close)
        finally:
            self._log.close_files()
        for name, is_directory in self._filesystem.list(self._directory):
            if not is_directory and not name.endswith(".log"):
                self._filesystem.sync_file(f"{self._directory}/{name}")

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in the log, without snapshots."""
        return self._log.size_bytes

    def log_view(self) -> LogView:
        """Offsets and epochs of the log, for RaftCore."""
        return LogView(self._log.leader_epochs.entries, self._log.log_end_offset, self._start)

    def control_records(self) -> Iterator[tuple[int, ControlRecord]]:
        """(offset, record) of the control records in snapshots and log.

        Raises:
            CorruptFile: the log cannot be read.
        """
        for snapshot in self.snapshots:
            try:
                content = read_snapshot(self._filesystem, self._directory, snapshot)
            except CorruptFile:
                continue  # `newest_snapshot` raises it where the snapshot is needed
            for record in content.control:
                yield snapshot.offset - 1, record
        for batch in self._log.iter_batches(self._log.log_start_offset):
            if batch.is_control:
                for offset, found in enumerate(control_of(batch), batch.base_offset):
                    if found is not None:
                        yield offset, found

    def persist(self, output: Output, now_ms: int, voters: VoterSet, kraft_version: int = 0) -> int:
        """Persists an output: quorum state, truncation, entries. Returns the end offset of the durable log.

        The quorum state contains the voters while kraft.version is 0. On a full disk the reserve is used. A quorum
        state that could not be written is kept, because the state machine has it already: the next call writes it
        first.

        Raises:
            StorageError: a file could not be written. The log then has its old length or is longer; see `undo_append`.
        """
        if output.quorum_state is not None:
            self._unwritten_state = output.quorum_state
        return self._with_reserve(lambda: self._persist(output, now_ms, voters, kraft_version))

    @property
    def has_unwritten_state(self) -> bool:
        """True if a vote or an epoch is still to be written; no message may be sent before."""
        return self._unwritten_state is not None

    def _with_reserve(self, write: Callable[[], R]) -> R:
        """Calls `write`, which may be repeated as a whole; frees the reserve step by step while the disk is full."""
        while True:
            try:
                return write()
            except StorageFull:
                if not self.reserve.release():
                    raise

    def _persist(self, output: Output, now_ms: int, voters: VoterSet, kraft_version: int) -> int:
        if self._unwritten_state is not None:
            write_quorum_state(self._filesystem, self._directory, self._unwritten_state, voters, kraft_version)
            self.state, self._unwritten_state = self._unwritten_state, None
        if output.truncate_to is not None:
            self._log.truncate_to(output.truncate_to, now_ms)
        if output.entries:
            if self._log.log_end_offset > output.entries[0].base_offset:
                # The remains of a failed append are still to be cut off; another epoch may have begun since.
                self._log.truncate_to(output.entries[0].base_offset, now_ms)
            self._append(output.entries, now_ms)
            self.sync_records()
        return self._log.log_end_offset

    def sync_records(self) -> None:
        """Makes the records durable, by one sync for each commit.

        The other files are not synced: an unclean start rebuilds indexes and epochs from the records.
        """
        work = self._log.begin_flush()
        if work is not None:
            try:
                work.run(with_side_files=False)
            finally:
                work.finish()

    def undo_append(self, end_offset: int, now_ms: int) -> None:
        """Cuts off the records of an append that has failed, for example at the sync."""
        self._with_reserve(lambda: self._log.truncate_to(end_offset, now_ms))

    def _append(self, entries: Sequence[Entries], now_ms: int) -> None:
        """Appends entries, with one write for all consecutive batches of one epoch."""
        assert entries[0].base_offset == self._log.log_end_offset, (entries[0], self._log.log_end_offset)
        fetched = [batch.payload for batch in entries if isinstance(batch.payload, bytes)]
        if fetched:
            self._log.append_as_follower(b"".join(fetched), now_ms)
            return
        for epoch, group in groupby(entries, key=lambda batch: batch.epoch):
            data = b"".join(self._batch(batch, now_ms) for batch in group)
            self._log.append_as_leader(data, epoch, now_ms, AppendOrigin.RAFT)

    def _batch(self, entries: Entries, now_ms: int) -> bytes:
        if entries.control:
            return build_batch(records_of(entries.control, now_ms), is_control=True)
        return batch_of_frames(entries.payload, now_ms)

    # Reading

    def read(self, from_offset: int, to_offset: int) -> Iterator[CommittedBatch]:
        """The batches with offsets from `from_offset` to below `to_offset`, both at the edge of a batch.

        Raises:
            CorruptFile: a batch is missing or damaged.
        """
        expected = from_offset
        for batch in self._log.iter_batches(from_offset):
            if expected >= to_offset:
                return
            if batch.base_offset != expected or not batch.verify_crc():
                break
            values = () if batch.is_control else (record.value or b"" for record in batch.records())
            expected = batch.next_offset
            yield CommittedBatch(
                batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, values
            )
        if expected < to_offset:
            raise CorruptFile(self._directory, f"no valid record batch at offset {expected}; {HOW_TO_REPAIR}")

    def read_entries(self, from_offset: int, size_max: int) -> list[Entries]:
        """Batches for a follower from `from_offset` on, as in the log: at least one, about `size_max` bytes."""
        read = self._log.read(from_offset, size_max, self._log.log_end_offset, at_least_one=True)
        if read.range is None:
            return []
        try:
            data = read.range.read()
        finally:
            read.range.release()
        return [_entries_of(batch) for batch in iter_batches(data) if batch.base_offset >= from_offset]

    # Snapshots

    def newest_snapshot(self) -> tuple[OffsetAndEpoch, Snapshot] | None:
        """The newest snapshot that can be read, None if there is none and the log has everything.

        Raises:
            CorruptFile: none can be read, and the log does not start at offset 0.
        """
        failure: CorruptFile | None = None
        for snapshot in reversed(self.snapshots):
            try:
                return snapshot, read_snapshot(self._filesystem, self._directory, snapshot)
            except CorruptFile as error:
                failure = failure or error
        if failure is not None and self._log.log_start_offset > 0:
            raise failure
        return None

    def roll(self, now_ms: int) -> None:
        """Starts a new segment, so that the log before a snapshot at its end can be deleted in whole segments."""
        self._log.roll(now_ms)

    def write_snapshot(self, snapshot: OffsetAndEpoch, content: bytes) -> None:
        """Writes a snapshot file and nothing else, so it may be called in another thread."""
        write_snapshot(self._filesystem, self._directory, snapshot, content)

    def snapshot_slice(self, snapshot: OffsetAndEpoch, position: int, size_max: int) -> tuple[int, bytes] | None:
        """Size of a snapshot file, and its bytes from a position on; None if there is no such file."""
        if snapshot not in self.snapshots:
            return None
        path = f"{self._directory}/{snapshot_name(snapshot)}"
        descriptor = self._filesystem.open(path)
        try:
            return self._filesystem.file_size(path), self._filesystem.read(descriptor, size_max, position)
        finally:
            self._filesystem.close(descriptor)

    def install_snapshot(self, snapshot: OffsetAndEpoch, content: bytes, now_ms: int) -> Snapshot:
        """Replaces log and snapshots by a leader's snapshot file.

        The log is then empty and starts at the snapshot's end.

        Raises:
            CorruptFile: the bytes are not a complete snapshot; nothing has changed.
            StorageError: the snapshot could not be written.
        """
        path = f"{self._directory}/{snapshot_name(snapshot)}"
        found = parse_snapshot(path, content)
        self._filesystem.write_file(path, content)
        self._log.truncate_fully_and_start_at(snapshot.offset, now_ms)
        for old in self.snapshots:
            if old != snapshot:
                self._remove_snapshot(old)
        self.snapshots = [snapshot]
        self._start = snapshot
        return found

    def _remove_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self._filesystem.remove(f"{self._directory}/{snapshot_name(snapshot)}")

    def truncate_behind(self, snapshot: OffsetAndEpoch, now_ms: int) -> OffsetAndEpoch:
        """Adds a new snapshot, and deletes all older snapshots but one and the log before that one.

        A snapshot that is older than the newest one is removed instead: a leader's snapshot was installed while a
        thread wrote this one.

        Returns the snapshot at whose end the log starts now, (0, 0) without one.
        """
        if self.snapshots and snapshot.offset <= self.snapshots[-1].offset:
            if snapshot not in self.snapshots:
                self._remove_snapshot(snapshot)
            return self._start
        self.snapshots.append(snapshot)
        while len(self.snapshots) > SNAPSHOTS_KEPT:
            self._remove_snapshot(self.snapshots.pop(0))
        if len(self.snapshots) < SNAPSHOTS_KEPT:
            return self._start
        oldest = self._start = self.snapshots[0]
        self._log.advance_log_start(oldest.offset)
        self._log.delete_old_segments(now_ms, oldest.offset)
        self._log.delete_due_files(now_ms)
        return oldest


def _load_log(
    directory: str, filesystem: FileSystem, settings: StorageSettings, last_stop: LastStop, now_ms: int
) -> PartitionLog:
    """Opens the metadata log, creates it if it is missing, and loads it."""
    config = LogConfig(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        cleanup_policy=frozenset({"delete"}),
        retention_ms=-1,
        retention_bytes=-1,
        file_delete_delay_ms=0,
    )
    log = PartitionLog.open(
        directory,
        TOPIC,
        0,
        config,
        open_files=OpenFiles(filesystem),
        now_ms=now_ms,
        last_stop=last_stop,
        topic_id=METADATA_TOPIC_ID,
        report=logger.warning,
    )
    _ = log.loaded  # a damaged log is found now, and not at its first use
    return log


class _Evidence(NamedTuple):
    """Content of side files that prove an earlier end of the log, and the largest such end offset."""

    files: list[tuple[str, bytes]]
    end_offset: int


def _read_evidence(filesystem: FileSystem, data_directory: str, directory: str) -> _Evidence:
    """Reads the earlier end of the log from files other than the log."""
    entries = filesystem.list(directory) if filesystem.exists(directory) else []
    names = [entry.name for entry in entries if not entry.is_directory]
    files = [
        (path, filesystem.read_file(path) or b"")
        for path in (f"{directory}/{name}" for name in names if name.endswith(SNAPSHOT_SUFFIX) or name == EPOCHS_FILE)
    ]
    ends = [base_offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    with suppress(CorruptFile):  # it is rebuilt from the log
        ends += [start_offset for _, start_offset in LeaderEpochs(filesystem, f"{directory}/{EPOCHS_FILE}").entries]
    if any(_is_partition(entry.name) for entry in filesystem.list(data_directory)):
        # A node with partitions has a BrokerRegistration, after the LeaderChange of the leader.
        ends.append(2)
    return _Evidence(files, max(ends, default=0))


def _is_partition(name: str) -> bool:
    """True for the directory of a partition that is no topic of the controller."""
    found = parse_log_name(name)
    return found is not None and not found.mark and found.topic != TOPIC


def _check_end(filesystem: FileSystem, directory: str, evidence: _Evidence, end_offset: int) -> None:
    """Refuses a log that ends too early, and restores the side files that show it.

    Raises:
        InconsistentDirectory: records are missing.
    """
    if end_offset >= evidence.end_offset:
        return
    for path, content in evidence.files:
        filesystem.write_file(path, content)
    raise InconsistentDirectory(
        directory,
        f"its records end at offset {end_offset} and once reached {evidence.end_offset} or more: a .log file in it is "
        f"missing or was cut; {HOW_TO_REPAIR}",
    )


def _entries_of(batch: RecordBatch) -> Entries:
    count = batch.last_offset_delta + 1
    return Entries(batch.base_offset, batch.partition_leader_epoch, count, batch.to_bytes())
