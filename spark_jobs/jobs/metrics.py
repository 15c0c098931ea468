"""Machine metrics: measured every 10 seconds, rolled up to one and ten minutes with percentiles, with alerts.

    topic `metrics` (JSON measurements, some of them minutes late, a few of them hours)
      -> stage stream   query `rollups`, update mode, Spark's Kafka sink
           -> topic `rollups`, key "<seconds> <host> <metric> <start of the window>": count, least, sum, p50, p95 ...
           -> topic `alerts`, the same key: one-minute windows of a high p95; a tombstone for all others
      -> stage restate  batch over the whole topic; writes the windows that are not as the stream has left them

Late data: a measurement that is late by less than the watermark (15 minutes) changes its windows, and these are written
again by the trigger that reads it: the last value per key is right. What is later than that the stream leaves out;
the batch of stage `restate` brings it in, as a job would that runs each night.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Stage, Topic, last_per_key
from pipeline.schemas import MEASUREMENT, at, floor, iso, ms
from pipeline.streams import Streams, as_json, events, time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRICS = ("cpu", "memory")
INTERVAL_S = 10
WINDOWS_S = (60, 600)
WATERMARK_S = 15 * 60
LATE_SHARE, LATE_MAX_S = 0.05, 12 * 60
VERY_LATE_SHARE, VERY_LATE_S = 0.01, 3600
# Values are in permille, so that sums are exact.
ALERT_FROM = 900


class Metrics(Pipeline):
    """The pipeline; see the module's text."""

    name = "metrics"
    summary = "machine metrics rolled up to 1 and 10 minutes with percentiles, alerts, late data brought in by a batch"
    guarantee = "by keys: the sink is at-least-once, the last value of a key is right however often it is written"
    topics = {"metrics": Topic(), "rollups": Topic(config=COMPACTED), "alerts": Topic(config=COMPACTED)}
    stages = {
        "stream": Stage("measurements are rolled up as they come"),
        "restate": Stage("what came too late for the stream is brought in by a batch", is_batch=True),
    }

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        hosts = 12
        rounds = size // (hosts * len(METRICS))
        arrivals = []
        for number in range(rounds * hosts * len(METRICS)):
            turn, place = divmod(number, hosts * len(METRICS))
            host, metric = f"host-{place // len(METRICS):02}", METRICS[place % len(METRICS)]
            happened_s = turn * INTERVAL_S + rng.uniform(0, 1)
            late_s = 0.0
            if (chance := rng.random()) < VERY_LATE_SHARE:
                late_s = VERY_LATE_S
            elif chance < VERY_LATE_SHARE + LATE_SHARE:
                late_s = rng.uniform(0, LATE_MAX_S)
            arrivals.append((happened_s + late_s, host, metric, happened_s, _value(rng, place, happened_s)))
        arrivals.sort()
        return {"stream": [_record(*arrival[1:]) for arrival in arrivals]}

    def expected(self, records: Sequence[Record]) -> Results:
        values: dict[str, list[int]] = {}
        for record in records:
            host, metric, time, value = record.fact
            for seconds in WINDOWS_S:
                values.setdefault(f"{seconds} {host} {metric} {iso(floor(time, seconds))}", []).append(value)
        rollups = {key: rollup_of(found) for key, found in values.items()}
        alerts = {
            key: {"p95": row["p95"]}
            for key, row in rollups.items()
            if key.startswith("60 ") and row["p95"] >= ALERT_FROM
        }
        return {"rollups": rollups, "alerts": alerts}

    def start(self, streams: Streams, stage: str) -> None:
        if stage == "stream":
            measured = events(streams.read("metrics"), MEASUREMENT).withWatermark("ts", f"{WATERMARK_S} seconds")
            streams.upsert(rows_of_both_topics(roll_up(measured), streams), "rollups")
        else:
            self._restate(streams)

    def _restate(self, streams: Streams) -> None:
        from pyspark.sql import functions as f

        computed = rows_of_both_topics(roll_up(events(streams.read_batch("metrics"), MEASUREMENT)), streams)
        found = streams.read_batch("rollups", "alerts")
        latest = found.groupBy("topic", f.col("key").cast("string").alias("key")).agg(
            f.max_by(f.col("value").cast("string"), "offset").alias("found")
        )
        # A window that the stream has dropped whole has no row at all; a tombstone need not be written for it.
        wrong = computed.join(latest, ["topic", "key"], "left").where("NOT value <=> found")
        streams.upsert_batch(wrong.select("topic", "key", "value"))

    def results(self, outcome: Outcome) -> Results:
        return {
            topic: last_per_key((record.key, json.loads(record.value or b"null")) for record in outcome.read(topic))
            for topic in ("rollups", "alerts")
        }


