"""Times at which the acquisition locks of a share partition expire.

The lock of a record is in its state; the deadlines here only say when to check a range of offsets. So nothing is
removed when records are acknowledged: a check of records that have no such lock any more changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class LockDeadlines:
    """Ranges of offsets, bounds included, by the time when their locks expire."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []

    def add(self, expires_ms: int, first_offset: int, last_offset: int) -> None:
        """Adds a range whose records were acquired, or whose locks were renewed."""
        heapq.heappush(self._heap, (expires_ms, first_offset, last_offset))

    @property
    def first_ms(self) -> int | None:
        """The first time; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def drop_before(self, offset: int) -> None:
        """Removes the earliest ranges while they end before an offset: their records are not in flight any more."""
        while self._heap and self._heap[0][2] < offset:
            heapq.heappop(self._heap)

    def pop_due(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Removes and returns the ranges that are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, first_offset, last_offset = heapq.heappop(self._heap)
            yield first_offset, last_offset
