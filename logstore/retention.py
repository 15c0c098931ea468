"""Retention: the number of the oldest segments that may be deleted (P-164). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.logstore.log_config import LogConfig
from pykbroker.named_tuple import NamedTuple


class SegmentFacts(NamedTuple):
    """Facts of a segment for retention: size in bytes, largest timestamp in ms, base offset of the next segment."""

    size: int
    max_timestamp: int
    end_offset: int


def count_to_delete(
    segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int, log_start_offset: int, high_watermark: int
) -> int:
    """Number of the oldest segments that may be deleted; the last of `segments` is the active one.

    Segments below the log start are always deleted. Size and time matter only with the cleanup policy "delete". A
    segment with records at or above the high watermark stays, and so does an empty active segment.
    """
    count = 0
    last = len(segments) - 1
    while count < last and segments[count].end_offset <= min(log_start_offset, high_watermark):
        count += 1
    if not config.is_deleted:
        return count
    excess = sum(facts.size for facts in segments[count:]) - config.retention_bytes
    while (
        config.retention_bytes >= 0
        and _may_be_deleted(segments, count, high_watermark)
        and excess >= segments[count].size
    ):
        excess -= segments[count].size
        count += 1
    while (
        config.retention_ms >= 0
        and _may_be_deleted(segments, count, high_watermark)
        and now_ms - segments[count].max_timestamp > config.retention_ms
    ):
        count += 1
    return count


def _may_be_deleted(segments: Sequence[SegmentFacts], number: int, high_watermark: int) -> bool:
    if number >= len(segments) or segments[number].end_offset > high_watermark:
        return False
    return number < len(segments) - 1 or segments[number].size > 0