def roll_up(measured: DataFrame) -> DataFrame:
    """Windows of both lengths in one aggregation: each measurement is in one of each."""
    from pyspark.sql import functions as f

    start = f.explode(
        f.array(
            *(
                f.struct(f.lit(seconds).alias("seconds"), _start_of("ts", seconds).alias("start"))
                for seconds in WINDOWS_S
            )
        )
    )
    quantiles = {"p50": 0.5, "p95": 0.95}
    return (
        measured.withColumn("rollup", start)
        .groupBy(f.window("ts", f"{max(WINDOWS_S)} seconds"), "rollup", "host", "metric")
        .agg(
            f.count("*").alias("count"),
            f.min("value").alias("least"),
            f.sum("value").alias("sum"),
            *(
                f.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY value)").cast("long").alias(name)
                for name, share in quantiles.items()
            ),
            f.max("value").alias("greatest"),
        )
    )


def rows_of_both_topics(rollups: DataFrame, streams: Streams) -> DataFrame:
    """Two records for each window of a minute, one for each longer one, with the topic that each goes to."""
    from pyspark.sql import functions as f

    key = f.concat_ws(" ", "rollup.seconds", "host", "metric", time_text("rollup.start"))
    value = as_json("count", "least", "sum", "p50", "p95", "greatest")
    alert = f.when(f.col("p95") >= ALERT_FROM, as_json("p95"))
    both = f.array(
        f.struct(f.lit(streams.topic("rollups")).alias("topic"), key.alias("key"), value.alias("value")),
        f.struct(f.lit(streams.topic("alerts")).alias("topic"), key.alias("key"), alert.alias("value")),
    )
    wanted = f.when(f.col("rollup.seconds") == min(WINDOWS_S), both).otherwise(f.slice(both, 1, 1))
    return rollups.select(f.explode(wanted).alias("row")).select("row.*")


def _start_of(column: str, seconds: int) -> Any:
    from pyspark.sql import functions as f

    return f.timestamp_seconds(f.floor(f.col(column).cast("double") / seconds) * seconds)


def _value(rng: random.Random, place: int, happened_s: float) -> int:
    """A load in permille: a daily curve in short, and bursts on every fifth machine."""
    base = 450 + 250 * math.sin(happened_s / 400 + place)
    burst = 350 if place % 5 == 0 and int(happened_s // 120) % 4 == 0 else 0
    return max(0, min(1000, round(rng.gauss(base + burst, 60))))


def _record(host: str, metric: str, happened_s: float, value: int) -> Record:
    time = at(happened_s)
    encoded = MEASUREMENT.encode(host=host, metric=metric, value=value, ts=time)
    return Record("metrics", f"{host} {metric}".encode(), encoded, ms(time), fact=(host, metric, time, value))


def rollup_of(values: list[int]) -> dict[str, int]:
    """A rollup of the values of a window, in plain Python."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "least": ordered[0],
        "sum": sum(ordered),
        "p50": discrete_percentile(ordered, 0.5),
        "p95": discrete_percentile(ordered, 0.95),
        "greatest": ordered[-1],
    }


def discrete_percentile(ordered: Sequence[int], share: float) -> int:
    """The least value that at least this share of the ordered values does not exceed, as percentile_disc of SQL."""
    return ordered[math.ceil(share * len(ordered)) - 1]


PIPELINE = Metrics()
