"""Trace of a run: its last lines for people, and a digest of all lines that proves a replay equal."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.timeline import NODE

LINES_KEPT = 400


class Trace:
    """`now` gives the virtual time; `show` gets every line as it comes, if somebody looks on."""

    def __init__(self, now: Callable[[], float], show: Callable[[str], None] | None = None) -> None:
        self._now = now
        self._show = show
        self._digest = hashlib.blake2b(digest_size=16)
        self.last: deque[str] = deque(maxlen=LINES_KEPT)
        self.count = 0

    def add(self, who: str, what: str) -> None:
        line = f"{self._now():9.4f} {who:4} {what}"
        self.last.append(line)
        self.count += 1
        self._digest.update(line.encode())
        if self._show is not None:
            self._show(line)

    def digest(self) -> str:
        return self._digest.hexdigest()


class TraceHandler(logging.Handler):
    """Log lines of the nodes as lines of the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({_shown(record.exc_info[1])})"
        self._trace.add(NODE.get(), f"log {record.levelname.lower()}: {text}")


def _shown(error: BaseException) -> str:
    """An error in a line, with where it was raised; the same in each replay."""
    place: Any = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_name}:{place.tb_lineno}"
    return f"{type(error).__name__}: {error}{where}"
