"""The time of day, for timestamps of records and expiry of what is on disk. Durations use trio's clock."""

from __future__ import annotations

import time
from typing import Protocol


class WallClock(Protocol):
    """A source of the time of day."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemWallClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
