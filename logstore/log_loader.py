"""Loading of a partition's directory: completes interrupted deletions and compactions, and recovers after a crash."""

from __future__ import annotations

from pykbroker.logstore.active_segment import ActiveSegment
from pykbroker.logstore.errors import CorruptSegment
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.producer_history import NOT_RECOVERED, ProducerHistory
from pykbroker.logstore.recovery import LastBatches, recover_segment
from pykbroker.logstore.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    SealedSegment,
    Segment,
)
from pykbroker.logstore.segment_list import SegmentList
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.layout import HEADER_SIZE


class LoadRequest(NamedTuple):
    """Facts of a partition before its directory is read. The directory of a new log has no segment and is not read."""

    directory: str
    log_start_offset: int
    recovery_point: int
    is_clean: bool
    now_ms: int
    index_interval_bytes: int
    producer_id_expiration_ms: int
    is_new: bool = False


class Cut(NamedTuple):
    """The end that recovery cut off: `size` bytes at `position` of a log file, and whole segments after it.

    The dropped segments' files have the suffix `.deleted` until the next start.
    """

    path: str
    position: int
    size: int
    segments_dropped: int


class LoadedParts(NamedTuple):
    """Parts of a loaded log."""

    segments: SegmentList
    epochs: LeaderEpochs
    history: ProducerHistory
    log_start_offset: int
    recovery_point: int
    cut: Cut | None


class _Recovery(NamedTuple):
    """Result of a recovery.

    Base offset of the first scanned segment, the end that was cut off, and the last batches of each scanned segment's
    producers, by base offset.
    """

    scanned_from: int
    cut: Cut | None
    last_batches: dict[int, LastBatches | None]


def base_offset_of(name: str) -> int:
    """Base offset in the name of a segment's file; -1 for another name."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() and name[20:21] == "." else -1


def first_base_offset(filesystem: FileSystem, directory: str) -> int:
    """Base offset of a partition's first segment, from the file names alone; 0 without a segment."""
    names = [entry.name for entry in filesystem.list(directory) if entry.name.endswith(LOG_SUFFIX)]
    return max(min(map(base_offset_of, names), default=0), 0)


def load_log(request: LoadRequest, open_files: OpenFiles, epochs: LeaderEpochs) -> LoadedParts:
    """Reads a partition's directory; recovers from `recovery_point` on unless the last stop was clean (P-171).

    Raises StorageError and CorruptFile.
    """
    filesystem = open_files.filesystem
    directory = request.directory
    names = [] if request.is_new else _clean_up(filesystem, open_files, request)
    bases = sorted(base_offset_of(name) for name in names if name.endswith(LOG_SUFFIX) and base_offset_of(name) >= 0)
    _remove_orphans(filesystem, directory, names, set(bases))
    segments: list[Segment] = [SealedSegment(directory, base, open_files) for base in bases]
    recovery = _Recovery(NOT_RECOVERED, None, {})
    if segments and not request.is_clean:
        recovery = _recover(segments, request, epochs)
    _drop_overtaken(segments)
    end_offset = segments[-1].next_offset() if segments else request.log_start_offset
    if segments and end_offset < request.log_start_offset:
        # The log ends below its start offset: later segments are lost, and the rest is no longer readable.
        for segment in segments:
            segment.mark_deleted()
        epochs.clear()
        segments = []
        end_offset = request.log_start_offset
    active = _activate(segments, end_offset, open_files, request)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    epochs.write_pending()
    snapshots = sorted(base_offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
    history = ProducerHistory(
        filesystem,
        directory,
        snapshots,
        # A clean stop writes a snapshot if there are producers, as in Kafka.
        known_none_to=end_offset if request.is_clean and not snapshots else log_start_offset,
        now_ms=request.now_ms,
    )
    history.load(
        segments,
        log_start_offset,
        end_offset,
        request.producer_id_expiration_ms,
        recovery.scanned_from,
        recovery.last_batches,
    )
    recovery_point = end_offset if request.is_clean else min(request.recovery_point, end_offset)
    parts = SegmentList(directory, open_files, segments, active, end_offset)
    return LoadedParts(parts, epochs, history, log_start_offset, recovery_point, recovery.cut)


def _drop_overtaken(segments: list[Segment]) -> None:
    """Removes an empty last segment if the segment before it ends after its base offset.

    A roll created it and then failed, and appends continued in the old segment.
    """
    if len(segments) > 1 and segments[-1].size == 0 and segments[-2].next_offset() > segments[-1].base_offset:
        segments.pop().mark_deleted()


def _activate(segments: list[Segment], end_offset: int, open_files: OpenFiles, request: LoadRequest) -> ActiveSegment:
    """Makes the last segment the active one, or creates one."""
    if segments:
        last = segments.pop()
        active = ActiveSegment(request.directory, last.base_offset, open_files, request.now_ms, last.size)
        last.close()
        active.resume()
    else:
        active = ActiveSegment(request.directory, end_offset, open_files, request.now_ms)
        if end_offset:
            active.create_file()
    segments.append(active)
    return active


def _clean_up(filesystem: FileSystem, open_files: OpenFiles, request: LoadRequest) -> list[str]:
    """Completes or undoes interrupted deletions and compactions; returns the remaining file names."""
    directory = request.directory
    names = [entry.name for entry in filesystem.list(directory) if not entry.is_directory]
    if all(name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)) or "." not in name[20:] for name in names):
        return names
    cleaned = [base_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min(cleaned, default=1 << 63)
    swaps = []
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) and base_offset_of(name) >= 0:
            filesystem.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            # A swap file at or above a cleaned file belongs to an incomplete split of a segment.
            if base_offset_of(name) >= first_cleaned:
                filesystem.remove(f"{directory}/{name}")
            else:
                swaps.append(name)
    if swaps:
        _finish_swap(filesystem, open_files, directory, swaps)
    return [entry.name for entry in filesystem.list(directory) if not entry.is_directory]


