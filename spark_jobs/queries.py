"""Streaming queries from their start to their end in order, as the jobs here share it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class StopFlag:
    """Set by SIGTERM and Ctrl-C from its creation on; both end a job in order, after the triggers that run."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def progress_since(query: StreamingQuery, timestamp: str | None) -> list[dict[str, Any]]:
    """Progress of a query as it is in JSON, oldest first: all that came after the one with this `timestamp`.

    Spark keeps the last 100. PySpark's `recentProgress` makes an object of each one by some hundred calls to the JVM:
    asked for five times a second it took more processor time than the queries (1.4 s for 12 triggers). Here a call
    that finds nothing new costs two of these calls, and each progress three.
    """
    jvm: Any = query._jsq
    last = jvm.lastProgress()
    if last is None or last.timestamp() == timestamp:
        return []
    recent, found = jvm.recentProgress(), []
    for index in reversed(range(len(recent))):
        progress = recent[index]
        if progress.timestamp() == timestamp:
            break
        found.append(json.loads(progress.json()))
    return found[::-1]


def require_no_failure(queries: Iterable[StreamingQuery]) -> None:
    """Raise what made one of the queries end (StreamingQueryException), if one has failed."""
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure
