"""Retention: how many of the oldest segments may go (P-164). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykbroker.logstore.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """A segment as retention sees it: size, largest timestamp in ms, and the offset at which the next one begins."""

    size: int
    max_timestamp: int
    end_offset: int


def count_to_delete(
    segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int, log_start_offset: int, high_watermark: int
) -> int:
    """Number of segments from the oldest on that may be deleted; the last one counts as the active one.

    Segments below the log start always go. Size and time count only for logs whose policy has "delete". No segment
    that reaches beyond the high watermark goes, and an empty active segment stays.
    """
    count = 0
    last = len(segments) - 1
    while count < last and segments[count].end_offset <= min(log_start_offset, high_watermark):
        count += 1
    if not config.is_deleted:
        return count
    excess = sum(facts.size for facts in segments[count:]) - config.retention_bytes
    while config.retention_bytes >= 0 and _may_go(segments, count, high_watermark) and excess >= segments[count].size:
        excess -= segments[count].size
        count += 1
    while (
        config.retention_ms >= 0
        and _may_go(segments, count, high_watermark)
        and now_ms - segments[count].max_timestamp > config.retention_ms
    ):
        count += 1
    return count


def _may_go(segments: Sequence[SegmentFacts], number: int, high_watermark: int) -> bool:
    if number >= len(segments) or segments[number].end_offset > high_watermark:
        return False
    return number < len(segments) - 1 or segments[number].size > 0
