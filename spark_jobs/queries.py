"""Streaming queries from their start to their end in order, as the jobs here share it."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

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


def require_no_failure(queries: Iterable[StreamingQuery]) -> None:
    """Raise what made one of the queries end (StreamingQueryException), if one has failed."""
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure
