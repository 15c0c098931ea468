"""The report of a run: an HTML page with tables, and a PNG picture beside it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import plots
from pipeline.history import History
from pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pipeline.model import Pipeline
    from pipeline.settings import RunResult

TEMPLATE = Path(__file__).with_name("report.html.jinja")
DIFFERENCES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class QueryLine:
    """A line of the table of queries.

    Attributes:
        rows: records read, again those of triggers that a kill has interrupted.
        median_ms, longest_ms: durations of triggers.
        largest_lag: records that were fed and not read, at the worst moment; None if the run has sent no records.
        state_rows: the most rows that were in its state.
    """

    name: str
    batches: int
    rows: int
    median_ms: int
    longest_ms: int
    largest_lag: int | None
    state_rows: int


def query_lines(history: History) -> list[QueryLine]:
    """Sums over the batches of each query."""
    lines = []
    for name in history.read_to:
        batches = [batch for batch in history.batches if batch.query == name]
        durations = [batch.duration_ms for batch in batches]
        lag = max((history.lag(sample, name) for sample in history.samples), default=0)
        lines.append(
            QueryLine(
                name,
                len(batches),
                sum(batch.rows for batch in batches),
                round(statistics.median(durations)),
                max(durations),
                lag if history.is_fed else None,
                max(batch.state_rows for batch in batches),
            )
        )
    return lines


def verdict(result: RunResult) -> str:
    """The result of the check in one line."""
    if result.is_right:
        return f"all {result.rows:,} results are as computed"
    return f"{len(result.differences):,} of {result.rows:,} results are WRONG"


def html(pipeline: Pipeline, result: RunResult, plot: str | None) -> str:
    """The page; `plot` is the address of the picture."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(TEMPLATE.read_text())
    wrong = {name: sum(one.table == name for one in result.differences) for name in result.expected}
    page: str = template.render(
        pipeline=pipeline.name,
        summary=pipeline.summary,
        guarantee=pipeline.guarantee,
        verdict=verdict(result),
        facts=_facts(result),
        tables=[
            (name, f"{len(table):,}", f"{len(result.results.get(name, {})):,}", wrong[name])
            for name, table in result.expected.items()
        ],
        differences=result.differences[:DIFFERENCES_SHOWN],
        moments=result.history.moments,
        queries=query_lines(result.history),
        plot=plot,
    )
    return page


def _facts(result: RunResult) -> list[tuple[str, str]]:
    settings = result.settings
    nodes = "one node" if settings.nodes == 1 else f"{settings.nodes} nodes"
    where = settings.bootstrap_servers or f"pykbroker, {nodes}, started for this run"
    return [
        ("Kafka", where),
        ("input", f"{result.records:,} records of seed {settings.seed}"),
        ("chaos", "none" if settings.chaos is None else f"{len(result.history.kills)} kills of seed {settings.chaos}"),
        ("to repeat it", repeat_command(result.pipeline, settings)),
        ("digest of the results", result.digest),
        ("time", f"{result.seconds:.0f} s with the start of Kafka and Spark"),
    ]


def repeat_command(pipeline: str, settings: RunSettings) -> str:
    """The command that does a run again, on a Kafka of its own."""
    words = ["python -m spark_jobs run", pipeline, f"--seed {settings.seed}", f"--seconds {settings.seconds:g}"]
    if settings.size is not None:
        words.append(f"--events {settings.size}")
    if settings.chaos is not None:
        words.append("--chaos" if settings.chaos == settings.seed else f"--chaos --chaos-seed {settings.chaos}")
    if settings.nodes != 1:
        words.append(f"--nodes {settings.nodes}")
    return " ".join(words)


def write_report(pipeline: Pipeline, result: RunResult, folder: Path) -> Path:
    """Write page and picture into a folder; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = result.settings
    name = pipeline.name if settings.chaos is None else f"{pipeline.name}-chaos-{settings.chaos}"
    picture = None
    if plots.is_available():
        picture = f"{name}.png"
        kills = len(result.history.kills)
        title = f"{pipeline.name}: {result.records:,} records, {kills} kills, {verdict(result)}"
        plots.draw(result.history, title, folder / picture)
    page = folder / f"{name}.html"
    page.write_text(html(pipeline, result, picture))
    return page
