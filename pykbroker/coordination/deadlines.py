"""The deadlines of a coordinator's keys: a heap with one live entry per key.

Heartbeats move the deadline of a group later, and an entry for each would fill the heap. So a later deadline does not
replace an earlier one: the key is woken at the earlier one, finds nothing due, and its next deadline is planned then. A
thousand members that heartbeat cost one wake-up per session timeout and group.
"""

from __future__ import annotations

import heapq

ShardKey = tuple[int, str]
"""Partition of the internal topic, and key."""


class Deadlines:
    """Earliest deadline of each key."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, ShardKey]] = []
        self._planned: dict[ShardKey, int] = {}

    def plan(self, key: ShardKey, deadline_ms: int | None) -> bool:
        """Plans a deadline, unless the key has an earlier one; True if it is now the first of all keys."""
        planned_ms = self._planned.get(key)
        if deadline_ms is None or (planned_ms is not None and planned_ms <= deadline_ms):
            return False
        is_first = self.first_ms is None or deadline_ms < (self.first_ms or 0)
        self._planned[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))
        return is_first

    @property
    def first_ms(self) -> int | None:
        """The earliest deadline of all keys, in ms; None if nothing is planned."""
        while self._heap and self._planned.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> ShardKey | None:
        """Removes and returns the key with the earliest deadline; None if that is after `now_ms`."""
        # The first entry has the earliest time, whether it is live or was replaced: this answers nearly every call.
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        first_ms = self.first_ms
        if first_ms is None or first_ms > now_ms:
            return None
        key = heapq.heappop(self._heap)[1]
        del self._planned[key]
        return key

    def discard(self, key: ShardKey) -> None:
        """Drops a key."""
        self._planned.pop(key, None)

    def forget(self, partition: int) -> None:
        """Drops all keys of a partition."""
        for key in [key for key in self._planned if key[0] == partition]:
            del self._planned[key]