def _finish_swap(filesystem: FileSystem, open_files: OpenFiles, directory: str, swaps: list[str]) -> None:
    """Completes an interrupted compaction: replaces the old segments by the complete `.swap` segments."""
    first, end = 1 << 63, -1
    whole: set[int] = set()
    for name in swaps:
        if not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        segment = SealedSegment(directory, base_offset_of(name), open_files, SWAP_SUFFIX)
        try:
            segment_end = segment.next_offset()
        except CorruptSegment:
            if not filesystem.exists(f"{directory}/{name.removesuffix(SWAP_SUFFIX)}"):
                raise
            # No compaction wrote this: its result is on the disk before it has this name.
            continue
        finally:
            segment.close()
        whole.add(segment.base_offset)
        first = min(first, segment.base_offset)
        end = max(end, segment_end)
    for name in swaps:
        if base_offset_of(name) not in whole:
            # No log, or an index whose log file has no `.swap` name: logs are renamed last, so this is not complete.
            filesystem.remove(f"{directory}/{name}")
    for entry in filesystem.list(directory):
        if entry.name.endswith(SEGMENT_SUFFIXES) and first <= base_offset_of(entry.name) < end:
            filesystem.remove(f"{directory}/{entry.name}")
    for entry in filesystem.list(directory):
        if entry.name.endswith(SWAP_SUFFIX):
            filesystem.rename(f"{directory}/{entry.name}", f"{directory}/{entry.name.removesuffix(SWAP_SUFFIX)}")


def _remove_orphans(filesystem: FileSystem, directory: str, names: list[str], bases: set[int]) -> None:
    for name in names:
        if name.endswith(SEGMENT_SUFFIXES[1:]) and base_offset_of(name) not in bases:
            filesystem.remove(f"{directory}/{name}")


def _recover(segments: list[Segment], request: LoadRequest, epochs: LeaderEpochs) -> _Recovery:
    """Scans the segments from the recovery point on; cuts the log at the first invalid batch."""
    cut = None
    last_batches: dict[int, LastBatches | None] = {}
    start = len(segments) - 1
    while start > 0 and segments[start].base_offset > request.recovery_point:
        start -= 1
    for number in range(len(segments)):
        segment = segments[number]
        size = segment.size
        if number < start and not _may_end_in_zeros(segment, size):
            continue
        recovered = recover_segment(segment, size, request.recovery_point, request.index_interval_bytes)
        last_batches[segment.base_offset] = recovered.last_batches
        for epoch, first_offset in recovered.epochs:
            if epoch > epochs.latest_epoch:
                epochs.assign(epoch, first_offset)
        if recovered.size < size:
            segment.filesystem.truncate(segment.file.descriptor(), recovered.size)
            segment.close()
            segments[number] = SealedSegment(request.directory, segment.base_offset, segment.file.open_files)
            if recovered.ends_in_zeros and any(s.base_offset == recovered.next_offset for s in segments[number + 1 :]):
                # Space that was allocated ahead of the data; its truncation was not durable when power was lost.
                continue
            if not recovered.ends_in_zeros or segments[number + 1 :]:
                dropped = len(segments) - number - 1
                cut = Cut(segment.file.path, recovered.size, size - recovered.size, dropped)
            for later in segments[number + 1 :]:
                later.mark_deleted()
            del segments[number + 1 :]
            break
    return _Recovery(segments[min(start, len(segments) - 1)].base_offset, cut, last_batches)


def _may_end_in_zeros(segment: Segment, size: int) -> bool:
    """True if a durable segment may still have space that was allocated ahead of its data."""
    length = min(size, HEADER_SIZE)
    return not any(segment.filesystem.read(segment.file.descriptor(), length, size - length))
