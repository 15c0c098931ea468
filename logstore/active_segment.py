"""The active segment of a log: the one that is appended to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from zlib import crc32

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import Buffer
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.offset_index import ENTRY_SIZE, MAX_RELATIVE_OFFSET
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.segment import SealedSegment, Segment, producer_snapshot_path
from pykbroker.logstore.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE


class ActiveSegment(Segment):
    """The segment that is appended to. Its file may be longer than `size`, by zeros.

    The first append creates the file. `max_timestamp_so_far` and `max_timestamp_offset` become the last entry of the
    time index; `first_batch_timestamp` is the beginning of `segment.ms`, None until it is known.
    """

    __slots__ = (
        "_is_index_full",
        "_roll_config",
        "_roll_index_bytes",
        "_roll_ms",
        "_since_index_entry",
        "created_ms",
        "first_batch_timestamp",
        "max_timestamp_offset",
        "max_timestamp_so_far",
        "size",
    )

    def __init__(self, directory: str, base_offset: int, open_files: OpenFiles, now_ms: int, size: int = 0) -> None:
        super().__init__(directory, base_offset, open_files)
        self.size = size
        self.created_ms = now_ms
        self.first_batch_timestamp: int | None = None
        self.max_timestamp_so_far = -1
        self.max_timestamp_offset = base_offset
        self._since_index_entry = 0
        # Limits of `must_roll`, and the settings from which they were computed; None to compute them again.
        self._roll_config: LogConfig | None = None
        self._roll_ms = self._roll_index_bytes = 0
        # Kept up to date, because each append of thousands of logs would have to fetch both indexes from memory.
        self._is_index_full = False

    def max_timestamp(self) -> tuple[int, int]:
        return self.max_timestamp_so_far, self.max_timestamp_offset

    def resume(self) -> None:
        """Continues a segment that is on disk with valid indexes."""
        if not (self.offset_index.load() and self.offset_index.is_sane(self.size)) or not (
            self.time_index.load() and self.time_index.is_sane()
        ):
            self.rebuild_indexes()
        self.aborted.load()
        self.max_timestamp_so_far, self.max_timestamp_offset = self.time_index.last()

    def append(
        self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Writes one batch, given in parts of `size` bytes together. On an error nothing has changed.

        Raises StorageFull and StorageError.
        """
        position = self.size
        file = self.file
        self.filesystem.append_mapped(file.descriptor(create=True), parts, size, position, file.path)
        self.size = position + size
        self._index(position, size, last_offset, max_timestamp, index_interval_bytes)

    def append_batches(
        self,
        parts: Sequence[Buffer],
        batches: Sequence[tuple[int, int, int]],
        index_interval_bytes: int,
        *,
        is_bulk: bool,
    ) -> None:
        """Writes several batches in one step, each (size, last offset, max timestamp). All or nothing.

        `is_bulk` does without a mapping of space ahead, which pays only for many small appends.
        """
        position = self.size
        file = self.file
        total = sum(batch[0] for batch in batches)
        append = self.filesystem.append if is_bulk else self.filesystem.append_mapped
        append(file.descriptor(create=True), parts, total, position, file.path)
        for size, last_offset, max_timestamp in batches:
            self.size = position + size
            self._index(position, size, last_offset, max_timestamp, index_interval_bytes)
            position += size

    def _index(self, position: int, size: int, last_offset: int, max_timestamp: int, interval_bytes: int) -> None:
        if max_timestamp > self.max_timestamp_so_far:
            self.max_timestamp_so_far = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_batch_timestamp is None:
            self.first_batch_timestamp = max_timestamp if position == 0 else self.first_timestamp()
        if self._since_index_entry > interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.maybe_add(self.max_timestamp_so_far, self.max_timestamp_offset)
            self._since_index_entry = size
            self._check_indexes()
        else:
            self._since_index_entry += size

    def must_roll(self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """True if a batch of `size` bytes needs a new segment (P-165)."""
        if self.size > config.segment_bytes - size or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            # The segment would be too large, or the relative offset would not fit into the index.
            return True
        if self.size == 0:
            return False
        if config is not self._roll_config:
            self._set_roll_limits(config)
        first = self.first_batch_timestamp
        if first is None:
            first = self.first_batch_timestamp = self.first_timestamp()
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return age_ms > self._roll_ms or self._is_index_full

    def _set_roll_limits(self, config: LogConfig) -> None:
        segment_ms = config.segment_ms if config.max_compaction_lag_ms >= config.segment_ms else config.roll_ms
        if config.segment_jitter_ms > 0:
            # Spreads the rolls of many logs over time by a hash of the path, which is constant for one segment.
            segment_ms -= crc32(self.file.path.encode()) % config.segment_jitter_ms
        self._roll_config, self._roll_ms, self._roll_index_bytes = config, segment_ms, config.segment_index_bytes
        self._check_indexes()

    def _check_indexes(self) -> None:
        """Notes if the indexes have room for another entry; `finish` needs one more entry of the time index."""
        limit = self._roll_index_bytes
        self._is_index_full = (
            len(self.offset_index.entries) > limit - ENTRY_SIZE
            or len(self.time_index.entries) > limit - 2 * TIME_ENTRY_SIZE
        )

    def create_file(self) -> None:
        """Creates the empty log file now, so that the base offset survives a restart."""
        self.file.descriptor(create=True)
        # The file is empty, so a failed close loses nothing.
        with suppress(StorageError):
            self.file.close()

    def truncate_to(self, offset: int) -> None:
        """Drops all batches from the one that holds `offset` on."""
        found = self.locate(offset)
        self._roll_config = None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.aborted.truncate_to(offset)
        if found is not None:
            self.size = found.position
        self._since_index_entry = 0
        self.max_timestamp_so_far, self.max_timestamp_offset = self.time_index.last()
        end = self._search_start(offset)
        for position, header in self.headers(end):
            if position + header.size_bytes > self.size:
                break
            end = position + header.size_bytes
            if header.max_timestamp > self.max_timestamp_so_far:
                self.max_timestamp_so_far = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
        # Bytes after the last whole batch are cut off too, because the next append must follow that batch.
        self.size = end
        self.filesystem.truncate(self.file.descriptor(create=True), end)
        if self.size == 0:
            self.first_batch_timestamp = None

    def finish(self) -> None:
        """Trims the log file, and writes the indexes to their files, with the largest timestamp as the last entry."""
        if self.size:
            self.time_index.maybe_add(self.max_timestamp_so_far, self.max_timestamp_offset)
            if self.file.is_open:
                self.filesystem.trim(self.file.descriptor())
            if self.filesystem.file_size(self.file.path) != self.size:
                # The file was closed without being trimmed, because trimming failed.
                self.filesystem.truncate(self.file.descriptor(), self.size)
            if not self.aborted.is_written:
                self.aborted.write()
        self.offset_index.write()
        self.time_index.write()

    def sync_all(self, epochs_path: str, snapshots: Sequence[int]) -> None:
        """Makes log, indexes, leader epochs, producer snapshots (by offset) and directory durable, unless it is empty.

        A start after a clean stop trusts these files: with zeros in its time index a segment would look old enough for
        retention. Raises StorageError.
        """
        if not self.size:
            return
        self.filesystem.sync(self.file.descriptor())
        paths = [self.offset_index.path, self.time_index.path, self.aborted.path, epochs_path]
        for path in (*paths, *(producer_snapshot_path(self.directory, offset) for offset in snapshots)):
            self.filesystem.sync_file(path)
        self.filesystem.sync_directory(self.directory)

    def sealed(self, open_files: OpenFiles) -> SealedSegment:
        """This segment as a sealed one; its indexes must be written already."""
        segment = SealedSegment(self.directory, self.base_offset, open_files)
        # The same file object keeps the leases and the descriptor.
        segment.adopt(self)
        return segment
