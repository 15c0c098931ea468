"""Internal topics that a broker creates for Streams groups: which are being created, and why some could not be."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from pykbroker.named_tuple import NamedTuple

ERRORS_MAX = 1000
"""Number of failures that are kept; the ones that end first are dropped."""


class _Failure(NamedTuple):
    ends_ms: int
    text: str


class InternalTopicCreation:
    """Topics in flight and recent failures, by name. A topic is tried again when its failure has ended."""

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._failures: dict[str, _Failure] = {}
        self._ends: list[tuple[int, str]] = []

    def begin(self, names: Iterable[str], now_ms: int) -> list[str]:
        """The topics to create now; the caller must report them to `end`."""
        begun = [name for name in names if self._failure(name, now_ms) is None and name not in self._in_flight]
        self._in_flight.update(begun)
        return begun

    def end(self, names: Iterable[str], failures: Mapping[str, str], now_ms: int, back_off_ms: int) -> None:
        """Ends the creation of topics of `begin`; the reasons of those that failed are kept for `back_off_ms`."""
        self._in_flight.difference_update(names)
        for name, text in failures.items():
            self._failures[name] = _Failure(now_ms + back_off_ms, text)
            heapq.heappush(self._ends, (now_ms + back_off_ms, name))
        while self._ends and (self._ends[0][0] <= now_ms or len(self._failures) > ERRORS_MAX):
            ends_ms, name = heapq.heappop(self._ends)
            if name in self._failures and self._failures[name].ends_ms == ends_ms:
                del self._failures[name]

    def failures(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """The reasons why topics could not be created lately, by name."""
        found = ((name, self._failure(name, now_ms)) for name in names)
        return {name: failure.text for name, failure in found if failure is not None}

    def _failure(self, name: str, now_ms: int) -> _Failure | None:
        failure = self._failures.get(name)
        return failure if failure is not None and failure.ends_ms > now_ms else None
