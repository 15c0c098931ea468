"""Report of a run: passed, failed and skipped tests per area and client, and behaviours that failed tests stand for.

A run writes the report as Markdown and as JSON. Two of them are laid side by side by

    python -m interop_tests.report compare OURS.json REFERENCE.json

whose exit code is 1 when something that passed in the reference did not pass in ours.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from interop_tests.language_programs import client_versions

# From good to bad: of its phases' outcomes a test has the worst.
OUTCOMES = ("passed", "skipped", "failed")
COLUMNS = ("passed", "failed", "skipped")
NOT_RUN = "not run"
FORMAT = 2
# What a behaviour may cite: the numbered list in pykbroker's docs/behaviours, and Kafka's improvement proposals.
CITATION = re.compile(r"\bP-\d+\b|\bKIP-\d+\b")
# The packages whose versions say which client a client was.
PACKAGES = {
    "kafka-python 3": "kafka-python",
    "confluent-kafka": "confluent-kafka",
    "aiokafka": "aiokafka",
    "Spark": "pyspark",
}


class Declaration(NamedTuple):
    """Area, client and behaviour that a test declares.

    Attributes:
        area: which part of Kafka it is about, from `@pytest.mark.area("groups")`.
        client: through which client, from `@pytest.mark.client("aiokafka")`.
        behaviour: what holds when it passes: the first sentence of its docstring.
    """

    area: str
    client: str
    behaviour: str


class Result(NamedTuple):
    """Outcome of one test.

    Attributes:
        outcome: one of OUTCOMES.
        seconds: with set-up and clean-up.
        detail: why it was skipped, or the end of the failure.
    """

    declaration: Declaration
    outcome: str
    seconds: float
    detail: str


class Tables(Protocol):
    """Value of the fixture `summary_tables`: texts that are printed at the end of the run."""

    texts: list[str]


def declaration_of(item: Any) -> Declaration:
    """Declaration of a collected test, "" for each missing part. Tests marked `spark` need not name area and client."""

    def marked(marker: str) -> str:
        found = item.get_closest_marker(marker)
        return str(found.args[0]) if found and found.args else ""

    if item.get_closest_marker("spark"):
        marks = marked("area") or "spark", marked("client") or "Spark"
    else:
        marks = marked("area"), marked("client")
    behaviour = marked("behaviour") or sentence(getattr(getattr(item, "function", None), "__doc__", None))
    return Declaration(*marks, behaviour)


def sentence(docstring: str | None) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((docstring or "").strip().partition("\n\n")[0].split())


class Report:
    """A pytest plugin that listens to a run and writes `stem`.md and `stem`.json at its end.

    Args:
        target: what kind of broker it ran against.
        stem: path of the two files without their suffixes.
    """

    def __init__(self, target: str, stem: Path) -> None:
        self.target = target
        self.stem = stem
        self.bootstrap = ""
        self.results: dict[str, Result] = {}
        self.declarations: dict[str, Declaration] = {}
        self._started = time.time()

    def pytest_itemcollected(self, item: Any) -> None:
        """Remembers what each test is about; as a property it also comes from the processes of pytest-xdist."""
        self.declarations[item.nodeid] = declaration_of(item)
        item.user_properties.append(("declaration", list(self.declarations[item.nodeid])))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Takes the outcome of each phase; the worst of them is the test's."""
        name = id_of(report.nodeid)
        declaration = Declaration(*dict(report.user_properties)["declaration"])
        before = self.results.get(name, Result(declaration, "passed", 0.0, ""))
        now = before._replace(seconds=before.seconds + report.duration)
        if OUTCOMES.index(report.outcome) > OUTCOMES.index(before.outcome):
            now = now._replace(outcome=report.outcome, detail=detail_of(report))
        self.results[name] = now

    def pytest_sessionfinish(self, session: Any) -> None:
        """Writes both files, if anything ran and this is not one of several processes."""
        if not self.results or hasattr(session.config, "workerinput"):
            return
        data = self.as_data()
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        self.stem.with_suffix(".json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        self.stem.with_suffix(".md").write_text(as_markdown(data))

    def as_data(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "format": FORMAT,
            "target": self.target,
            "bootstrap": self.bootstrap,
            "started": datetime.datetime.fromtimestamp(self._started, datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - self._started, 1),
            "python": sys.version.partition(" ")[0],
            "packages": {client: version_of(package) for client, package in PACKAGES.items()} | client_versions(),
            "totals": dict.fromkeys(OUTCOMES, 0) | Counter(result.outcome for result in self.results.values()),
            "tests": [
                {
                    "id": name,
                    "area": result.declaration.area,
                    "client": result.declaration.client,
                    "behaviour": result.declaration.behaviour,
                    "cites": sorted(set(CITATION.findall(result.declaration.behaviour))),
                    "outcome": result.outcome,
                    "seconds": round(result.seconds, 2),
                    "detail": result.detail,
                }
                for name, result in self.results.items()
            ],
        }


def id_of(nodeid: str) -> str:
    """A test's name without the folders before its file, which differ from one checkout to another."""
    path, _, test = nodeid.partition("::")
    return f"{Path(path).name}::{test}"


def detail_of(report: Any) -> str:
    """Reason of a skipped test, or the first line of the error of a failed one."""
    if report.skipped:
        reason = getattr(report, "wasxfail", "") or (
            report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        )
        return str(reason).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
    return lines[0][:500] if lines else ""


def version_of(package: str) -> str:
    """The installed version; "" without the package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def as_markdown(data: dict[str, Any]) -> str:
    """The report for people."""
    tests = data["tests"]
    packages = ", ".join(f"{name} ({version})" for name, version in data["packages"].items() if version)
    lines = [
        f"# Interop report: {data['target']}",
        "",
        (
            f"{in_words(data['totals'])} in {data['seconds']:.0f} s, at {data['started']}, "
            f"against {data['bootstrap'] or 'brokers of its own'}."
        ),
        "",
        f"Python {data['python']}; {packages}.",
        "",
        *table(
            ["area", "client", *COLUMNS, "seconds"],
            [
                [area, client, *(str(counts[outcome] or "") for outcome in COLUMNS), f"{seconds:.0f}"]
                for (area, client), (counts, seconds) in by_area_and_client(tests).items()
            ],
        ),
    ]
    failed = [test for test in tests if test["outcome"] == "failed"]
    if failed:
        lines += ["", "## Failed: what does not hold", ""]
        lines += [f"- {about(test)}\n  `{test['id']}`: {test['detail']}" for test in failed]
    reasons = Counter(test["detail"] for test in tests if test["outcome"] == "skipped")
    if reasons:
        lines += ["", "## Skipped", "", *(f"- {count}: {reason}" for reason, count in reasons.most_common())]
    return "\n".join(lines) + "\n"


def about(test: dict[str, Any]) -> str:
    """One test in words: area, client and behaviour."""
    return f"{test['area']}, {test['client']}: {test['behaviour']}"


def in_words(totals: dict[str, int]) -> str:
    """`210 passed, 1 failed, 3 skipped`."""
    return ", ".join(f"{totals[outcome]} {outcome}" for outcome in COLUMNS)


def by_area_and_client(tests: Iterable[dict[str, Any]]) -> dict[tuple[str, str], tuple[Counter[str], float]]:
    """Outcomes and seconds of each pair that has tests, sorted by name."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for test in tests:
        key = test["area"], test["client"]
        counts[key][test["outcome"]] += 1
        seconds[key] += test["seconds"]
    return {key: (counts[key], seconds[key]) for key in sorted(counts)}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table whose columns line up, so that it reads well in a terminal too."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(heads), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)]


def compare(ours: dict[str, Any], reference: dict[str, Any]) -> tuple[str, bool]:
    """Two reports side by side, in Markdown; and whether ours passes all that the reference passes.

    A test that was skipped, or is missing, in either one is told but counts for nothing: it says something about
    the run and not about the broker.
    """
    by_id = {test["id"]: test for test in reference["tests"]}
    our_ids = {test["id"] for test in ours["tests"]}
    pairs = [(test, by_id.get(test["id"], {"outcome": NOT_RUN})) for test in ours["tests"]]
    pairs += [(test | {"outcome": NOT_RUN}, test) for test in reference["tests"] if test["id"] not in our_ids]
    names = [ours["target"], reference["target"]]
    if names[0] == names[1]:
        names = [f"{data['target']} {data['started']}" for data in (ours, reference)]
    our_counts = by_area_and_client(ours["tests"])
    their_counts = by_area_and_client(reference["tests"])
    rows = [
        [*key, *(cell(counts.get(key)) for counts in (our_counts, their_counts))]
        for key in sorted(our_counts.keys() | their_counts.keys())
    ]
    rows.append(["all", "", *(cell((Counter(data["totals"]), 0.0)) for data in (ours, reference))])
    lines = [f"# {names[0]} beside {names[1]}", "", "Passed of run (and skipped).", ""]
    lines += table(["area", "client", *names], rows)
    worse = [test for test, theirs in pairs if (test["outcome"], theirs["outcome"]) == ("failed", "passed")]
    better = [test for test, theirs in pairs if (test["outcome"], theirs["outcome"]) == ("passed", "failed")]
    both = [test for test, theirs in pairs if test["outcome"] == theirs["outcome"] == "failed"]
    one_sided = [
        (test, theirs)
        for test, theirs in pairs
        if (test["outcome"] in ("skipped", NOT_RUN)) != (theirs["outcome"] in ("skipped", NOT_RUN))
    ]
    for title, tests in (
        (f"{names[1]} passes, {names[0]} fails", worse),
        (f"{names[0]} passes, {names[1]} fails", better),
        ("Both fail", both),
    ):
        if tests:
            lines += ["", f"## {title}", "", *(f"- {about(test)} `{test['id']}`" for test in tests)]
    if one_sided:
        lines += ["", "## Run against one of them only", ""]
        lines += [
            f"- {about(test)} `{test['id']}`: {test['outcome']} / {theirs['outcome']}" for test, theirs in one_sided
        ]
    lines += ["", f"{names[0]} fails {len(worse)} of what {names[1]} passes."]
    return "\n".join(lines) + "\n", not worse


def cell(counts: tuple[Counter[str], float] | None) -> str:
    """`12/13 (1)`: twelve of thirteen passed, one more was skipped."""
    if counts is None:
        return ""
    found = counts[0]
    text = f"{found['passed']}/{found['passed'] + found['failed']}"
    return f"{text} ({found['skipped']})" if found["skipped"] else text


def load(path: str) -> dict[str, Any]:
    """A report as it was written. Raises SystemExit when it is none of this format."""
    data: dict[str, Any] = json.loads(Path(path).read_text())
    if data.get("format") != FORMAT:
        raise SystemExit(f"{path} is no report of format {FORMAT}")
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m interop_tests.report", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="two reports side by side")
    comparing.add_argument("ours")
    comparing.add_argument("reference")
    showing = commands.add_parser("show", help="the Markdown of a JSON report")
    showing.add_argument("report")
    chosen = parser.parse_args(arguments)
    if chosen.command == "show":
        print(as_markdown(load(chosen.report)), end="")
        return 0
    text, is_as_good = compare(load(chosen.ours), load(chosen.reference))
    print(text, end="")
    return 0 if is_as_good else 1


if __name__ == "__main__":
    sys.exit(main())
