"""Runs the shapes of benchmarks/shapes.py: what each costs a broker, and how long its clients wait.

The clients are franz-go's, in one process of Go (benchmarks/load). CPU is the broker's own. Latency is from the call of
the client to the answer: of shapes in batches that is mostly the wait in the client's own queue, of transactions it is
the commit's. A second line has that of the whole transaction, in which every wait for the broker falls.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.brokers import Broker, BrokerFailedError
from benchmarks.go_programs import Kfake
from benchmarks.reports import figure, save, show
from benchmarks.shapes import Shape, topic_of
from benchmarks.summaries import medians, missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COLUMNS = ("shape", "broker", "per s", "CPU us each", "CPU s per GB", "p50 ms", "p99 ms", "p99.9 ms", "max ms")
WHOLE = "whole"
LOAD_TIMEOUT_S = 300.0
COMPACTION_TIMEOUT_S = 120.0
# Records that every broker gets before it is measured: the first ones of a JVM say nothing.
WARM_UP = 100_000
QUICK_WARM_UP = 20_000
# So that a compaction is measured and not the wait for it, which is 15 s by default.
OVERRIDES = ("log.cleaner.backoff.ms=1000",)


@dataclass(frozen=True, slots=True)
class Run:
    """One shape on one broker; None for a figure that the shape does not have.

    Attributes:
        case: the shape.
        broker: its name.
        unit: `per_s` and `cpu_us` count these.
        cpu_s_per_gb: processor seconds for a GB of values, not compressed.
        missing: the reason, if the broker cannot do it; then there are no figures.
    """

    case: str
    broker: str
    unit: str
    per_s: float | None = None
    cpu_us: float | None = None
    cpu_s_per_gb: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    missing: str = ""


FIGURES = ("per_s", "cpu_us", "cpu_s_per_gb", "p50_ms", "p99_ms", "p999_ms", "max_ms")


def create_topic(broker: Broker, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    """A topic, by a stock client."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, replication_factor=1, topic_configs=configs)])
    except ValueError:
        # kafka-python cannot read the sources of settings in kfake's answer; the topic has been created by then.
        if broker.name != Kfake.name:
            raise
    admin.close()


