"""Parts of a pipeline: topics, records of the input, stages, and tables of results with their comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Table = dict[str, Any]
"""A result: rows by their key. Rows are what JSON can hold, so that two of them can be compared and printed."""
Results = dict[str, Table]
"""The results of a pipeline by name, for example one table for each output topic."""

COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Topic:
    """Layout of a topic. Records have the time of what they tell about, so that nothing may expire by time."""

    partitions: int = 3
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the input.

    Attributes:
        topic: by its name in the pipeline.
        timestamp_ms: milliseconds since 1970, the time of the event.
        partition: None for the partition that the producer takes by the key.
        fact: what the generator knows about the record, for `Pipeline.expected`; not sent.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    fact: Any = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a pipeline that has to be finished before the next one begins.

    Attributes:
        title: what it does, for people.
        feed_first: its input is complete before it starts; otherwise input arrives while it runs.
        is_batch: it has no streaming queries, and ends by itself; others go on until they are drained.
    """

    title: str
    feed_first: bool = False
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not what it must be; None stands for a row that is not there."""

    table: str
    key: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.table}: {self.key}: expected {_short(self.expected)}, got {_short(self.got)}"


def differences(got: Results, expected: Results) -> list[Difference]:
    """Rows that differ, by table and key."""
    found = []
    for table in sorted(got.keys() | expected.keys()):
        ours, theirs = got.get(table, {}), expected.get(table, {})
        found += [
            Difference(table, key, theirs.get(key), ours.get(key))
            for key in sorted(ours.keys() | theirs.keys())
            if ours.get(key) != theirs.get(key) or (key in ours) != (key in theirs)
        ]
    return found


def digest(results: Results) -> str:
    """A short fingerprint: equal for equal results."""
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()[:12]


def rows_once(rows: Iterable[tuple[str, Any]]) -> Table:
    """A table of rows each of which must be there once: a repetition gets a key of its own, and so is a difference."""
    table: Table = {}
    for key, row in rows:
        number, name = 1, key
        while name in table:
            number += 1
            name = f"{key} (copy {number})"
        table[name] = row
    return table


def last_per_key(rows: Iterable[tuple[str, Any]]) -> Table:
    """A table of the last row of each key, as of a compacted topic; None deletes."""
    table = dict(rows)
    return {key: row for key, row in table.items() if row is not None}


def _short(row: Any) -> str:
    text = "nothing" if row is None else json.dumps(row, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:200]}..."
