"""Backfill: the history of a topic by a batch, then a stream from exactly there; no record is counted twice or never.

    topic `clicks` (JSON measurements of clicks per page; the key is the page)
      -> stage history  a batch over all offsets up to an end that is fixed when it begins
           -> topic `history-counts`, key "<minute> <page>"
           and a batch over a span of time -> topic `span-counts`, the same key
      -> stage live     a stream that starts at the end of the batch, offset by offset
           -> topic `live-counts`, the same key: the counts of what came after

The offsets of the end are written to the file `cutover.json` before the batch reads anything: a job that is killed and
starts again reads the same. The sum of both topics is the count of all; each topic alone is right, too.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Stage, Topic, last_per_key
from pipeline.schemas import MEASUREMENT, at, floor, iso, ms
from pipeline.streams import Streams, events, time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 3
PAGES = 30
MINUTES = 60
# The batch may find the first records of the second half: they are sent while it starts.
HISTORY_SHARE = 0.6
SPAN = (at(12 * 60), at(25 * 60))
WATERMARK = "10 minutes"


class Backfill(Pipeline):
    """The pipeline; see the module's text."""

    name = "backfill"
    summary = "the history of a topic by a batch, then a stream from exactly the offsets where the batch ended"
    guarantee = "by keys; the offsets between batch and stream are written down before anything is read"
    topics = {
        "clicks": Topic(PARTITIONS),
        "history-counts": Topic(config=COMPACTED),
        "span-counts": Topic(config=COMPACTED),
        "live-counts": Topic(config=COMPACTED),
    }
    stages = {
        "load": Stage("history is loaded", feed_first=True, is_batch=True),
        "history": Stage("a batch counts what is there", is_batch=True),
        "live": Stage("a stream goes on from exactly there"),
    }

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        records = [_record(rng, number, MINUTES * 60 * number / size) for number in range(size)]
        middle = int(size * HISTORY_SHARE)
        return {
            "load": records[:middle],
            "history": records[middle : middle + size // 10],
            "live": records[middle + size // 10 :],
        }

    def expected(self, records: Sequence[Record]) -> Results:
        in_span = [record for record in records if SPAN[0] <= record.fact[1] < SPAN[1]]
        return {
            "history and live": dict(_count(records)),
            "span": dict(_count(in_span)),
            "records counted on the wrong side of the cutover": {"history": 0, "live": 0},
        }

    def start(self, streams: Streams, stage: str) -> None:
        topic = streams.topic("clicks")
        if stage == "load":
            return
        cutover = streams.remembered("cutover", lambda: _ends(streams))
        if stage == "history":
            history = streams.read_batch("clicks", endingOffsets=json.dumps({topic: cutover}))
            streams.upsert_batch(_counted(history), "history-counts")
            times = {"startingTimestamp": str(ms(SPAN[0])), "endingTimestamp": str(ms(SPAN[1]))}
            streams.upsert_batch(_counted(streams.read_batch("clicks", **times)), "span-counts")
        else:
            live = streams.read("clicks", startingOffsets=json.dumps({topic: cutover}))
            streams.upsert(_counted(live, WATERMARK), "live", "live-counts")

    def results(self, outcome: Outcome) -> Results:
        history, span, live = (
            Counter(last_per_key((record.key, int(record.value or b"0")) for record in outcome.read(topic)))
            for topic in ("history-counts", "span-counts", "live-counts")
        )
        cutover = json.loads((outcome.folder / "cutover.json").read_text())
        clicks = outcome.read("clicks")
        before = [record for record in clicks if record.offset < cutover[str(record.partition)]]
        sides = {"history": (history, len(before)), "live": (live, len(clicks) - len(before))}
        return {
            "history and live": dict(history + live),
            "span": dict(span),
            "records counted on the wrong side of the cutover": {
                name: abs(counts.total() - records) for name, (counts, records) in sides.items()
            },
        }


def _counted(records: DataFrame, watermark: str | None = None) -> DataFrame:
    """Clicks per minute and page, as records; the same code for the batch and for the stream."""
    from pyspark.sql import functions as f

    clicks = events(records, MEASUREMENT)
    if watermark is not None:
        clicks = clicks.withWatermark("ts", watermark)
    counts = clicks.groupBy(f.window("ts", "1 minute"), "host").count()
    key = f.concat_ws(" ", time_text("window.start"), "host")
    return counts.select(key.alias("key"), f.col("count").cast("string").alias("value"))


def _ends(streams: Streams) -> dict[str, int]:
    """The end offset of each partition, as the Kafka source of a batch sees it now."""
    from pyspark.sql import functions as f

    found = streams.read_batch("clicks").groupBy("partition").agg(f.max("offset").alias("last")).collect()
    return dict.fromkeys(map(str, range(PARTITIONS)), 0) | {str(row["partition"]): row["last"] + 1 for row in found}


def _count(records: Iterable[Record]) -> Counter[str]:
    return Counter(f"{iso(floor(time, 60))} {page}" for page, time in (record.fact for record in records))


def _record(rng: random.Random, number: int, seconds: float) -> Record:
    page, time = f"/page/{min(int(rng.paretovariate(0.8)), PAGES)}", at(seconds)
    fields: dict[str, Any] = {"host": page, "metric": "click", "value": 1, "ts": time}
    return Record("clicks", page.encode(), MEASUREMENT.encode(**fields), ms(time), fact=(page, time))


PIPELINE = Backfill()