def run_load(load: Path, broker: Broker, *arguments: str) -> dict[str, Any]:
    """Runs the Go load; what it prints.

    Raises:
        BrokerFailedError: it failed.
    """
    command = [str(load), arguments[0], "-brokers", broker.bootstrap_servers, *arguments[1:]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BrokerFailedError(f"{arguments[0]} on {broker.name} took over {LOAD_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise BrokerFailedError(f"{arguments[0]} on {broker.name} failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def warm_up(load: Path, broker: Broker, *, quick: bool) -> None:
    """Writes records that nothing counts."""
    create_topic(broker, "warm-up", 4)
    run_load(load, broker, "bulk", "-topic", "warm-up", "-records", str(QUICK_WARM_UP if quick else WARM_UP))


def arguments_of(shape: Shape, seconds: int, *, quick: bool) -> list[str]:
    """The arguments of the Go load for a shape, without the broker."""
    count = shape.count(quick=quick)
    amount = ["-records", str(count)] if count else ["-duration", f"{seconds}s"]
    return [*shape.load, "-topic", topic_of(shape), "-size", str(shape.size), *amount]


def measure(load: Path, broker: Broker, shape: Shape, seconds: int, *, quick: bool) -> list[Run]:
    """Runs the load of a shape, on a topic of its own unless it reads another's; its figures."""
    if not shape.reads:
        create_topic(broker, topic_of(shape), shape.partitions, shape.configs)
    before_s = broker.cpu_s()
    found = run_load(load, broker, *arguments_of(shape, seconds, quick=quick))
    if shape.is_compacted:
        wait_until_compacted(broker, topic_of(shape), round(found["sent"]) * shape.size)
    return runs_of(shape, broker.name, found, broker.cpu_s() - before_s)


def runs_of(shape: Shape, broker: str, found: dict[str, Any], cpu_s: float) -> list[Run]:
    """The figures of what the load found and the broker used; of transactions also the latencies of whole ones."""
    cpu_us = cpu_s * 1e6 / found["sent"]
    # A commit has no size.
    per_gb = cpu_us * 1000 / shape.size if shape.unit == "record" else None
    figures: dict[str, Any] = {
        "per_s": found["records"] / found["seconds"],
        "cpu_us": cpu_us,
        "cpu_s_per_gb": per_gb,
        **latencies_of(found),
    }
    runs = [replace(Run(shape.name, broker, shape.unit), **figures)]
    if "whole" in found:
        runs.append(Run(f"{shape.name}, {WHOLE}", broker, shape.unit, **latencies_of(found["whole"])))
    return runs


def latencies_of(found: dict[str, Any]) -> dict[str, Any]:
    """Latencies in milliseconds by the names of `Run`; none of a shape that has none."""
    names = ("p50", "p99", "p999", "max")
    return {f"{name}_ms": found[f"{name}_us"] / 1000 for name in names} if found["max_us"] else {}


def wait_until_compacted(broker: Broker, topic: str, written: int) -> None:
    """Returns when the topic's logs have a fifth of the bytes that were written, or less, and get no smaller.

    The active segments stay as they are, at most a MiB of each of four partitions.

    Raises:
        BrokerFailedError: it does not compact.
    """
    deadline = time.monotonic() + COMPACTION_TIMEOUT_S
    smallest = None
    while time.monotonic() < deadline:
        size = log_bytes(broker, topic)
        if size < written / 5 and size == smallest:
            return
        smallest = size
        time.sleep(2.0)
    raise BrokerFailedError(f"{broker.name} has {smallest} bytes of {written} after {COMPACTION_TIMEOUT_S:.0f} s")


def log_bytes(broker: Broker, topic: str) -> int:
    """Size of a topic's logs, by DescribeLogDirs."""
    from kafka.admin import KafkaAdminClient

    admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    answer = admin.describe_log_dirs()
    admin.close()
    return sum(
        partition["partition_size"]
        for node in answer
        for folder in node["log_dirs"]
        for found in folder["topics"]
        if found["name"] == topic
        for partition in found["partitions"]
    )


def measured(
    load: Path, broker: Broker, shapes: Sequence[Shape], seconds: int, *, quick: bool, is_fake: bool
) -> Iterator[Run]:
    """All shapes on a broker that has just started; what a fake cannot do is a run without figures.

    Raises:
        BrokerFailedError: a broker that is no fake failed.
    """
    warm_up(load, broker, quick=quick)
    failed: dict[str, str] = {}
    for shape in shapes:
        try:
            if shape.reads in failed:
                raise BrokerFailedError(failed[shape.reads])
            runs = measure(load, broker, shape, seconds, quick=quick)
        except BrokerFailedError as error:
            if not is_fake:
                raise
            failed[shape.name] = str(error)
            runs = [Run(shape.name, broker.name, shape.unit, missing=str(error))]
        say(runs[0])
        yield from runs


def say(run: Run) -> None:
    """One line for each run, so that the wait is not silent."""
    figures = (
        f"missing: {run.missing}" if run.missing else f"{run.per_s:>10,.0f} {run.unit}s/s  {run.cpu_us:,.1f} CPU us"
    )
    print(f"  {run.broker:10} {run.case:28} {figures}", file=sys.stderr, flush=True)


def table_rows(runs: Sequence[Run]) -> list[list[str]]:
    """A line for each shape and broker with the medians of its rounds, the brokers of a shape together."""
    found = medians([asdict(run) for run in runs])
    order = list(dict.fromkeys(case for case, _ in found))
    rows = []
    for (case, broker), values in sorted(found.items(), key=lambda item: order.index(item[0][0])):
        rows.append([case, broker, *(figure(values.get(name)) for name in FIGURES)])
    return rows


def report(runs: Sequence[Run], title: str) -> Path:
    """Prints the table and keeps it; the path."""
    rows = table_rows(runs)
    show(title, COLUMNS, rows)
    notes = [f"missing: {text}" for text in missing([asdict(run) for run in runs])]
    for note in notes:
        print(note)
    return save("shapes", title, COLUMNS, rows, [asdict(run) for run in runs], notes)
