"""Apache Kafka's own performance tools against us and against a peer, Apache Kafka or kfake, in turn, on this machine.

Each round starts a broker on an empty folder, warms it up, and runs ProducerPerformance (6 partitions; 100 and 1,000
byte records; acks 1 and all; batch.size 16384), ConsumerPerformance over what was written, and EndToEndLatency; then
the same with the other broker; then again (A B A B). Tools and broker share the machine, so a broker that uses less
processor time leaves more to the tool. The tables have the median of the rounds, and how many times better we are.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker, java_command, median
from benchmarks.reports import save, show

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

PARTITIONS = 6
BATCH_SIZE = 16384
TOOL_TIMEOUT_S = 600.0
COLUMNS = ("case", "broker", "records/s", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU s per GB", "RSS MB")
PRODUCER_LINE = re.compile(
    r"(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec.*? ms avg latency, [\d.]+ ms max latency, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


class ToolFailedError(Exception):
    """A performance tool failed or printed something that is not understood."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amount of work in one round."""

    payload_mb: int
    latency_messages: int
    rounds: int


FULL = Sizes(payload_mb=200, latency_messages=5000, rounds=3)
QUICK = Sizes(payload_mb=50, latency_messages=1000, rounds=1)


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one tool run. Latencies in milliseconds; 0 for a figure that the tool does not give."""

    case: str
    broker: str
    records_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_s_per_gb: float
    rss_mb: float


def run_tool(name: str, *arguments: str) -> str:
    """Run one of org.apache.kafka.tools and return what it printed."""
    argv = [*java_command(), f"org.apache.kafka.tools.{name}", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TOOL_TIMEOUT_S)
    if done.returncode != 0:
        raise ToolFailedError(f"{name} ended with code {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def create_topic(broker: Broker, topic: str) -> None:
    """A topic with PARTITIONS partitions, by a stock client."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()


