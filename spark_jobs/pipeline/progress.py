"""Progress of streaming queries: one line of JSON for each batch, written by the job and read by the runner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

PREFIX = "progress "


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished trigger of a query.

    Attributes:
        at_s: when it was reported, seconds since 1970.
        rows: records read.
        read_to: for each topic the sum of the offsets behind what was read.
        duration_ms: of the trigger.
        watermark_delay_s: seconds between the newest event of the batch and the watermark; None without one.
        state_rows: rows in the state of the query.
    """

    query: str
    number: int
    at_s: float
    rows: int
    read_to: dict[str, int]
    duration_ms: int
    watermark_delay_s: float | None
    state_rows: int

    def to_line(self) -> str:
        """The line in the job's log."""
        return PREFIX + json.dumps(asdict(self))


def parse_line(line: str) -> Batch | None:
    """The batch that a line of the log is about; None for any other line."""
    return Batch(**json.loads(line.removeprefix(PREFIX))) if line.startswith(PREFIX) else None


def batch_of(progress: Mapping[str, Any], at_s: float) -> Batch:
    """The needed fields of a StreamingQueryProgress, as it is in JSON."""
    event_time = progress.get("eventTime") or {}
    return Batch(
        query=progress["name"],
        number=progress["batchId"],
        at_s=at_s,
        rows=progress["numInputRows"],
        read_to=_read_to(progress["sources"]),
        duration_ms=progress["durationMs"].get("triggerExecution", 0),
        watermark_delay_s=_delay_s(event_time.get("max"), event_time.get("watermark")),
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in progress.get("stateOperators") or ()),
    )


def _read_to(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for source in sources:
        offsets = source.get("endOffset") or {}
        if isinstance(offsets, str):  # Spark 4 leaves it as the JSON text that it was
            offsets = json.loads(offsets)
        for topic, partitions in offsets.items():
            # Two sources that read one topic are as far as the slower one.
            read = sum(partitions.values())
            sums[topic] = min(sums.get(topic, read), read)
    return sums


def _delay_s(newest: str | None, watermark: str | None) -> float | None:
    if newest is None or watermark is None or watermark.startswith("1970"):
        return None
    delay: float = (datetime.fromisoformat(newest) - datetime.fromisoformat(watermark)).total_seconds()
    return delay
