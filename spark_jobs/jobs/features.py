"""Features of machine learning over windows, by a pandas UDF, and a model's score for each window, written back.

    topic `readings` (JSON measurements of sensors, some of them late)
      -> query `scores`  five-minute windows of each sensor, append mode
           -> topic `scores`, each window once, by transactions

The aggregation collects the readings of a window in the order of time; a pandas UDF makes the features of many windows
at once: mean, standard deviation, slope per minute, and the greatest jump. The score is that of a logistic regression
whose coefficients a training has left behind. A window is scored when the watermark has passed its end, so that a score
is final.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import Record, Results, Topic, rows_once
from pipeline.schemas import READING, at, floor, iso, ms
from pipeline.streams import Streams, as_json, events, time_text

if TYPE_CHECKING:
    import pandas as pd

SENSORS = 24
MINUTES = 60
WINDOW_S = 300
WATERMARK_S = 600
LATE_SHARE, LATE_MAX_S = 0.05, 480
# Of a logistic regression: what a fault looks like, as a training has found it.
INTERCEPT = -6.0
COEFFICIENTS = {"mean": 0.004, "deviation": 0.03, "slope": 0.02, "jump": 0.01}
DIGITS = 6
FEATURES_SCHEMA = ", ".join(f"{name} DOUBLE" for name in (*COEFFICIENTS, "score"))


class Features(Pipeline):
    """The pipeline; see the module's text."""

    name = "features"
    summary = "machine learning: features of windows by a pandas UDF, each window scored and written back"
    guarantee = "each window once, by transactions, when its watermark has passed"
    topics = {"readings": Topic(), "scores": Topic()}
    size = 5000
    needs = {"pandas": "pandas", "pyarrow": "pyarrow"}

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        arrivals = []
        for number in range(size):
            seconds = MINUTES * 60 * number / size
            sensor = f"sensor-{rng.randrange(SENSORS):02}"
            late_s = rng.uniform(0, LATE_MAX_S) if rng.random() < LATE_SHARE else 0.0
            arrivals.append((seconds + late_s, number, _record(sensor, seconds, _value(rng, sensor, seconds))))
        # Behind it the watermark passes all windows.
        closing = _record("closing", MINUTES * 60 + WATERMARK_S + WINDOW_S, 0)
        return {"stream": [*(record for *_, record in sorted(arrivals, key=lambda one: one[:2])), closing]}

    def expected(self, records: Sequence[Record]) -> Results:
        windows: dict[tuple[str, datetime], list[tuple[int, int]]] = {}
        for record in records:
            sensor, time, value = record.fact
            if sensor != "closing":
                windows.setdefault((sensor, floor(time, WINDOW_S)), []).append((ms(time), value))
        return {
            "scores": {
                f"{sensor} {iso(start)}": features_of(sorted(readings), ms(start))
                for (sensor, start), readings in windows.items()
            }
        }

    def start(self, streams: Streams, stage: str) -> None:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

        # By its type instead of by annotations, which would need pandas when this module is imported.
        score: Any = pandas_udf(features_of_windows, FEATURES_SCHEMA, PandasUDFType.SCALAR)
        readings = events(streams.read("readings"), READING).withWatermark("ts", f"{WATERMARK_S} seconds")
        taken = f.collect_list(f.struct(f.unix_millis("ts").alias("ms"), "value"))
        windows = readings.groupBy("sensor", f.window("ts", f"{WINDOW_S} seconds"))
        windows_taken = windows.agg(f.array_sort(taken).alias("taken"))
        start_ms = f.unix_millis("window.start")
        scored = windows_taken.select(
            "sensor",
            time_text("window.start").alias("start"),
            score("taken.ms", "taken.value", start_ms).alias("features"),
        )
        value = as_json("sensor", "start", f.col("features"))
        streams.append_once(scored.select(f.col("sensor").alias("key"), value.alias("value")), "scores", "scores")

    def results(self, outcome: Outcome) -> Results:
        rows = (json.loads(record.value or b"null") for record in outcome.read("scores"))
        return {"scores": rows_once((f"{row['sensor']} {row['start']}", row["features"]) for row in rows)}


def features_of_windows(times: pd.Series, values: pd.Series, starts: pd.Series) -> pd.DataFrame:
    """Features and scores of windows: each has an array of times (milliseconds), one of values, and its start."""
    import numpy as np
    import pandas as pd

    rows = []
    for own_times, own_values, start_ms in zip(times, values, starts, strict=True):
        x = np.asarray(own_times, dtype=np.int64) - start_ms
        y = np.asarray(own_values, dtype=np.int64)
        count, sum_x, sum_y = len(x), int(x.sum()), int(y.sum())
        spread = count * int((x * x).sum()) - sum_x**2
        rows.append(
            {
                "mean": sum_y / count,
                "deviation": math.sqrt(count * int((y * y).sum()) - sum_y**2) / count,
                "slope": (count * int((x * y).sum()) - sum_x * sum_y) / spread * 60_000 if spread else 0.0,
                "jump": float(np.abs(np.diff(y)).max()) if count > 1 else 0.0,
            }
        )
    frame = pd.DataFrame(rows, columns=list(COEFFICIENTS))
    linear = INTERCEPT + sum(frame[name] * weight for name, weight in COEFFICIENTS.items())
    frame["score"] = 1 / (1 + np.exp(-linear))
    return frame.round(DIGITS)


def features_of(readings: Sequence[tuple[int, int]], start_ms: int) -> dict[str, float]:
    """The same of one window in plain Python; readings are (milliseconds, value) in their order."""
    x, y = [time - start_ms for time, _ in readings], [value for _, value in readings]
    count = len(readings)
    mean = sum(y) / count
    spread = count * sum(one * one for one in x) - sum(x) ** 2
    covered = count * sum(a * b for a, b in readings_from(x, y)) - sum(x) * sum(y)
    features = {
        "mean": mean,
        "deviation": math.sqrt(count * sum(one * one for one in y) - sum(y) ** 2) / count,
        "slope": covered / spread * 60_000 if spread else 0.0,
        "jump": float(max((abs(b - a) for a, b in readings_from(y, y[1:])), default=0)),
    }
    linear = INTERCEPT + sum(features[name] * weight for name, weight in COEFFICIENTS.items())
    return {name: round(value, DIGITS) for name, value in (features | {"score": 1 / (1 + math.exp(-linear))}).items()}


def readings_from(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs, as many as the shorter one has."""
    return list(zip(one, other, strict=False))


def _value(rng: random.Random, sensor: str, seconds: float) -> int:
    place = int(sensor.removeprefix("sensor-"))
    fault = (seconds - 1800) / 4 if place % 8 == 3 and seconds > 1800 else 0
    return round(500 + 100 * math.sin(seconds / 600 + place) + fault + rng.gauss(0, 20))


def _record(sensor: str, seconds: float, value: int) -> Record:
    time = at(seconds)
    encoded: Any = READING.encode(sensor=sensor, value=value, ts=time)
    return Record("readings", sensor.encode(), encoded, ms(time), fact=(sensor, time, value))


PIPELINE = Features()