def produce(broker: Broker, topic: str, count: int, size: int, acks: str) -> re.Match[str]:
    """One run of ProducerPerformance; the match of its closing line."""
    properties = (f"bootstrap.servers={broker.bootstrap_servers}", f"acks={acks}", f"batch.size={BATCH_SIZE}")
    # --producer-props is understood by every release of the tool, and warned about by the newest.
    options = ("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
    output = run_tool("ProducerPerformance", *options, "--producer-props", *properties)
    matches = list(PRODUCER_LINE.finditer(output))
    if not matches or int(matches[-1]["count"]) != count:
        raise ToolFailedError(f"ProducerPerformance did not send {count} records:\n{output[-1500:]}")
    return matches[-1]


def produce_case(broker: Broker, size: int, acks: str, payload_mb: int) -> Result:
    """Write so many MB of records of one size to a topic of their own."""
    topic = f"records-{size}-acks-{acks}"
    create_topic(broker, topic)
    count = payload_mb * 1_000_000 // size
    before = broker.cpu_s()
    line = produce(broker, topic, count, size, acks)
    cpu = broker.cpu_s() - before
    rate = float(line["rate"])
    latencies = (float(line["p50"]), float(line["p99"]), float(line["p999"]))
    per_gb = cpu / (payload_mb / 1000)
    rss = broker.memory().rss_mb
    return Result(f"produce {size} B, acks {acks}", broker.name, rate, rate * size / 1e6, *latencies, per_gb, rss)


def consume_case(broker: Broker, size: int, payload_mb: int) -> Result:
    """Read back what produce_case wrote with acks 1."""
    count = payload_mb * 1_000_000 // size
    options = ("--bootstrap-server", broker.bootstrap_servers, "--topic", f"records-{size}-acks-1", "--hide-header")
    before = broker.cpu_s()
    output = run_tool("ConsumerPerformance", *options, "--num-records", str(count), "--timeout", "60000")
    cpu = broker.cpu_s() - before
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    if len(fields) != 10 or int(fields[4]) < count:
        raise ToolFailedError(f"ConsumerPerformance did not read {count} records:\n{output[-1500:]}")
    rate = int(fields[4]) / (int(fields[7]) / 1000)  # without the time for joining the group
    per_gb = cpu / (payload_mb / 1000)
    return Result(f"consume {size} B", broker.name, rate, rate * size / 1e6, 0, 0, 0, per_gb, broker.memory().rss_mb)


def latency_case(broker: Broker, messages: int) -> Result:
    """EndToEndLatency: one 100-byte record at a time, from producer to consumer, acks 1."""
    create_topic(broker, "latency")
    began = time.monotonic()
    output = run_tool("EndToEndLatency", broker.bootstrap_servers, "latency", str(messages), "1", "100")
    seconds = time.monotonic() - began
    average = re.search(r"Avg latency: ([\d.]+) ms", output)
    percentiles = re.search(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)", output)
    if not average or not percentiles:
        raise ToolFailedError(f"EndToEndLatency printed no latencies:\n{output[-1500:]}")
    # Percentiles are whole milliseconds there; the average says more, and takes the place of the median.
    p99, p999 = float(percentiles[2]), float(percentiles[3])
    rate = messages / seconds
    rss = broker.memory().rss_mb
    return Result("end to end (p50 = average)", broker.name, rate, 0, float(average[1]), p99, p999, 0, rss)


def round_of(broker: Broker, sizes: Sizes, cases: Collection[str]) -> Iterator[Result]:
    """These cases on a freshly started broker, of `produce`, `consume` and `latency`."""
    create_topic(broker, "warm-up")
    produce(broker, "warm-up", 100_000, 100, "1")
    for size in (100, 1000):
        for acks in ("1", "all"):
            # Consuming needs what was written with acks 1.
            if "produce" in cases or ("consume" in cases and acks == "1"):
                yield said(produce_case(broker, size, acks, sizes.payload_mb))
        if "consume" in cases:
            # Twice: one reading takes two seconds, of which the tool's own warming up is a good part.
            for _ in range(2):
                yield said(consume_case(broker, size, sizes.payload_mb))
    if "latency" in cases:
        yield said(latency_case(broker, sizes.latency_messages))


def said(result: Result) -> Result:
    """The result, after a line for it, so that the wait is not silent."""
    print(
        f"  {result.broker:10} {result.case:28} {result.records_per_s:>10,.0f} records/s  p99 {result.p99_ms:.0f} ms  "
        f"{result.cpu_s_per_gb:.2f} CPU s/GB",
        file=sys.stderr,
        flush=True,
    )
    return result


def table_rows(results: list[Result]) -> list[list[str]]:
    """Per case a line for each broker (the median of its rounds) and one with how many times better we are."""
    names = [name for name in Result.__dataclass_fields__ if name not in ("case", "broker")]
    rows = []
    for case in dict.fromkeys(result.case for result in results):
        medians: dict[str, dict[str, float]] = {}
        for broker in dict.fromkeys(result.broker for result in results):
            mine = [result for result in results if (result.case, result.broker) == (case, broker)]
            medians[broker] = {name: median([getattr(result, name) for result in mine]) for name in names}
        for broker, values in medians.items():
            formats = (",.0f", ".1f", ".1f", ".0f", ".0f", ".2f", ".0f")
            rows.append(
                [case, broker, *(format(values[name], spec) for name, spec in zip(names, formats, strict=True))]
            )
        if len(medians) == 2:
            ours, theirs = (medians[name] for name in sorted(medians, key=lambda name: name != "pykbroker"))
            ratios = [ratio(ours[name], theirs[name], is_rate=name.endswith("per_s")) for name in names]
            rows.append([case, "RATIO", *ratios])
    return rows


def ratio(ours: float, theirs: float, *, is_rate: bool) -> str:
    """Factor by which pykbroker is better: higher for a rate, lower for a time or size. "" without two figures."""
    good, base = (ours, theirs) if is_rate else (theirs, ours)
    return f"{good / base:.2f}" if good and base else ""


def report(results: list[Result], sizes: Sizes) -> Path:
    """Prints the table and keeps it; the path."""
    rows = table_rows(results)
    title = f"Kafka's tools, {PARTITIONS} partitions, batch.size {BATCH_SIZE}, {sizes.payload_mb} MB per case"
    show(title, COLUMNS, rows)
    print("RATIO: how many times better pykbroker is; 1.00 or more is the goal")
    return save("throughput", title, COLUMNS, rows, [asdict(result) for result in results])
