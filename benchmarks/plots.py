"""make bench-plots: draws reports/bench/*.json as PNG beside them.

It runs in an environment of its own (requirements/plots.txt) and imports nothing but matplotlib and what reads reports.
One bar is the median of a broker's rounds. A scale is logarithmic: what is compared differs by factors. A case that a
broker cannot do, or that has no such figure, has no bar but the word `missing` or none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

from benchmarks.summaries import Label, medians

matplotlib.use("Agg")
from matplotlib import pyplot

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "bench"
COLOURS = {"pykbroker": "#1b7f79", "kafka": "#7a7a7a", "kfake": "#d98324"}


class Picture(NamedTuple):
    """One PNG: for each figure a panel of bars, a group of bars for each case, a bar for each broker."""

    name: str
    report: str
    figures: dict[str, str]
    """Names in the report, with what stands above the panel."""


PICTURES = (
    Picture("tools", "throughput", {"records_per_s": "records/s", "cpu_s_per_gb": "broker CPU s per GB"}),
    Picture("tools-latency", "throughput", {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "p999_ms": "p99.9 ms"}),
    Picture("shapes", "shapes", {"per_s": "records (transactions) a second", "cpu_us": "broker CPU, us for each"}),
    Picture(
        "shapes-latency",
        "shapes",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "max_ms": "longest, ms"},
    ),
    Picture("spark", "spark", {"mb_per_s": "MB/s", "cpu_s": "broker CPU, s"}),
    Picture("spark-latency", "spark", {"p50_ms": "p50 ms", "p99_ms": "p99 ms"}),
    Picture(
        "group",
        "group",
        {"assigned_s": "all assigned, s", "rebalance_s": "one leaves, s", "idle_cpu_percent": "broker CPU %, idle"},
    ),
)


def draw(picture: Picture, content: dict[str, Any], target: Path) -> None:
    """Draws one picture from a report's JSON."""
    found = medians(content["results"])
    brokers = list(dict.fromkeys(broker for _, broker in found))
    missing = {(result["case"], result["broker"]) for result in content["results"] if result.get("missing")}
    # A case without any of the figures, such as a latency of reading, takes no room.
    cases = [
        case
        for case in dict.fromkeys(case for case, _ in found)
        if any(found.get((case, broker), {}).get(figure) for broker in brokers for figure in picture.figures)
    ]
    height = 1.6 + 0.24 * len(cases) * len(brokers)
    canvas, panels = pyplot.subplots(
        1, len(picture.figures), figsize=(4 + 4.2 * len(picture.figures), height), sharey=True, squeeze=False
    )
    for panel, (figure, heading) in zip(panels[0], picture.figures.items(), strict=True):
        panel.set_title(heading, fontsize=10)
        panel.set_xscale("log")
        panel.margins(x=0.2)
        for number, broker in enumerate(brokers):
            bars(panel, (number, len(brokers)), broker, figure, cases, found, missing)
        panel.set_yticks(range(len(cases)), cases, fontsize=8)
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(axis="x", alpha=0.3)
    panels[0][0].invert_yaxis()
    panels[0][-1].legend(*panels[0][0].get_legend_handles_labels(), fontsize=8, loc="lower right")
    about = content["machine"]
    canvas.suptitle(f"{content['title']}\n{about['processor']}, {about['cores']} cores, {about['when']}", fontsize=10)
    canvas.tight_layout()
    canvas.savefig(target, dpi=110)
    pyplot.close(canvas)


def bars(
    panel: Any,
    place: tuple[int, int],
    broker: str,
    figure: str,
    cases: list[str],
    found: dict[Label, dict[str, float]],
    missing: set[Label],
) -> None:
    """The bars of one broker; `place` is its number and the number of brokers."""
    thickness = 0.8 / place[1]
    heights, widths = [], []
    for row, case in enumerate(cases):
        height = row + (place[0] - (place[1] - 1) / 2) * thickness
        value = found.get((case, broker), {}).get(figure)
        if value:
            heights.append(height)
            widths.append(value)
        elif (case, broker) in missing:
            panel.text(
                0.02, height, f"{broker}: missing", va="center", fontsize=6, transform=panel.get_yaxis_transform()
            )
    drawn = panel.barh(heights, widths, height=thickness, label=broker, color=COLOURS.get(broker))
    panel.bar_label(
        drawn, [f"{width:,.3g}" if width < 1000 else f"{width:,.0f}" for width in widths], padding=2, fontsize=6
    )


def main() -> int:
    """Draws what there is a report of."""
    drawn = 0
    for picture in PICTURES:
        report = REPORTS / f"{picture.report}.json"
        if report.exists():
            target = REPORTS / f"{picture.name}.png"
            draw(picture, json.loads(report.read_text()), target)
            print(f"drawn: {target}")
            drawn += 1
    if not drawn:
        print(f"plots: there are no reports in {REPORTS}: run `make bench` first", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
