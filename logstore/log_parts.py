"""The parts of one partition's log and their life: opening, loading, rolling.

Nothing is read or opened before the first use, so that a thousand idle partitions cost next to nothing. What is
done with the parts is in `log_durability` (flushing, closing), `log_cleanup` (deleting, truncating) and `partition_log`
(appending, reading).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self
from zlib import crc32

from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.errors import CorruptFile, CorruptSegment
from pykbroker.logstore.filesystem import FileSystem, OsFileSystem
from pykbroker.logstore.leader_epochs import FILE_NAME as EPOCHS_FILE
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.listeners import Report, no_report, nobody_listens
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_loader import Cut, LoadRequest, first_base_offset, load_log, write_snapshot
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_metadata import read_topic_id, write_topic_id
from pykbroker.logstore.producer_state import ProducerState
from pykbroker.logstore.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, SealedSegment, Segment, segment_path
from pykbroker.protocol.records.validation import AppendPolicy


class LogParts:
    """What a log consists of: ordered segments, of which the last is written, epochs, producers, offsets."""

    __slots__ = (
        "_active",
        "_bases",
        "_boundaries",
        "_config",
        "_deleted_files",
        "_doomed",
        "_end_offset",
        "_epochs",
        "_expected_end_offset",
        "_first_base",
        "_has_new_names",
        "_is_clean",
        "_is_doubtful",
        "_is_unused",
        "_name",
        "_open_files",
        "_opened_ms",
        "_policy",
        "_producers",
        "_report",
        "_sealed_durable_to",
        "_segments",
        "_snapshots",
        "_start_is_known",
        "_start_offset",
        "_swaps",
        "_topic_id",
        "_truncations",
        "_without_producers_to",
        "cut",
        "is_folder_due",
        "on_point_lowered",
        "on_shortened",
        "partition",
        "path",
        "recovery_point",
        "topic",
    )

    def __init__(self, path: str, topic: str, partition: int, config: LogConfig, open_files: OpenFiles) -> None:
        self.path = path
        self.topic = topic
        self._name = f"{topic}-{partition}"
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
        # Segments that are gone from the log and whose files still have their names: the file system refused.
        self._doomed: list[Segment] = []
        # Cleaned segments that are in use and not in place yet, with those whose names they will get.
        self._swaps: list[tuple[SealedSegment, list[Segment]]] = []
        self._start_offset = 0
        self._start_is_known = False
        self._first_base = 0  # Base offset of the first segment, as far as it is known before the log is loaded.
        self._end_offset = 0
        self._sealed_durable_to = 0  # Sealed segments below this offset are durable with their indexes.
        self._truncations = 0  # How often something was cut off, which a sync that is under way does not know of.
        # Whether files were made since the folder was last synced.
        self._has_new_names = True
        # Whether a sync has failed: the system may have dropped what it could not write, and says so only once.
        # Then the recovery point stays, so that the next start looks at everything behind it.
        self._is_doubtful = False
        self._expected_end_offset: int | None = None
        # What recovery took away when the log was loaded, None for nothing but unused space.
        self.cut: Cut | None = None
        # Called when the log turns out to end before what `log_end_offset` has said.
        self.on_shortened: Callable[[], None] = nobody_listens
        # Called when the recovery point is lower than it was, to write it down. Raises StorageError when it cannot be.
        self.on_point_lowered: Callable[[], None] = nobody_listens
        self._report: Report = no_report
        self._is_clean = False
        # Whether the folder of this new log is still to be made, and whether nothing but its identity was ever in it.
        self.is_folder_due = self._is_unused = False
        self._opened_ms = 0
        self._snapshots: list[int] = []
        self._without_producers_to = 0  # See `load_producers`.
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
        report: Report | None = None,
        make_folder: bool = True,
    ) -> Self:
        """Open the log in the folder `path`, which is made when missing.

        After a clean stop (`is_clean`) nothing is read until the first use, and then nothing is scanned; `end_offset`,
        when the caller knows it (a clean stop leaves it as the recovery point), is answered without reading. Otherwise
        the log is recovered now. `topic_id` is noted in a new folder. Logs of one broker share `open_files`; a log that
        stands alone may give just the `filesystem`. What is damaged or missing, seen now or later, is told to `report`.
        Without `make_folder` the caller knows that there is no folder; the method of that name makes it, or the first
        use that needs it. Raises StorageError, CorruptFile.
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
        log._report = report or no_report
        if not make_folder or not open_files.filesystem.exists(path):
            # Nothing has to be read to know what is in it.
            log.is_folder_due = log._is_unused = log._is_clean = log._start_is_known = True
            log._expected_end_offset = log_start_offset
            if make_folder:
                log.make_folder()
        elif not is_clean:
            log._load()
        return log

    def make_folder(self) -> None:
        """Make the folder of a new log, if that was not done yet. Raises StorageError."""
        if self.is_folder_due:
            self.filesystem.make_directory(self.path)
            if self._topic_id is not None:
                write_topic_id(self.filesystem, self.path, self._topic_id)
            self.is_folder_due = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"

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
        if not self._start_is_known:
            # The checkpoint names only starts that the first segment does not tell.
            self._first_base = first_base_offset(self._open_files.filesystem, self.path)
            self._start_offset = max(self._start_offset, self._first_base)
            self._start_is_known = True
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

    def last_stable_offset(self, high_watermark: int) -> int:
        """End of what read_committed consumers may read, given the end of what all may read (P-68).

        A transaction holds readers back until its marker lies below the high watermark. One that began before the log
        start (DeleteRecords) holds them back there.
        """
        producers = self.producers
        producers.on_high_watermark(high_watermark)
        unstable = producers.first_unstable_offset
        return high_watermark if unstable < 0 else min(high_watermark, max(unstable, self._start_offset))

    @property
    def is_loaded(self) -> bool:
        """Whether the log was used since it was opened; one that was not has nothing new in it."""
        return self._active is not None

    @property
    def is_known_empty(self) -> bool:
        """Whether it takes no reading to know that there is no record."""
        end_offset = self._expected_end_offset if self._active is None else self._end_offset
        return end_offset == self.log_start_offset

    @property
    def has_hidden_start(self) -> bool:
        """Whether the log start lies above the first segment's base offset, so that the files do not tell it."""
        return self._start_offset > (self._bases[0] if self._bases else self._first_base) or bool(self._doomed)

    @property
    def size_bytes(self) -> int:
        """Bytes in the `.log` files."""
        if self._is_unused:
            return 0
        self._ready()
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, ascending; the last one is being written."""
        self._ready()
        return tuple(self._segments)

    @property
    def filesystem(self) -> FileSystem:
        """The file system that holds the log."""
        return self._open_files.filesystem

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
            self._is_unused,
        )

    def _load_epochs(self) -> LeaderEpochs:
        """The leader epochs; if their file is damaged all of the log is looked at, which makes them anew."""
        path = f"{self.path}/{EPOCHS_FILE}"
        try:
            return LeaderEpochs(self.filesystem, path, is_new=self._is_unused)
        except CorruptFile as error:
            self.filesystem.remove(path)
            self._is_clean = False
            self.recovery_point = 0
            self._report(f"{error}; it is made anew from the log")
            return LeaderEpochs(self.filesystem, path)

    def _load(self) -> ActiveSegment:
        self.make_folder()
        self._epochs = self._load_epochs()
        try:
            loaded = load_log(self._load_request(), self._open_files, self._epochs)
        except CorruptSegment:
            if not self._is_clean:
                raise
            # A clean stop left it, and yet it cannot be read: all of it is looked at, as after a kill.
            self._is_clean = False
            self.recovery_point = 0
            loaded = load_log(self._load_request(), self._open_files, self._epochs)
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._start_offset = loaded.log_start_offset
        self._start_is_known = True
        self._end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._sealed_durable_to = min(loaded.recovery_point, loaded.active.base_offset)
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._without_producers_to = loaded.without_producers_to
        self._active = loaded.active
        self._is_unused = False
        self.cut = loaded.cut
        if not self._is_clean:
            self._take_snapshot()
        self._tell_what_is_missing()
        return loaded.active

    def _tell_what_is_missing(self) -> None:
        if self.cut is not None:
            path, position, size, dropped = self.cut
            self._report(
                f"{path}: {size} bytes from {position} on were not whole records and were cut off; "
                f"{dropped} segment(s) after them set aside"
            )
        expected = self._expected_end_offset
        if expected is not None and self._end_offset < expected:
            if self.cut is None:
                self._report(f"{self.path}: the records from offset {self._end_offset} to {expected - 1} are missing")
            self.on_shortened()

    # Rolling

    def _must_roll(self, active: ActiveSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch needs a new segment (P-165)."""
        config = self._config
        if active.size > config.segment_bytes - size:
            return True
        if active.size == 0:
            return not active.can_hold(last_offset)
        segment_ms = config.segment_ms if config.max_compaction_lag_ms >= config.segment_ms else config.roll_ms
        if config.segment_jitter_ms > 0:
            segment_ms -= self._jitter_ms(active)
        return (
            active.age_for_roll(max_timestamp, now_ms) > segment_ms
            or not active.has_index_room(config.segment_index_bytes)
            or not active.can_hold(last_offset)
        )

    def _jitter_ms(self, active: ActiveSegment) -> int:
        """Spreads rolls over time: any number below segment.jitter.ms that stays the same for one segment."""
        return crc32(active.file.path.encode()) % self._config.segment_jitter_ms

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty and begins there."""
        active = self._ready()
        if active.size or active.base_offset != self._end_offset:
            self._roll(self._end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> ActiveSegment:
        old = self._ready()
        base_offset = max(base_offset, self._end_offset)
        # First what a full disk can refuse: until all of it is done the old segment stays the active one.
        self._epochs.write_pending()
        if old.size:
            old.write_indexes(is_final=True)
            self._producers.end_offset = base_offset
            self._take_snapshot()
        active = ActiveSegment(self.path, base_offset, self._open_files, now_ms)
        active.create_file()
        if old.size:
            self._segments[-1] = old.sealed(self._open_files)
        self._segments.append(active)
        self._bases.append(base_offset)
        self._boundaries.clear()
        self._has_new_names = True
        self._active = active
        if not old.size:
            # An empty segment that cannot hold the next offset is replaced, not kept.
            self._remove_segments([old], now_ms)
        return active

    def _take_snapshot(self) -> None:
        """Write producer state at the log end, unless there is a snapshot of it (P-57)."""
        offset = self._producers.end_offset
        if offset > (self._snapshots[-1] if self._snapshots else self._start_offset):
            write_snapshot(self._open_files.filesystem, self.path, self._producers, self._snapshots)

    def _remove_segments(self, segments: list[Segment], now_ms: int) -> None:
        """Take segments out of the log and mark their files, with their producer snapshots.

        Raises StorageError when a file could not be marked: the segments are out of the log all the same.
        """
        for segment in segments:
            number = self._bases.index(segment.base_offset)
            del self._segments[number], self._bases[number]
            self._doomed.append(segment)
        self._mark_doomed(now_ms)

    def _mark_doomed(self, now_ms: int) -> None:
        """Give the files of segments that are no longer in the log names that say so. Raises StorageError."""
        while self._doomed:
            paths = self._mark_deleted(self._doomed[0])
            self._deleted_files.append((now_ms + self._config.file_delete_delay_ms, paths))
            del self._doomed[0]

    def _mark_deleted(self, segment: Segment) -> list[str]:
        """Rename the files of one segment and its producer snapshot; the new paths. May be tried again."""
        paths = segment.mark_deleted()
        if segment.base_offset in self._snapshots:
            path = segment_path(self.path, segment.base_offset, SNAPSHOT_SUFFIX)
            if self.filesystem.exists(path):
                self.filesystem.rename(path, path + DELETED_SUFFIX)
            self._snapshots.remove(segment.base_offset)
            paths.append(path + DELETED_SUFFIX)
        return paths

    # The end

    def delete(self) -> None:
        """Remove the folder and everything in it; leased bytes stay readable."""
        for segment in self._segments:
            segment.file.close()
        self._open_files.filesystem.remove_tree(self.path)
        self._segments = []
        self._active = None

    def move(self, path: str) -> None:
        """Rename the folder, for instance to mark it for deletion; open ranges stay valid."""
        if not self.is_folder_due:
            self._open_files.filesystem.rename(self.path, path)
        self.path = path
        for segment in self._segments:
            segment.move(path)
        if self._active is not None:
            self._epochs.move(f"{path}/{EPOCHS_FILE}")
