"""make bench-spark: Spark's Kafka connector on pykbroker beside Apache Kafka, both by turns in one Spark session.

batch       a topic of 2 GB (records of 1,000 bytes, six partitions) read as one batch, with the length of each value
catch-up    the same topic by a streaming query with the trigger availableNow, which ends when it has read everything
latency     a query copies a topic to another one, trigger after trigger, at 1,000, 10,000 and 50,000 records a second;
            measured is the time from a record's creation to its copy at a consumer: a trigger's wait and work, twice
            the broker, and the clients'. All records of a trigger are late together, so that what counts for a p99 is
            the number of triggers: the report has it, and the parts of the slowest trigger. `--seconds` makes it larger

Real-time mode, which Spark 4.1 brings, is not measured with the Spark that is pinned. Spark, clients and brokers share
the machine. Both brokers run from the beginning to the end and have the same topic, which is on the disk before
anything is measured. They take turns at each shape, and the one that began a round is the second of the next one: the
session grows faster with its age. Before the rounds each shape is run on both, small and several times: after one small
read the JVM has not compiled what it needs, and the broker that comes first seems slower than it is.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.brokers import ApacheKafka, Broker, BrokerFailedError, Pykbroker
from benchmarks.reports import figure, save, show
from interop_tests.clients import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"
BROKERS: dict[str, type[Broker]] = {"pykbroker": Pykbroker, "kafka": ApacheKafka}
RECORD_BYTES = 1000
PARTITIONS = 6
RATES = (1_000, 10_000, 50_000)
LATENCY_RECORD_BYTES = 100
SHAPES = ("batch", "catch-up", "latency")
WARM_UP_READS = 4
WARM_UP_MEGABYTES = 100
TICK_S = 0.005
LAST_COPIES_S = 30.0
TRIGGERS_FOR_P99 = 300
"""Of so many triggers the slowest hundredth is three; of fewer a p99 tells of one or two, which chance made slow."""
TRIGGERS_KEPT = 100_000
"""Triggers of which Spark keeps the progress; by default 100."""
COLUMNS = ("case", "broker", "MB/s", "records/s", "p50 ms", "p99 ms", "triggers", "broker CPU s")


def spark_session(folder: Path) -> SparkSession:
    """A local session with the connector, as the programs of spark_jobs have it."""
    sys.path.insert(0, str(SPARK_JOBS))
    from session import build_session

    # Spark leaves an empty folder `artifacts` where it runs.
    os.chdir(folder)
    settings = {"spark.driver.memory": "2g", "spark.sql.streaming.numRecentProgressUpdates": str(TRIGGERS_KEPT)}
    return build_session("bench-spark", more_settings=settings)


def fill(bootstrap: str, topic: str, megabytes: int) -> int:
    """Write so many MB of records to a new topic; returns how many records."""
    from confluent_kafka import Producer

    create_topic(bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000, "acks": "all"})
    count = megabytes * 1_000_000 // RECORD_BYTES
    noise = os.urandom(RECORD_BYTES * 64)
    for number in range(count):
        start = number % (RECORD_BYTES * 63)
        while True:
            try:
                producer.produce(topic, noise[start : start + RECORD_BYTES], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return count


def kafka(reader: Any, bootstrap: str, topic: str) -> DataFrame:
    """A reader of Spark, of a topic from its beginning."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records: DataFrame = reader.format("kafka").options(**options).load()
    return records


def read_in_one_batch(spark: SparkSession, bootstrap: str, topic: str, count: int) -> float:
    """Seconds to read a topic as one batch. Raises RuntimeError if it read something else than what was written."""
    from pyspark.sql import functions as f

    began = time.perf_counter()
    sums = kafka(spark.read, bootstrap, topic).agg(f.count("*").alias("n"), f.sum(f.length("value")).alias("b"))
    (row,) = sums.collect()
    seconds = time.perf_counter() - began
    if (row["n"], row["b"]) != (count, count * RECORD_BYTES):
        raise RuntimeError(f"{row['n']} records of {row['b']} bytes were read, {count} were written")
    return seconds


def catch_up(spark: SparkSession, bootstrap: str, topic: str, count: int) -> float:
    """Seconds of a streaming query that reads all there is and ends."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        writer = kafka(spark.readStream, bootstrap, topic).writeStream.format("noop")
        began = time.perf_counter()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    if read != count:
        raise RuntimeError(f"{read} records were read, {count} were written")
    return seconds


class Copies(threading.Thread):
    """A consumer of the copies, which notes how old each is when it is seen, in milliseconds."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.ages_ms: list[float] = []
        self.is_over = False

    def run(self) -> None:
        """Read until told to end."""
        while not self.is_over:
            messages = self._consumer.consume(10_000, 0.005)
            now = time.time_ns()
            for message in messages:
                value = message.value()
                if message.error() is None and value is not None:
                    self.ages_ms.append((now - int(value[:19])) / 1e6)
        self._consumer.close()


