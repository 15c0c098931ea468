"""State of a log's producers, and the snapshots that keep it over a restart (P-57)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.producer_snapshot import decode_snapshot, encode_snapshot
from pykbroker.logstore.producer_state import ProducerState
from pykbroker.logstore.recovery import LastBatches, replay_producers
from pykbroker.logstore.segment import DELETED_SUFFIX, Segment, producer_snapshot_path

NOT_RECOVERED: Final = 1 << 63
"""Value of `recovered_from` without a recovery: an offset above all others, as no segment was scanned."""


class ProducerHistory:
    """Producer state at the log end, and the snapshots of earlier states.

    Attributes:
        state: the state at the log end.
        snapshots: end offsets of the snapshots on disk, ascending.
    """

    __slots__ = ("_directory", "_filesystem", "_known_none_to", "_loaded_ms", "snapshots", "state")

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        snapshots: list[int],
        *,
        known_none_to: int,
        now_ms: int,
    ) -> None:
        """Makes the history of one log.

        Args:
            filesystem: the disk.
            directory: the log's directory.
            snapshots: offsets of the snapshots in it.
            known_none_to: offset up to which there are certainly no producers, even without a snapshot.
            now_ms: time at which the idle time of a snapshot's producers is computed.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._known_none_to = known_none_to
        self._loaded_ms = now_ms
        self.snapshots = snapshots
        self.state = ProducerState()

    def load(
        self,
        segments: Sequence[Segment],
        log_start_offset: int,
        end_offset: int,
        expiration_ms: int,
        recovered_from: int = NOT_RECOVERED,
        last_batches: Mapping[int, LastBatches | None] | None = None,
    ) -> None:
        """Computes the state at `end_offset` from the newest usable snapshot and the batches after it.

        Producers that were idle for `expiration_ms` when the log was opened are left out: those of the snapshot, and
        after a recovery all of them. Snapshots of earlier stops and unusable ones are deleted. After a recovery those
        above `recovered_from`, the base offset of the first scanned segment, are unusable; new ones are written at the
        base offsets of the segments. Raises StorageError.

        `last_batches` has the last batches of each scanned segment's producers, by base offset.
        """
        # The new state replaces the old one only when it is complete.
        state = ProducerState()
        # Batches that are appended after a truncation may have producers.
        self._known_none_to = min(self._known_none_to, end_offset)
        state.end_offset = max(log_start_offset, self._known_none_to)
        for offset in self.snapshots[:]:
            if offset > end_offset or offset <= log_start_offset or offset > recovered_from:
                self._delete_snapshot(offset)
        self._drop_strays({segment.base_offset for segment in segments})
        while self.snapshots:
            offset = self.snapshots[-1]
            path = self._path_of(offset)
            try:
                state.load(decode_snapshot(self._filesystem.read_file(path) or b"", path), offset)
            except CorruptFile:
                self._delete_snapshot(offset)
            else:
                state.remove_expired(self._loaded_ms, expiration_ms)
                break
        for segment in segments:
            if segment.base_offset > recovered_from:
                state.end_offset = segment.base_offset
                self._write(state)
            replay_producers(
                state,
                segment,
                end_offset,
                is_recovered=segment.base_offset >= recovered_from,
                last_batches=last_batches.get(segment.base_offset) if last_batches else None,
            )
        if recovered_from != NOT_RECOVERED:
            # Kafka writes the recovered producers to a snapshot, and leaves out idle ones when it reads that.
            state.remove_expired(self._loaded_ms, expiration_ms)
        state.end_offset = end_offset
        self.state = state

    def _drop_strays(self, base_offsets: set[int]) -> None:
        """Deletes snapshots that belong to no segment, those of earlier stops; not the last one above all segments.

        As `removeStraySnapshots` of Kafka's ProducerStateManager.
        """
        strays = [offset for offset in self.snapshots if offset not in base_offsets]
        if strays and strays[-1] > max(base_offsets, default=-1):
            strays.pop()
        for offset in strays:
            self._delete_snapshot(offset)

    def clear(self, end_offset: int) -> None:
        """Removes all producers; the log is empty and ends at `end_offset`. Raises StorageError."""
        for offset in self.snapshots:
            self._filesystem.remove(self._path_of(offset))
        self.snapshots.clear()
        self._known_none_to = min(self._known_none_to, end_offset)
        self.state = ProducerState()
        self.state.end_offset = end_offset

    def take_snapshot(self, log_start_offset: int, *, unless_empty: bool = False) -> None:
        """Writes a snapshot of the state at the log end, unless there is one. Raises StorageError.

        `unless_empty`: do not write it if the log never had a producer. A log without any snapshot after a clean stop
        has no producers, in Kafka as well, which then writes an empty one.
        """
        if unless_empty and not (self.state.producers or self.snapshots):
            return
        if self.state.end_offset > (self.snapshots[-1] if self.snapshots else log_start_offset):
            self._write(self.state)

    def _write(self, state: ProducerState) -> None:
        """Writes a snapshot without syncing it: a flush of the log does that, and the CRC detects a torn one."""
        self._filesystem.create_file(self._path_of(state.end_offset), encode_snapshot(state.producers))
        self.snapshots.append(state.end_offset)

    def _delete_snapshot(self, offset: int) -> None:
        self._filesystem.remove(self._path_of(offset))
        self.snapshots.remove(offset)

    def _path_of(self, offset: int) -> str:
        return producer_snapshot_path(self._directory, offset)

    def paths_above(self, offset: int) -> list[str]:
        """Paths of the snapshots above an offset."""
        return [self._path_of(snapshot) for snapshot in self.snapshots if snapshot > offset]

    def mark_deleted(self, offset: int) -> list[str]:
        """Renames the snapshot at an offset to `.deleted`; returns its new path, if there is one.

        Raises StorageError.
        """
        if offset not in self.snapshots:
            return []
        path = self._path_of(offset)
        if self._filesystem.exists(path):
            self._filesystem.rename(path, path + DELETED_SUFFIX)
        self.snapshots.remove(offset)
        return [path + DELETED_SUFFIX]

    def move(self, directory: str) -> None:
        """Notes the new path of the log's directory."""
        self._directory = directory
