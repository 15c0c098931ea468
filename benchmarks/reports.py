"""Reports of results: a table on the screen, and Markdown and JSON in reports/bench (not committed)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import description

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "bench"


def figure(value: float | None) -> str:
    """A number with about three digits that count; `-` for one that is not there."""
    if value is None:
        return "-"
    decimals = next((count for bound, count in ((100, 0), (10, 1), (1, 2)) if abs(value) >= bound), 3)
    return f"{value:,.{decimals}f}"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others numbers."""
    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    # Not cut to 80 columns when the output goes to a file.
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def save(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    data: Any,
    notes: Sequence[str] = (),
) -> Path:
    """Write NAME.md and NAME.json and return the Markdown's path. Notes are lines below the table."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    about = description()
    lines = [f"# {title}", "", ", ".join(f"{key} {value}" for key, value in about.items()), "", *table(columns, rows)]
    if notes:
        lines += ["", *(f"* {note}" for note in notes)]
    markdown = REPORTS / f"{name}.md"
    markdown.write_text("\n".join(lines) + "\n")
    content = {"title": title, "machine": about, "columns": columns, "rows": rows, "notes": notes, "results": data}
    (REPORTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    return markdown


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]
