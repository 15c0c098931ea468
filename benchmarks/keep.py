"""Results that stay: `make bench-keep` copies the last reports, `make bench-compare` compares with them.

    python -m benchmarks.keep                  # reports/bench to benchmarks/results/VERSION
    python -m benchmarks.keep --note "..."     # with a line on how they were measured
    python -m benchmarks.keep --compare        # the last reports beside the newest that were kept

A kept result is the JSON of each report, with the machine's description, and one README.md with the tables. A
comparison means something on the same machine alone, and says so where the machines differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.reports import REPORTS, figure, show
from benchmarks.summaries import medians
from pykbroker.version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = ("throughput", "shapes", "group")
"""Reports of `make bench`; each has results with `case` and `broker`."""
SAME_MACHINE = ("processor", "cores", "memory_gib", "system", "file_system", "python")
COLUMNS = ("case", "broker", "figure", "kept", "now", "now / kept")


def keep(reports: Path, target: Path, version: str, note: str) -> list[str]:
    """Copies the reports that are there; their names. What was kept for this version is replaced."""
    found = [name for name in NAMES if (reports / f"{name}.json").exists()]
    if not found:
        return []
    target.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (target / f"{name}.json").unlink(missing_ok=True)
    page = [f"# Measured with pykbroker {version}", *(["", note] if note else [])]
    for name in found:
        (target / f"{name}.json").write_text((reports / f"{name}.json").read_text())
        # A title of the page, and below it one of each report.
        page += ["", "#" + (reports / f"{name}.md").read_text().rstrip()]
    (target / "README.md").write_text("\n".join(page) + "\n")
    return found


def version_key(name: str) -> tuple[int, ...]:
    """The numbers of a version, so that 0.10.0 comes after 0.9.1."""
    return tuple(int(number) for number in re.findall(r"\d+", name))


def newest(results: Path) -> Path | None:
    """The folder of the newest version that has results."""
    folders = [path.parent for path in results.glob("*/README.md")]
    return max(folders, key=lambda path: version_key(path.name), default=None)


def differences(kept: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences of two descriptions of machines: their figures say nothing about a change of the code then."""
    return [f"{key}: {kept.get(key)}, now {now.get(key)}" for key in SAME_MACHINE if kept.get(key) != now.get(key)]


def compared(kept: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each figure that both have, with the factor between the medians."""
    before, after = medians(kept), medians(now)
    return [
        [case, broker, name, figure(value), figure(after[case, broker][name]), ratio(after[case, broker][name], value)]
        for (case, broker), figures in before.items()
        for name, value in figures.items()
        if name in after.get((case, broker), {})
    ]


def ratio(now: float, kept: float) -> str:
    """The factor between two figures; `-` where there was none before."""
    return f"{now / kept:.2f}" if kept else "-"


def compare(reports: Path, kept_in: Path) -> int:
    """Prints a table for each report that both have; how many there were."""
    count = 0
    for name in NAMES:
        kept, now = kept_in / f"{name}.json", reports / f"{name}.json"
        if not kept.exists() or not now.exists():
            continue
        old, new = json.loads(kept.read_text()), json.loads(now.read_text())
        show(f"{name}: now beside {kept_in.name}", COLUMNS, compared(old["results"], new["results"]))
        if old["title"] != new["title"]:
            print(f"other sizes: {old['title']!r}, now {new['title']!r}")
        for line in differences(old["machine"], new["machine"]):
            print(f"another machine: {line}")
        count += 1
    return count


def main() -> int:
    """Keep, or compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keep", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--compare", action="store_true", help="with the newest kept results; keeps nothing")
    parser.add_argument("--note", default="", help="how it was measured, for the head of the page")
    arguments = parser.parse_args()
    if arguments.compare:
        kept_in = newest(RESULTS)
        if kept_in is None or not compare(REPORTS, kept_in):
            print("keep: there is nothing to compare", file=sys.stderr)
        return 0
    kept = keep(REPORTS, RESULTS / __version__, __version__, arguments.note)
    if not kept:
        print("keep: there are no reports: run `make bench` first", file=sys.stderr)
        return 2
    print(f"kept for {__version__}: {', '.join(kept)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
