"""One run's report: per area how many tests pass, fail and are skipped, and what each failing one stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class Area:
    """The outcomes of one test module."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.outcomes: dict[str, str] = {}
        self.behaviours: dict[str, str] = {}
        self.seconds = 0.0

    def count(self, outcome: str) -> int:
        """How many tests ended so: "passed", "failed" or "skipped"."""
        return sum(found == outcome for found in self.outcomes.values())

    def failures(self) -> dict[str, str]:
        """The failing tests and the first line of what each says about itself."""
        return {name: self.behaviours[name] for name, outcome in self.outcomes.items() if outcome == "failed"}


class Report:
    """A pytest plugin that listens to a run and writes `stem`.md and `stem`.json at its end."""

    def __init__(self, target: str, stem: Path) -> None:
        self.target = target
        self.stem = stem
        self.areas: dict[str, Area] = {}
        self.behaviours: dict[str, str] = {}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remembers what each test is about."""
        function = getattr(item, "function", None)
        self.behaviours[item.nodeid] = first_line(getattr(function, "__doc__", None)) or item.name
        module = getattr(item, "module", None)
        self.areas.setdefault(module_of(item.nodeid), Area(first_line(getattr(module, "__doc__", None))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the outcome of each phase; a failure in any of them is the test's."""
        area = self.areas[module_of(report.nodeid)]
        name = report.nodeid.partition("::")[2]
        area.seconds += report.duration
        area.behaviours[name] = self.behaviours[report.nodeid]
        if report.failed or (area.outcomes.get(name) != "failed" and (report.when == "call" or report.skipped)):
            area.outcomes[name] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Writes both files, if anything ran."""
        if not any(area.outcomes for area in self.areas.values()):
            return
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        self.stem.with_suffix(".md").write_text(self.as_markdown())
        self.stem.with_suffix(".json").write_text(json.dumps(self.as_data(), indent=1) + "\n")

    def as_markdown(self) -> str:
        """The report for people."""
        lines = [f"# Interop tests against {self.target}", "", "| area | passed | failed | skipped | seconds | about |"]
        lines.append("|---|---|---|---|---|---|")
        for name, area in self.areas.items():
            counts = " | ".join(str(area.count(outcome)) for outcome in ("passed", "failed", "skipped"))
            lines.append(f"| {name} | {counts} | {area.seconds:.0f} | {area.title} |")
        failures = [
            f"- {name} {test}: {about}" for name, area in self.areas.items() for test, about in area.failures().items()
        ]
        if failures:
            lines += ["", "Failed:", "", *failures]
        return "\n".join(lines) + "\n"

    def as_data(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "target": self.target,
            "areas": {
                name: {
                    "passed": area.count("passed"),
                    "failed": area.count("failed"),
                    "skipped": area.count("skipped"),
                    "seconds": round(area.seconds, 1),
                    "failures": area.failures(),
                }
                for name, area in self.areas.items()
            },
        }


def module_of(nodeid: str) -> str:
    """`test_codecs` of `interop_tests/test_codecs.py::test_x`."""
    return Path(nodeid.partition("::")[0]).stem


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().partition("\n")[0]
