"""RandomSource: the random numbers of the controller, an argument of its pure parts."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any, Protocol


class RandomSource(Protocol):
    """The part of `random.Random` that raft and planning use; a seeded one makes the whole controller repeatable."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, items: MutableSequence[Any], /) -> None: ...

    def randbytes(self, count: int, /) -> bytes: ...
