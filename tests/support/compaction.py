"""A whole cleaning of one log, as the log cleaner's thread does it in steps."""

from __future__ import annotations

from pykbroker.logstore.compaction import begin_compaction, plan_cleaning
from pykbroker.logstore.partition_log import PartitionLog


def compact(log: PartitionLog, checkpoint: int | None, stable_offset: int, now_ms: int) -> int:
    """Clean a log at once, due or not; returns the new cleaner checkpoint."""
    plan = plan_cleaning(log, checkpoint, stable_offset, now_ms)
    work = begin_compaction(log, plan, now_ms)
    try:
        work.run()
    finally:
        end_offset = work.finish(now_ms)
    return end_offset