def produce_evenly(bootstrap: str, topic: str, rate: int, seconds: float) -> int:
    """Send so many records a second; each begins with the time when it was made. Returns how many."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": "all"})
    padding = b" " * (LATENCY_RECORD_BYTES - 19)
    began, sent = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        # A full queue is waited for at the next tick; the records that are due then are made then.
        with contextlib.suppress(BufferError):
            for _ in range(int(passed * rate) - sent):
                producer.produce(topic, b"%019d" % time.time_ns() + padding, partition=sent % PARTITIONS)
                sent += 1
        producer.poll(TICK_S)
    producer.flush()
    return sent


_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency without its warm-up.

    Attributes:
        ages_ms: of each copy when it was seen.
        triggers: for each that has read records, the milliseconds of its parts by Spark's names for them.
    """

    ages_ms: list[float]
    triggers: list[dict[str, int]]


def triggers_since(progress: Iterable[Mapping[str, Any]], began_at: str) -> list[dict[str, int]]:
    """Durations of the triggers that read records and began at this time (UTC, in ISO 8601) or later."""
    return [one["durationMs"] for one in progress if one["numInputRows"] and one["timestamp"] >= began_at]


def latency(spark: SparkSession, bootstrap: str, rate: int, seconds: float, warm_up_s: float) -> Latency:
    """Copy records for so many seconds. Raises RuntimeError if copies are missing."""
    from queries import progress_since  # of spark_jobs, which is on the path since there is a session

    number = next(_numbers)
    source, target = f"source-{number}", f"copies-{number}"
    create_topic(bootstrap, source, PARTITIONS)
    create_topic(bootstrap, target, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        writer = kafka(spark.readStream, bootstrap, source).select("value").writeStream.format("kafka")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": checkpoint}
        query = writer.options(**options).trigger(processingTime="0 seconds").start()
        copies = Copies(bootstrap, target)
        copies.start()
        try:
            warm = produce_evenly(bootstrap, source, rate, warm_up_s)
            wait_for(copies, warm)
            began_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            sent = produce_evenly(bootstrap, source, rate, seconds)
            wait_for(copies, warm + sent)
            triggers = triggers_since(progress_since(query, None), began_at)
        finally:
            query.stop()
            copies.is_over = True
            copies.join()
    return Latency(copies.ages_ms[warm:], triggers)


def wait_for(copies: Copies, count: int) -> None:
    """Wait for copies as long as they come. Raises RuntimeError when there are no more."""
    seen, moved_at = 0, time.monotonic()
    while (now := len(copies.ages_ms)) < count:
        if now != seen:
            seen, moved_at = now, time.monotonic()
        if time.monotonic() > moved_at + LAST_COPIES_S:
            raise RuntimeError(f"{count - now} copies are missing {LAST_COPIES_S:.0f} s after the last one")
        time.sleep(0.02)


Measurement = Callable[[Broker], dict[str, float]]
"""A turn of a broker at a shape; returns its figures by name."""


def measurements(spark: SparkSession, arguments: argparse.Namespace, count: int) -> dict[str, Measurement]:
    """The shapes that were asked for, by name; `count` records are in the topic that is read."""
    found: dict[str, Measurement] = {}

    def reading(read: Callable[[SparkSession, str, str, int], float]) -> Measurement:
        def turn(broker: Broker) -> dict[str, float]:
            seconds = read(spark, broker.bootstrap_servers, "records", count)
            return {"mb_per_s": count * RECORD_BYTES / 1e6 / seconds, "records_per_s": count / seconds}

        return turn

    def copying(rate: int) -> Measurement:
        def turn(broker: Broker) -> dict[str, float]:
            found = latency(spark, broker.bootstrap_servers, rate, arguments.seconds, arguments.seconds / 2)
            cuts = statistics.quantiles(found.ages_ms, n=100)
            slowest = max(found.triggers, key=lambda trigger: trigger.get("triggerExecution", 0), default={})
            figures = {"records_per_s": rate, "p50_ms": cuts[49], "p99_ms": cuts[98], "triggers": len(found.triggers)}
            return figures | {f"slowest {part}": ms for part, ms in slowest.items()}

        return turn

    if "batch" in arguments.shapes:
        found["one batch"] = reading(read_in_one_batch)
    if "catch-up" in arguments.shapes:
        found["catch-up"] = reading(catch_up)
    if "latency" in arguments.shapes:
        found |= {f"{rate:,} records/s": copying(rate) for rate in arguments.rates}
    return found


def take_turn(case: str, measure: Measurement, broker: Broker) -> dict[str, Any]:
    """One result, which is printed too."""
    before = broker.cpu_s()
    figures = measure(broker)
    shown = ", ".join(f"{name} {figure(value)}" for name, value in figures.items())
    print(f"  {broker.name}: {case}: {shown}", file=sys.stderr, flush=True)
    return {"case": case, "broker": broker.name, "cpu_s": broker.cpu_s() - before} | figures


def warm_up(spark: SparkSession, brokers: Sequence[Broker], shapes: Sequence[str]) -> None:
    """The shapes that are measured, small, several times, by turns."""
    if "batch" in shapes or "catch-up" in shapes:
        counts = [fill(broker.bootstrap_servers, "warm-up", WARM_UP_MEGABYTES) for broker in brokers]
        for _ in range(WARM_UP_READS):
            for broker, count in zip(brokers, counts, strict=True):
                if "batch" in shapes:
                    read_in_one_batch(spark, broker.bootstrap_servers, "warm-up", count)
                if "catch-up" in shapes:
                    catch_up(spark, broker.bootstrap_servers, "warm-up", count)
    if "latency" in shapes:
        for broker in brokers:
            latency(spark, broker.bootstrap_servers, 1000, 5, 5)


_T = TypeVar("_T")


def turns(cases: Sequence[str], brokers: Sequence[_T], rounds: int) -> Iterator[tuple[str, _T]]:
    """The order of all turns: case by case both brokers, in every second round the other one first."""
    for number in range(rounds):
        for case in cases:
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                yield case, broker


def measure_all(spark: SparkSession, kinds: Sequence[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of all shapes, the brokers by turns."""
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(BROKERS[kind]()) for kind in kinds]
        count = 0
        if set(arguments.shapes) != {"latency"}:
            for broker in brokers:
                count = fill(broker.bootstrap_servers, "records", arguments.megabytes)
        warm_up(spark, brokers, arguments.shapes)
        # What one broker has still to write must not slow down the turn of the other.
        os.sync()
        found = measurements(spark, arguments, count)
        for case, broker in turns(list(found), brokers, arguments.rounds):
            results.append(take_turn(case, found[case], broker))
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="make bench-spark ARGS=...", description="Spark on both brokers")
    parser.add_argument("--rounds", type=int, default=4, help="of each broker, an even number (default %(default)s)")
    parser.add_argument("--megabytes", type=int, default=2000, help="of the topic that is read (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of each latency that count (default %(default)s)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES, help="measure only these")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="records a second of the latencies")
    parser.add_argument("--broker", choices=BROKERS, help="measure this one alone")
    arguments = parser.parse_args(argv)
    kinds = [arguments.broker] if arguments.broker else list(BROKERS)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        spark = spark_session(Path(folder))
        try:
            results = measure_all(spark, kinds, arguments)
        except (BrokerFailedError, RuntimeError) as error:
            print(f"bench-spark: {error}", file=sys.stderr)
            return 2
        finally:
            spark.stop()
    report(results)
    return 0


def notes_of_triggers(case: str, broker: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For a latency: the p99 of each round, the parts of the slowest trigger, and if there were too few of them."""
    if "p99_ms" not in runs[0]:
        return []
    slowest = max(runs, key=lambda run: run.get("slowest triggerExecution", 0))
    parts = {name.removeprefix("slowest "): ms for name, ms in slowest.items() if name.startswith("slowest ")}
    whole = parts.pop("triggerExecution", 0)
    listed = ", ".join(f"{part} {ms:,}" for part, ms in sorted(parts.items(), key=lambda part: -part[1]) if ms)
    count = sum(run["triggers"] for run in runs)
    each = ", ".join(figure(run["p99_ms"]) for run in runs)
    text = f"{case}, {broker}: p99 of the rounds {each} ms; {count:,} triggers, the slowest {whole:,} ms ({listed})"
    if count < TRIGGERS_FOR_P99:
        text += f"; fewer than {TRIGGERS_FOR_P99} triggers are too few to compare a p99: a longer run is --seconds"
    return [text]


def report(results: Sequence[dict[str, Any]]) -> None:
    """The medians as a table, and how many times better pykbroker is."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        runs[result["case"], result["broker"]].append(result)
    names = ("mb_per_s", "records_per_s", "p50_ms", "p99_ms", "triggers", "cpu_s")
    middle = {
        place: {name: statistics.median(run[name] for run in found) for name in names if name in found[0]}
        for place, found in runs.items()
    }
    rows = [[*place, *(figure(values.get(name)) for name in names)] for place, values in middle.items()]
    notes = []
    for case in dict.fromkeys(case for case, _ in middle):
        ours, theirs = middle.get((case, "pykbroker")), middle.get((case, "kafka"))
        if ours and theirs:
            ratios = [
                f"{name} {(ours[name] / theirs[name] if name == 'mb_per_s' else theirs[name] / ours[name]):.2f}"
                for name in ("mb_per_s", "p50_ms", "p99_ms", "cpu_s")
                if name in ours
            ]
            notes.append(f"RATIO {case}: {', '.join(ratios)} times as good as Apache Kafka")
    notes += [note for (case, broker), found in runs.items() for note in notes_of_triggers(case, broker, found)]
    title = "Spark's Kafka connector (medians)"
    show(title, COLUMNS, rows)
    print("\n".join(notes))
    print(f"written to {save('spark', title, COLUMNS, rows, results, notes)}")


if __name__ == "__main__":
    sys.exit(main())
