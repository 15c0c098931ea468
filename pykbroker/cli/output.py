"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOTHING_CHANGED = "nothing was changed: add --execute to do it"
"""Note of a command that has shown what `--execute` would change."""


def counted(count: int, singular: str, plural: str = "") -> str:
    """Returns a number with its noun: "1 record", "2 records"; `plural` is for nouns that take more than an s."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def print_json(value: Any) -> None:
    """Prints one JSON document, indented."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """Prints one JSON document on one line, at once (a reader may follow a stream of them)."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under their headings; numbers stand to the right, None is a dash."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    values = [list(row) for row in rows]
    for index, column in enumerate(columns):
        cells = [row[index] for row in values if row[index] is not None]
        is_number = bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in values:
        table.add_row(*[Text("-" if cell is None else str(cell)) for cell in row])
    # A pipe has no width: never fold or cut what a program or a file receives.
    console = Console() if sys.stdout.isatty() else Console(width=10_000)
    console.print(table, end="")


def print_rows(rows: list[dict[str, Any]], columns: Mapping[str, str], *, as_json: bool, if_none: str) -> None:
    """Prints rows as JSON, as a table of some of their values, or `if_none` in place of an empty table.

    `columns` has for each heading the key of its values.
    """
    if as_json:
        print_json(rows)
    elif rows:
        print_table(list(columns), [[row[key] for key in columns.values()] for row in rows])
    else:
        print(if_none)


def print_changes(keys: Sequence[str], rows: Iterable[Sequence[object]], *, is_executed: bool, as_json: bool) -> None:
    """Prints a row for each partition that a command with `--execute` has changed, or would change."""
    if as_json:
        print_json({"executed": is_executed, "partitions": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    print_table(headings(keys), rows)
    if not is_executed:
        note(NOTHING_CHANGED)


def headings(keys: Iterable[str]) -> list[str]:
    """Headings of the columns with these keys."""
    return [key.replace("_", " ") for key in keys]


def note(text: str) -> None:
    """Prints a remark for people on standard error, so that standard output stays data."""
    print(text, file=sys.stderr, flush=True)
