"""make bench-start: from process start to the first answered ApiVersions, and what an idle broker costs.

Each run starts on an empty folder (first start: format and all) and then again on the same folder. Memory and
processor time are read once the broker has been left alone for a few seconds. On a busy machine the time from start to
answer says little; the processor time in it stays.

A second table is about a fresh broker for one test (benchmarks/fresh.py), beside kfake.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass, field

from benchmarks import fresh
from benchmarks.brokers import KINDS, BrokerFailedError, median
from benchmarks.reports import save, show

GOAL_START_MS = 110.0
GOAL_FRESH_MS = 20.0
GOAL_MEMORY_MB = 28.0
COLUMNS = ("broker", "first start", "fastest", "of that CPU", "start again", "RSS idle", "PSS idle", "CPU idle")


@dataclass
class Measured:
    """All runs of one kind of broker."""

    first_start_ms: list[float] = field(default_factory=list)
    first_start_cpu_ms: list[float] = field(default_factory=list)
    again_ms: list[float] = field(default_factory=list)
    rss_mb: float = 0.0
    pss_mb: float = 0.0
    cpu_percent: float = 0.0

    def row(self, name: str) -> list[str]:
        """As a line of the table."""
        return [
            name,
            f"{median(self.first_start_ms):.0f} ms",
            f"{min(self.first_start_ms):.0f} ms",
            f"{median(self.first_start_cpu_ms):.0f} ms",
            f"{median(self.again_ms):.0f} ms",
            f"{self.rss_mb:.1f} MB",
            f"{self.pss_mb:.1f} MB",
            f"{self.cpu_percent:.2f} %",
        ]


def measure(kind: str, runs: int, settle_s: float, watch_s: float) -> Measured:
    """Start a broker `runs` times on an empty folder, each time once more, and look at the last one when it is idle."""
    measured = Measured()
    # The first start of all writes Python's byte code, or fills the page cache with jars: not counted.
    for run in range(runs + 1):
        with KINDS[kind]() as broker:
            if run:
                measured.first_start_ms.append(broker.start_ms)
                measured.first_start_cpu_ms.append(broker.start_cpu_ms)
            broker.stop()
            broker.start()
            if run:
                measured.again_ms.append(broker.start_ms)
            if run == runs:
                time.sleep(settle_s)
                memory = broker.memory()
                measured.rss_mb, measured.pss_mb = memory.rss_mb, memory.pss_mb
                measured.cpu_percent = broker.idle_cpu_percent(watch_s)
        print(f"  {kind} run {run} of {runs}: {broker.start_ms:.0f} ms", file=sys.stderr, flush=True)
    return measured


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="make bench-start ARGS=...", description="Start-up time and idle cost")
    parser.add_argument("--runs", type=int, default=7, help="starts that count (default %(default)s)")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too (needs Java)")
    parser.add_argument("--fresh-runs", type=int, default=20, metavar="N", help="fresh brokers that count")
    parser.add_argument("--only-fresh", action="store_true", help="measure fresh brokers for tests alone")
    parser.add_argument("--settle", type=float, default=3.0, metavar="S", help="wait before reading memory")
    parser.add_argument("--watch", type=float, default=10.0, metavar="S", help="how long to watch the idle broker")
    arguments = parser.parse_args()
    try:
        if arguments.only_fresh:
            return report_fresh(arguments.fresh_runs)
        results = {"pykbroker": measure("pykbroker", arguments.runs, arguments.settle, arguments.watch)}
        if arguments.kafka:
            results["kafka"] = measure("kafka", min(arguments.runs, 3), arguments.settle, arguments.watch)
    except BrokerFailedError as error:
        print(f"bench-start: {error}", file=sys.stderr)
        return 2
    rows = [measured.row(name) for name, measured in results.items()]
    title = "Process start to first answered ApiVersions (median), and idle cost"
    show(title, COLUMNS, rows)
    path = save("start", title, COLUMNS, rows, {name: asdict(measured) for name, measured in results.items()})
    ours = results["pykbroker"]
    start_ms = median(ours.first_start_ms)
    for what, value, goal, unit in (
        ("start ", start_ms, GOAL_START_MS, "ms"),
        ("memory", ours.rss_mb, GOAL_MEMORY_MB, "MB"),
    ):
        print(f"{what}  {value:.0f} {unit}, goal {goal:.0f} {unit}: {'met' if value <= goal else 'MISSED'}")
    print(f"written to {path}")
    return report_fresh(arguments.fresh_runs)


def report_fresh(runs: int) -> int:
    """Measure, print and save fresh brokers for tests."""
    results = fresh.measure(runs)
    rows = [measured.row(name) for name, measured in results.items()]
    title = "A fresh broker for one test: from the call to the first answered ApiVersions"
    show(title, fresh.COLUMNS, rows)
    path = save("fresh", title, fresh.COLUMNS, rows, {name: vars(measured) for name, measured in results.items()})
    start_ms = median(next(iter(results.values())).start_ms)
    print(f"fresh   {start_ms:.0f} ms, goal {GOAL_FRESH_MS:.0f} ms: {'met' if start_ms <= GOAL_FRESH_MS else 'MISSED'}")
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
