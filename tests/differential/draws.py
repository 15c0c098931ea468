"""Draws from one random source, which the generators of values have in common."""

from __future__ import annotations

import random
from typing import Any


class Draws:
    """Base of the generators of values: the same seed gives the same script."""

    USUAL_SHARE = 0.75
    """Share of the usual value in `_mostly`."""

    def __init__(self, source: random.Random) -> None:
        self.random = source

    def _pick(self, values: Any) -> Any:
        return values[self.random.randrange(len(values))]

    def _chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def _mostly(self, usual: Any, *others: Any) -> Any:
        return usual if self._chance(self.USUAL_SHARE) else self._pick(others)
