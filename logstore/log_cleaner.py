"""Choice of the compacted log that is cleaned next, and the cleaner checkpoint of a data directory.

The caller provides time and threads:

    work = run the steps of cleaner.begin(now_ms, stable_offsets)
    if work is not None:
        try: run work.run, in a thread
        finally: cleaner.finish(work, now_ms)
        for step in cleaner.write_checkpoint(): run step.run, in a thread, if there is a step; else let others run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykbroker.logstore.blocking_step import BlockingStep
from pykbroker.logstore.compaction import CleaningPlan, CompactionWork, begin_compaction, plan_cleaning
from pykbroker.logstore.log_directories import LogDirectories
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.partition_log import NO_LIMIT, PartitionLog
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.topic_partition import TopicPartition

StableOffsets = Callable[[str, int], int | None]
"""Function of (topic, partition) that returns the last stable offset, None to skip the log."""


class LogCleaner:
    """The cleaner of the data directory, or of several (`log.cleaner.enable`). One cleaning at a time."""

    def __init__(self, directory: LogDirectory | LogDirectories) -> None:
        self._directory = directory
        # Offset up to which each log is clean. By the log object, because a later log may have the same name.
        self._clean_to: dict[PartitionLog, int] | None = None
        # Logs with unreadable records, which are not cleaned again before the next start.
        self._unreadable: set[PartitionLog] = set()

    def begin(self, now_ms: int, stable_offsets: StableOffsets) -> Steps[CompactionWork | None]:
        """The cleaning of the dirtiest log that is due, or None, in steps. Unused logs (since the start) are skipped.

        The chosen log may have been changed or deleted between its step and the last one, in which it is planned again.

        Raises StorageError.
        """
        if self._clean_to is None:
            noted = self._directory.cleaner_offsets()
            self._clean_to = {log: noted[key] for key, log in self._directory.logs.items() if key in noted}
        dirtiest: PartitionLog | None = None
        dirty_ratio = 0.0
        for count, log in enumerate(list(self._directory.logs.values()), 1):
            plan = self._plan(log, now_ms, stable_offsets)
            if plan is not None and (dirtiest is None or plan.dirty_ratio > dirty_ratio):
                dirtiest, dirty_ratio = log, plan.dirty_ratio
            if not count % PIECE:
                yield
        plan = None if dirtiest is None else self._plan(dirtiest, now_ms, stable_offsets)
        return None if dirtiest is None or plan is None else begin_compaction(dirtiest, plan, now_ms)

    def _plan(self, log: PartitionLog, now_ms: int, stable_offsets: StableOffsets) -> CleaningPlan | None:
        """The cleaning of a log; None if it is not due or not possible now."""
        if not (log.config.is_compacted and log.is_loaded) or len(log.segment_base_offsets) == 1:
            return None
        if log in self._unreadable or self._directory.get(log.topic, log.partition) is not log:
            return None
        stable_offset = stable_offsets(log.topic, log.partition)
        if stable_offset is None:
            return None
        assert self._clean_to is not None
        clean_to = self._clean_to.get(log)
        if clean_to is not None:
            clean_to = self._clean_to[log] = min(clean_to, log.clean_limit)
        log.clean_limit = NO_LIMIT
        plan = plan_cleaning(log, clean_to, stable_offset, now_ms)
        return plan if plan.is_due(log.config) else None

    def finish(self, work: CompactionWork, now_ms: int) -> int:
        """Replaces the segments; returns the offset up to which the log is clean.

        Raises StorageError; the log is then complete, and the next start finishes the replacement.
        """
        end_offset = work.finish(now_ms)
        if work.is_unreadable:
            self._unreadable.add(work.log)
        end_offset = min(end_offset, work.log.clean_limit)
        if self._clean_to is not None:
            self._clean_to[work.log] = end_offset
            work.log.clean_limit = NO_LIMIT
        return end_offset

    def write_checkpoint(self) -> Iterator[BlockingStep | None]:
        """Writes the cleaner checkpoint, in steps. A log whose offset is missing there is cleaned again after a start.

        Raises StorageError.

        Yields:
            As `LogDirectory.write_checkpoints`.
        """
        return self._directory.write_cleaner_offsets(self._offsets)

    def _offsets(self) -> Iterator[tuple[TopicPartition, int]]:
        """Offset up to which each log is clean, read when it is asked for; logs that no longer exist are forgotten."""
        clean_to = self._clean_to or {}
        for log, to in list(clean_to.items()):
            if self._directory.get(log.topic, log.partition) is log:
                yield (log.topic, log.partition), min(to, log.clean_limit)
            else:
                del clean_to[log]
