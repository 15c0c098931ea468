"""Reports of results: a table on the screen, and Markdown and JSON in reports/bench (not committed)."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "bench"


def machine() -> dict[str, Any]:
    """The machine and the time of the measurement: Python, system, cores, load average of the last minute."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others numbers."""
    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    # Not cut to 80 columns when the output goes to a file.
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def save(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], data: Any) -> Path:
    """Write NAME.md and NAME.json and return the Markdown's path."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    about = machine()
    lines = [f"# {title}", "", ", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    markdown = REPORTS / f"{name}.md"
    markdown.write_text("\n".join(lines) + "\n")
    (REPORTS / f"{name}.json").write_text(json.dumps({"machine": about, "results": data}, indent=1) + "\n")
    return markdown
