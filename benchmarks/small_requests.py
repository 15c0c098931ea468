"""Small requests: what one of them costs a broker, and how long its client waits.

    python -m benchmarks.small_requests                             # this broker, Apache Kafka and kfake, in turn
    python -m benchmarks.small_requests --broker pykbroker --only "one client" --rounds 1

The clients are franz-go's, in one process of Go (benchmarks/load). Every record is a request of its own, except at the
fixed rate, where the client puts into one request what has come together. CPU is the broker's own, for each record.
Rounds of the brokers alternate, and the table has the medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.brokers import KINDS, Broker, BrokerFailedError, median, scheduled_ms
from benchmarks.go_programs import Kfake, build, has_go
from benchmarks.reports import save, show

SHAPES = {
    "16 clients": ["produce", "-clients", "16"],
    "one client": ["produce", "-clients", "1"],
    "end to end": ["endtoend"],
    "20,000 a second": ["rate", "-per-second", "20000"],
}
COLUMNS = ("shape, broker", "records/s", "CPU us each", "p50 us", "p99 us", "p99.9 us", "max us")
LOAD_TIMEOUT_S = 120.0
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One shape on one broker. Latencies and processor time in microseconds."""

    shape: str
    broker: str
    records_per_s: float
    cpu_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


def create_topic(broker: Broker, topic: str) -> None:
    """A topic with PARTITIONS partitions, by a stock client."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()


def measure(load: Path, broker: Broker, shape: str, seconds: int, size: int) -> Run:
    """Runs the load of a shape on a topic of its own."""
    topic = shape.replace(" ", "-").replace(",", "")
    create_topic(broker, topic)
    options = ["-brokers", broker.bootstrap_servers, "-topic", topic, "-duration", f"{seconds}s", "-size", str(size)]
    before_ms = scheduled_ms(broker.pid)
    done = subprocess.run(
        [str(load), *SHAPES[shape], *options], capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
    )
    cpu_ms = scheduled_ms(broker.pid) - before_ms
    if done.returncode != 0:
        raise BrokerFailedError(f"the load {shape!r} on {broker.name} failed: {done.stderr}")
    found = json.loads(done.stdout)
    latencies = (found["p50_us"], found["p99_us"], found["p999_us"], found["max_us"])
    return Run(shape, broker.name, found["records"] / found["seconds"], cpu_ms * 1000 / found["sent"], *latencies)


def table_rows(runs: list[Run]) -> list[list[str]]:
    """A line for each shape and broker, with the medians of its rounds."""
    rows = []
    for shape, broker in dict.fromkeys((run.shape, run.broker) for run in runs):
        mine = [run for run in runs if (run.shape, run.broker) == (shape, broker)]
        names = ("records_per_s", "cpu_us", "p50_us", "p99_us", "p999_us", "max_us")
        rows.append([f"{shape}, {broker}", *(f"{median([getattr(run, name) for run in mine]):,.0f}" for name in names)])
    return sorted(rows, key=lambda row: list(SHAPES).index(row[0].rpartition(", ")[0]))


def main() -> int:
    """Measure, print, save."""
    kinds = {**KINDS, Kfake.name: Kfake}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_requests", description=__doc__)
    parser.add_argument("--broker", action="append", choices=kinds, help="measure this one; may be repeated")
    parser.add_argument("--only", action="append", choices=SHAPES, help="this shape; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each broker (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each shape (default 5)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a record's value (default 100)")
    arguments = parser.parse_args()
    if not has_go():
        print("small_requests: the load needs Go, which is not installed", file=sys.stderr)
        return 2
    runs: list[Run] = []
    try:
        with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
            load = build("load", Path(folder))
            chosen = arguments.broker or list(kinds)
            if Kfake.name in chosen:
                Kfake.program = build("kfake", Path(folder))
            for number in range(arguments.rounds):
                for kind in chosen:
                    with kinds[kind]() as broker:
                        for shape in arguments.only or SHAPES:
                            run = measure(load, broker, shape, arguments.seconds, arguments.size)
                            print(f"  round {number + 1}: {run}", file=sys.stderr, flush=True)
                            runs.append(run)
    except (BrokerFailedError, subprocess.TimeoutExpired) as error:
        print(f"small_requests: {error}", file=sys.stderr)
        return 2
    rows = table_rows(runs)
    title = f"One record a request, {arguments.size} bytes, {PARTITIONS} partitions, franz-go"
    show(title, COLUMNS, rows)
    print(f"written to {save('small_requests', title, COLUMNS, rows, [asdict(run) for run in runs])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
