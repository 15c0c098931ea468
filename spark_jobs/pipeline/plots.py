"""The plots of a report by matplotlib: four panels over the same seconds, with a line for each kill."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pipeline.history import History

KILL_COLOURS = {"job": "tab:red", "database": "tab:purple"}
BROKER_COLOUR = "tab:orange"
WINDOW_S = 2.0
CLIPPED_FROM = 3.0
"""A panel of delays is clipped at so many times their median."""


def is_available() -> bool:
    """True if matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(history: History, title: str, path: Path) -> None:
    """Write the four panels as a PNG file: throughput, lag, batch duration, watermark delay."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(4, 1, sharex=True, figsize=(9, 9.5), layout="constrained")
    figure.suptitle(title, fontsize=11)
    _throughput(panels[0], history)
    _lag(panels[1], history)
    _durations(panels[2], history)
    _watermark_delay(panels[3], history)
    panels[3].set_xlabel("seconds since the run began")
    for panel in panels:
        panel.grid(alpha=0.25)
        if not panel.lines:
            _say_empty(panel)
        panel.set_ylim(bottom=0)
        _mark_moments(panel, history, with_labels=panel is panels[0])
        if panel.get_legend_handles_labels()[1]:
            panel.legend(loc="upper left", fontsize=7, ncols=2)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def rates(points: list[tuple[float, int]], window_s: float = WINDOW_S) -> list[tuple[float, float]]:
    """Growth per second of a counter, at each point over the window before it; points are (seconds, count)."""
    found = []
    first = 0
    for at_s, count in points:
        while points[first][0] < at_s - window_s:
            first += 1
        before_s, before = points[first]
        if at_s > before_s:
            found.append((at_s, (count - before) / (at_s - before_s)))
    return found


def _throughput(panel: Any, history: History) -> None:
    panel.set_ylabel("records/s")
    if history.is_fed:
        fed = rates([(sample.at_s, sum(sample.fed.values())) for sample in history.samples])
        panel.plot(*_columns(fed), color="black", linewidth=1, label="fed")
    for query in history.read_to:
        points = [(sample.at_s, sum(sample.read_to.get(query, {}).values())) for sample in history.samples]
        panel.plot(*_columns(rates(points)), linewidth=1, label=f"read by {query}")


def _lag(panel: Any, history: History) -> None:
    panel.set_ylabel("lag, records")
    for query in history.read_to if history.is_fed else ():
        points = [(sample.at_s, history.lag(sample, query)) for sample in history.samples]
        panel.plot(*_columns(points), linewidth=1, label=query)


def _durations(panel: Any, history: History) -> None:
    panel.set_ylabel("batch duration, s")
    for query in history.read_to:
        batches = [batch for batch in history.batches if batch.query == query]
        points = [(batch.at_s - history.began_at, batch.duration_ms / 1000) for batch in batches]
        panel.plot(*_columns(points), marker=".", markersize=4, linewidth=0.8, label=query)


def _watermark_delay(panel: Any, history: History) -> None:
    panel.set_ylabel("watermark delay, min")
    delays: list[float] = []
    for query in history.read_to:
        batches = [batch for batch in history.batches if batch.query == query and batch.watermark_delay_s is not None]
        points = [(batch.at_s - history.began_at, (batch.watermark_delay_s or 0) / 60) for batch in batches]
        if points:
            panel.plot(*_columns(points), marker=".", markersize=4, linewidth=0.8, label=query)
            delays += [delay for _, delay in points]
    # The event that closes the input is hours later than the others: at that scale nothing else could be seen.
    if delays and max(delays) > (top := CLIPPED_FROM * statistics.median(delays)) > 0:
        panel.set_ylim(top=top)
        note = f"up to {max(delays):.0f} min, when the event that closes the input is read"
        panel.text(0.99, 0.95, note, transform=panel.transAxes, ha="right", va="top", fontsize=7)


def _say_empty(panel: Any) -> None:
    what = panel.get_ylabel().partition(",")[0]
    why = {"lag": "the input is no topic", "watermark delay": "no query has a watermark"}.get(what, "no data")
    panel.set_yticks([])
    panel.text(0.5, 0.5, why, transform=panel.transAxes, ha="center", va="center", color="grey")


def _mark_moments(panel: Any, history: History, with_labels: bool) -> None:
    labelled: set[str] = set()

    def label(text: str) -> str | None:
        if not with_labels or text in labelled:
            return None
        labelled.add(text)
        return text

    for moment in history.moments:
        if moment.kind == "stage":
            panel.axvline(moment.at_s, color="grey", linestyle=":", linewidth=0.8, label=label("a stage begins"))
        if not moment.is_kill:
            continue
        colour = next((c for word, c in KILL_COLOURS.items() if moment.text.startswith(word)), BROKER_COLOUR)
        named = label(f"kill -9 {moment.name}")
        panel.axvline(moment.at_s, color=colour, linestyle="--", linewidth=1.2, label=named)


def _columns(points: list[tuple[float, Any]]) -> tuple[list[float], list[Any]]:
    return [at_s for at_s, _ in points], [value for _, value in points]
