"""make bench-cluster: what three nodes on this machine cost and carry, ours beside Apache Kafka's.

Start: from the first process to the moment when all three answer and know each other, on folders that are formatted
where that is a step of its own. Memory and processor time: of all processes together, when nothing is asked.
Throughput: ProducerPerformance with acks=all to a topic with three replicas; both clusters by turns in one run. The
tool and the nodes share the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.brokers import BrokerFailedError, median
from benchmarks.clusters import LocalNodes, cpu_s_of, memory_of, started
from benchmarks.reports import save, show
from benchmarks.throughput import PRODUCER_LINE, ToolFailedError, run_tool
from interop_tests.clients import create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

GOAL_START_S = 1.5
GOAL_MEMORY_MB = 200.0
PARTITIONS = 6
BATCH_SIZE = 16384
KINDS = ("pykbroker", "kafka")
IDLE_COLUMNS = ("cluster", "ready", "fastest", "RSS idle", "PSS idle", "CPU idle")
COLUMNS = ("record", "cluster", "records/s", "MB/s", "p50 ms", "p99 ms", "CPU s per GB")


def start_of_ours(runs: int, settle_s: float, watch_s: float) -> dict[str, list[float]]:
    """`pykbroker start --nodes 3` so many times; the last one is watched when it is idle."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in range(runs + 1):
        with tempfile.TemporaryDirectory(prefix="bench-nodes-") as folder:
            nodes = LocalNodes(Path(folder))
            try:
                if run:  # the first start of all writes byte code
                    found["ready_s"].append(nodes.ready_s)
                if run == runs:
                    watch(nodes.pids, settle_s, watch_s, found)
            finally:
                nodes.stop()
        print(f"  start --nodes 3, run {run} of {runs}: {nodes.ready_s:.2f} s", file=sys.stderr, flush=True)
    return found


def start_of_kafka(runs: int, settle_s: float, watch_s: float) -> dict[str, list[float]]:
    """The same for three nodes of Apache Kafka."""
    found: dict[str, list[float]] = defaultdict(list)
    with started("kafka") as cluster:
        for run in range(runs):
            for node in cluster.nodes.values():
                # In order, the last one would wait for minutes for the others to take over.
                node.kill()
            began = time.perf_counter()
            cluster.start()
            found["ready_s"].append(time.perf_counter() - began)
            print(f"  kafka, run {run + 1} of {runs}: {found['ready_s'][-1]:.2f} s", file=sys.stderr, flush=True)
        watch([node.pid for node in cluster.nodes.values()], settle_s, watch_s, found)
    return found


def watch(pids: Sequence[int], settle_s: float, watch_s: float, found: dict[str, list[float]]) -> None:
    """Memory and processor time of processes that nobody asks for anything."""
    time.sleep(settle_s)
    memory = memory_of(pids)
    before = cpu_s_of(pids)
    time.sleep(watch_s)
    found["rss_mb"].append(memory.rss_mb)
    found["pss_mb"].append(memory.pss_mb)
    found["cpu_percent"].append(100 * (cpu_s_of(pids) - before) / watch_s)


