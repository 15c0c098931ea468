"""Nodes of one quorum and workers behind one port, by turns.

    python -m benchmarks.cores          # needs Go for the load on nodes; --only workers needs none

Nodes get franz-go's clients (benchmarks/load), workers get raw ones (benchmarks/cores/workers.py). Compare the columns
within a table: the clients differ between the two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.brokers import BrokerFailedError, median, process_cpu_s
from benchmarks.clusters import LocalNodes, memory_of
from benchmarks.cores.workers import WorkersRun, measure_workers
from benchmarks.go_programs import build, has_go
from benchmarks.reports import save, show
from interop_tests.clients import create_topic

NODE_COUNTS = (1, 2, 3)
SIZES = (100, 16_000)
PARTITIONS = 12
CLIENTS = 16
LOAD_TIMEOUT_S = 60.0
NODE_COLUMNS = ("bytes a request", "nodes", "requests/s", "CPU us each", "ready s", "RSS MB", "PSS MB")
WORKER_COLUMNS = ("bytes a request", "workers", "forwarded", "requests/s", "CPU us each", "PSS MB")


@dataclass(frozen=True, slots=True)
class NodesRun:
    """One load on `start --nodes`. CPU and memory are those of all processes; memory was read before the load."""

    nodes: int
    size: int
    requests_per_s: float
    cpu_us: float
    ready_s: float
    rss_mb: float
    pss_mb: float


def measure_nodes(load: Path, count: int, seconds: int) -> list[NodesRun]:
    """Starts the nodes and measures each size on a topic without copies, whose leaders are spread over them."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="bench-nodes-") as folder:
        nodes = LocalNodes(Path(folder), count)
        try:
            memory = memory_of(nodes.pids)
            for size in SIZES:
                topic = f"size-{size}"
                create_topic(nodes.bootstrap, topic, PARTITIONS, replicas=1)
                options = ["-clients", str(CLIENTS), "-duration", f"{seconds}s", "-size", str(size)]
                command = [str(load), "produce", "-brokers", nodes.bootstrap, "-topic", topic, *options]
                before_s = sum(map(process_cpu_s, nodes.pids))
                done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
                cpu_s = sum(map(process_cpu_s, nodes.pids)) - before_s
                if done.returncode != 0:
                    raise BrokerFailedError(f"the load on {count} nodes failed: {done.stderr}")
                found = json.loads(done.stdout)
                rate, cpu_us = found["records"] / found["seconds"], cpu_s * 1e6 / found["sent"]
                runs.append(NodesRun(count, size, rate, cpu_us, nodes.ready_s, memory.rss_mb, memory.pss_mb))
        finally:
            nodes.stop()
    return runs


def report(nodes: list[NodesRun], workers: list[WorkersRun]) -> None:
    """Medians of the rounds, on the screen and in files."""
    if nodes:
        rows = []
        for size, count in sorted({(run.size, run.nodes) for run in nodes}):
            mine = [run for run in nodes if (run.size, run.nodes) == (size, count)]
            names = ("requests_per_s", "cpu_us", "ready_s", "rss_mb", "pss_mb")
            values = [median([getattr(run, name) for run in mine]) for name in names]
            shown = [f"{value:,.{2 if name == 'ready_s' else 0}f}" for name, value in zip(names, values, strict=True)]
            rows.append([str(size), str(count), *shown])
        title = f"Nodes of one quorum, {CLIENTS} clients of franz-go, one record a request"
        show(title, NODE_COLUMNS, rows)
        print(f"written to {save('cores-nodes', title, NODE_COLUMNS, rows, [asdict(run) for run in nodes])}")
    if workers:
        rows = []
        for size, count, share in sorted({(run.size, run.workers, run.share) for run in workers}):
            group = [run for run in workers if (run.size, run.workers, run.share) == (size, count, share)]
            values = [median([getattr(run, name) for run in group]) for name in ("requests_per_s", "cpu_us", "pss_mb")]
            rows.append([str(size), str(count), f"{share:.2f}", *(f"{value:,.0f}" for value in values)])
        title = "Workers behind one port, raw clients, one record a request"
        show(title, WORKER_COLUMNS, rows)
        spreads = dict.fromkeys(f"{run.workers}: {run.spread}" for run in workers if run.workers > 1)
        print(f"connections that the kernel gave each worker before they were evened out: {', '.join(spreads)}")
        print(f"written to {save('cores-workers', title, WORKER_COLUMNS, rows, [asdict(run) for run in workers])}")


def main() -> int:
    """Measure by turns, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("--only", choices=("nodes", "workers"), default="", help="this part alone")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="seconds of each load (default %(default)s)")
    arguments = parser.parse_args()
    nodes: list[NodesRun] = []
    workers: list[WorkersRun] = []
    if arguments.only != "workers" and not has_go():
        print("cores: the load on nodes needs Go, which is not installed; --only workers does not", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
            load = build("load", Path(folder)) if arguments.only != "workers" else Path()
            for number in range(arguments.rounds):
                if arguments.only != "workers":
                    for count in NODE_COUNTS:
                        nodes += measure_nodes(load, count, arguments.seconds)
                if arguments.only != "nodes":
                    for size in SIZES:
                        workers += measure_workers(1, (0.0,), size, arguments.seconds)
                        workers += measure_workers(2, (0.0, 0.5, 1.0), size, arguments.seconds)
                        workers += measure_workers(4, (0.0, 0.5, 0.75), size, arguments.seconds)
                print(f"  round {number + 1} of {arguments.rounds} is done", file=sys.stderr, flush=True)
    except (BrokerFailedError, subprocess.TimeoutExpired) as error:
        print(f"cores: {error}", file=sys.stderr)
        return 2
    report(nodes, workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
