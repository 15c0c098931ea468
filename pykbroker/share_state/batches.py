"""Combination of state batches: of overlapping ones the further progress wins, and equal neighbours become one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from pykbroker.share_state.state import StateBatch

_Sortable = tuple[int, int, int, int]
"""First offset, last offset, delivery count, delivery state: the order in which batches are combined."""


def combine_batches(old: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """All offsets of both from the start offset on, in ascending batches that do not overlap.

    An offset in several batches gets the greatest delivery count and, of equal counts, the greatest delivery state.
    Neighbours are joined only as Apache Kafka's coordinator does it, so that snapshots are equal byte for byte.

    Args:
        old, new: batches in any order.
        start_offset: batches and parts of batches before it are dropped; -1 keeps all.
    """
    pending: list[_Sortable] = []
    for batch in (*old, *new):
        if batch.last_offset >= start_offset:
            first = max(batch.first_offset, start_offset)
            pending.append((first, batch.last_offset, batch.delivery_count, batch.delivery_state))
    if len(pending) < 2:
        return [_batch(item) for item in pending]
    pending = sorted(set(pending))
    combined: list[StateBatch] = []
    previous = heapq.heappop(pending)
    while pending:
        candidate = heapq.heappop(pending)
        is_overlapping = candidate[0] <= previous[1]
        is_next = candidate[0] == previous[1] + 1 and candidate[2:] == previous[2:]
        if is_overlapping or is_next:
            for piece in _pieces(previous, candidate):
                heapq.heappush(pending, piece)
            previous = heapq.heappop(pending)
        else:
            combined.append(_batch(previous))
            previous = candidate
    combined.append(_batch(previous))
    return combined


def _pieces(previous: _Sortable, candidate: _Sortable) -> list[_Sortable]:
    """Two batches that overlap, or equal neighbours, as batches that do not overlap; `previous` sorts first."""
    first, last, *_ = previous
    other_first, other_last, *_ = candidate
    if previous[2:] == candidate[2:]:
        return [(first, max(last, other_last), *previous[2:])]
    if candidate[2:] < previous[2:]:
        return [previous, (last + 1, other_last, *candidate[2:])] if other_last > last else [previous]
    pieces = [candidate]
    if first < other_first:
        pieces.append((first, other_first - 1, *previous[2:]))
    if other_last < last:
        pieces.append((other_last + 1, last, *previous[2:]))
    return pieces


def _batch(item: _Sortable) -> StateBatch:
    first_offset, last_offset, delivery_count, delivery_state = item
    return StateBatch(first_offset, last_offset, delivery_state, delivery_count)