def throughput(kind: str, size: int, payload_mb: int) -> dict[str, float]:
    """One run of the tool on a fresh cluster, after a warm-up of a fifth."""
    with started(kind) as cluster:
        pids = [node.pid for node in cluster.nodes.values()]
        create_topic(cluster.bootstrap, "warm-up", PARTITIONS, replicas=3)
        create_topic(cluster.bootstrap, "records", PARTITIONS, replicas=3)
        produce(cluster.bootstrap, "warm-up", payload_mb * 200_000 // size, size)
        before = cpu_s_of(pids)
        line = produce(cluster.bootstrap, "records", payload_mb * 1_000_000 // size, size)
        cpu_s = cpu_s_of(pids) - before
    rate = float(line["rate"])
    return {
        "records_per_s": rate,
        "mb_per_s": rate * size / 1e6,
        "p50_ms": float(line["p50"]),
        "p99_ms": float(line["p99"]),
        "cpu_s_per_gb": cpu_s / (payload_mb / 1000),
    }


def produce(bootstrap: str, topic: str, count: int, size: int) -> dict[str, str]:
    """ProducerPerformance with acks=all; what its closing line says."""
    properties = (f"bootstrap.servers={bootstrap}", "acks=all", f"batch.size={BATCH_SIZE}")
    options = ("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
    output = run_tool("ProducerPerformance", *options, "--producer-props", *properties)
    matches = list(PRODUCER_LINE.finditer(output))
    if not matches or int(matches[-1]["count"]) != count:
        raise ToolFailedError(f"ProducerPerformance did not send {count} records:\n{output[-1500:]}")
    return matches[-1].groupdict()


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="make bench-cluster ARGS=...", description="Three nodes on one machine")
    parser.add_argument("--rounds", type=int, default=3, help="of each throughput (default %(default)s)")
    parser.add_argument("--starts", type=int, default=5, help="starts that count (default %(default)s)")
    parser.add_argument("--payload", type=int, default=100, metavar="MB", help="of each run (default %(default)s)")
    parser.add_argument("--cluster", choices=KINDS, help="measure this one alone")
    parser.add_argument("--only", choices=("start", "throughput"), default="", help="this part alone")
    arguments = parser.parse_args()
    kinds = [arguments.cluster] if arguments.cluster else list(KINDS)
    idle: dict[str, dict[str, list[float]]] = {}
    rates: dict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
    try:
        if arguments.only in ("", "start"):
            if "pykbroker" in kinds:
                idle["pykbroker"] = start_of_ours(arguments.starts, 3, 10)
            if "kafka" in kinds:
                idle["kafka"] = start_of_kafka(min(arguments.starts, 3), 3, 10)
        if arguments.only in ("", "throughput"):
            for number in range(arguments.rounds):
                for size in (100, 1000):
                    for kind in kinds:
                        rates[size, kind].append(throughput(kind, size, arguments.payload))
                        rate = rates[size, kind][-1]["records_per_s"]
                        text = f"  round {number + 1}: {kind}, {size} B: {rate:,.0f} records/s"
                        print(text, file=sys.stderr, flush=True)
    except (BrokerFailedError, ToolFailedError) as error:
        print(f"bench-cluster: {error}", file=sys.stderr)
        return 2
    report(idle, rates)
    return 0


def report(idle: dict[str, dict[str, list[float]]], rates: dict[tuple[int, str], list[dict[str, float]]]) -> None:
    """Two tables, on the screen and in files, and what became of the goals."""
    if idle:
        rows = [
            [
                kind,
                f"{median(found['ready_s']):.2f} s",
                f"{min(found['ready_s']):.2f} s",
                f"{found['rss_mb'][0]:.0f} MB",
                f"{found['pss_mb'][0]:.0f} MB",
                f"{found['cpu_percent'][0]:.1f} %",
            ]
            for kind, found in idle.items()
        ]
        title = "Three nodes on one machine: start until all answer (median), and idle cost of all processes"
        show(title, IDLE_COLUMNS, rows)
        print(f"written to {save('cluster-start', title, IDLE_COLUMNS, rows, idle)}")
        if "pykbroker" in idle:
            ready_s, rss_mb = median(idle["pykbroker"]["ready_s"]), idle["pykbroker"]["rss_mb"][0]
            print(f"ready   {ready_s:.2f} s, goal {GOAL_START_S} s: {'met' if ready_s <= GOAL_START_S else 'MISSED'}")
            verdict = "met" if rss_mb <= GOAL_MEMORY_MB else "MISSED"
            print(f"memory  {rss_mb:.0f} MB, goal {GOAL_MEMORY_MB:.0f} MB: {verdict}")
    if rates:
        middle = {
            place: {name: median([run[name] for run in runs]) for name in runs[0]} for place, runs in rates.items()
        }
        rows = [
            [f"{size} B", kind, *(f"{value:,.{1 if name == 'mb_per_s' else 0}f}" for name, value in values.items())]
            for (size, kind), values in middle.items()
        ]
        title = f"Three nodes: ProducerPerformance, acks=all, 3 replicas, {PARTITIONS} partitions (median)"
        show(title, COLUMNS, rows)
        data = [{"size": size, "cluster": kind, "runs": runs} for (size, kind), runs in rates.items()]
        print(f"written to {save('cluster-throughput', title, COLUMNS, rows, data)}")
        for size in sorted({size for size, _ in rates}):
            if (size, "pykbroker") in middle and (size, "kafka") in middle:
                ratio = middle[size, "pykbroker"]["records_per_s"] / middle[size, "kafka"]["records_per_s"]
                print(f"{size} B: {ratio:.2f} times Apache Kafka, goal 1.00: {'met' if ratio >= 1 else 'MISSED'}")


if __name__ == "__main__":
    sys.exit(main())
