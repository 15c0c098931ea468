"""Reads everything that partitions have, up to end offsets that were asked for beforehand.

A reader that stops after a number of records cannot tell what a topic has. A record of another writer among those that
it counts leaves one unread at the end, which looks lost; a record that is stored twice takes the place of one that is
missing, or lies behind the last one that was read. So the end is an offset of each partition, and positions are
compared with it instead of counts: control records and records of aborted transactions have offsets and are never
delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from interop_tests.clients import Message

Place = tuple[str, int]
"""Topic and partition."""

TIMEOUT_S = 90.0
"""Longest wait of a test for what must come. On two busy cores Spark or a JVM takes a minute to begin."""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class Reader(Protocol):
    """A consumer of one library, with partitions assigned from where it shall begin."""

    def ends(self) -> Mapping[Place, int]:
        """End offset of each partition now: the high watermark, or the last stable offset for read_committed."""

    def poll(self) -> list[Message]:
        """The records that arrive within a moment."""

    def position(self, place: Place) -> int:
        """Offset behind the last record or marker that was passed; -1 while it is not known."""


def read_to_ends(
    reader: Reader, count: int = 0, *, timeout_s: float = TIMEOUT_S, now: Callable[[], float] = time.monotonic
) -> list[Message]:
    """All records of the reader's partitions.

    Args:
        reader: with its partitions assigned.
        count: for topics to which somebody still writes: as long as there are fewer records, the ends are asked for
            again. There may be more of them than `count`.
        timeout_s: how long no partition may advance.
        now: the clock.

    Raises:
        AssertionError: nothing came for `timeout_s`; the message says where the reader stands and where it must get to.
    """
    found: list[Message] = []
    ends = reader.ends()
    before: dict[Place, int] = {}
    moved_at = now()
    while True:
        positions = {place: reader.position(place) for place in ends}
        missing = {place: (position, ends[place]) for place, position in positions.items() if position < ends[place]}
        if not missing and len(found) >= count:
            return found
        if positions != before:
            before, moved_at = positions, now()
        elif now() - moved_at > timeout_s:
            where = ", ".join(f"{t}-{n} at {position} of {end}" for (t, n), (position, end) in sorted(missing.items()))
            raise AssertionError(
                f"waited {timeout_s:.0f} s for {where or f'{count} records'}, {len(found)} so far from {sorted(ends)}"
            )
        found += reader.poll()
        if not missing:
            ends = reader.ends()
