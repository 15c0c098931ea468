"""Count user activity per page and minute: a stock PySpark Structured Streaming job between Kafka topics.

    python spark_jobs/page_counts.py --bootstrap-servers localhost:9092 --input-topic activity \
        --output-topic page-counts --parquet-dir out/page_counts --checkpoint-dir out/checkpoints

Input: one JSON event per record (the README has the fields). Events come late, and some come twice, because clients
send again what they are not sure about. An event counts once (`event_id`), in the minute in which it happened (`ts`),
as long as it is not later than the watermark: --watermark behind the newest event seen.

Two queries write the same counts in two ways:

live      the output topic, in update mode: each trigger writes the rows that changed, key = "<minute> <page>", value =
          JSON. It is an upsert stream: THE LAST VALUE PER KEY IS THE COUNT (so the topic may be compacted). Spark's
          Kafka sink is at-least-once: after a crash the last trigger runs again and may write the same rows again,
          from the same input and the same state, hence with the same values. Counts of a key never shrink, one key
          is always in one partition, and no trigger starts before the one before it is flushed, so reading the last
          value per key gives the same answer with and without crashes.
finished  Parquet files, in append mode: a minute is written once, when the watermark has passed its end and nothing
          can change it any more. The file sink is exactly-once: what counts is the list in _spark_metadata, in which
          each trigger is entered once, not the files that a killed trigger may have left behind. Read it with Spark.

Each query has its own checkpoint and its own watermark. Kill the job at any moment and start it again with the same
arguments: it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from queries import StopFlag, progress_since, require_no_failure
from session import MissingRequirementError, add_session_arguments, build_session, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENT_SCHEMA = "event_id STRING, type STRING, user STRING, page STRING, query STRING, target STRING, ts TIMESTAMP"
POLL_INTERVAL_S = 0.3


def read_events(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """The events of the input topic, each once, with their watermark; rows that are no event are left out."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.input_topic)
        .option("startingOffsets", "earliest")
    )
    if arguments.max_offsets_per_trigger:
        records = records.option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
    events = (
        records.load()
        .select(f.from_json(f.col("value").cast("string"), EVENT_SCHEMA).alias("event"))
        .select("event.*")
        .where("event_id IS NOT NULL AND page IS NOT NULL AND ts IS NOT NULL")
        .withWatermark("ts", arguments.watermark)
    )
    if hasattr(events, "dropDuplicatesWithinWatermark"):  # Spark 3.5 and newer
        return events.dropDuplicatesWithinWatermark(["event_id"])
    # Older Spark forgets an id only when the watermark passes a column of the key, so the time must be part of it.
    return events.dropDuplicates(["event_id", "ts"])


def count_events(events: DataFrame) -> DataFrame:
    """Rows of minute, page and how many page views, searches, clicks and events in all."""
    from pyspark.sql import functions as f

    def count_type(event_type: str) -> Any:
        return f.count(f.when(f.col("type") == event_type, True))

    return (
        events.groupBy(f.window("ts", "1 minute"), "page")
        .agg(
            count_type("page_view").alias("page_views"),
            count_type("search").alias("searches"),
            count_type("click").alias("clicks"),
            f.count("*").alias("events"),
        )
        .select(f.col("window.start").alias("minute"), "page", "page_views", "searches", "clicks", "events")
    )


def start_live_query(counts: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    """Upsert the counts into the output topic with Spark's Kafka sink."""
    from pyspark.sql import functions as f

    minute = f.date_format("minute", "yyyy-MM-dd'T'HH:mm'Z'")
    value = f.to_json(f.struct(minute.alias("minute"), "page", "page_views", "searches", "clicks", "events"))
    writer = (
        counts.select(f.concat_ws(" ", minute, "page").alias("key"), value.alias("value"))
        .writeStream.queryName("live")
        .format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("topic", arguments.output_topic)
        .option("checkpointLocation", f"{arguments.checkpoint_dir}/live")
    )
    return start(writer, arguments)


def start_finished_query(counts: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    """Append each finished minute once to the Parquet folder."""
    writer = (
        counts.coalesce(1)  # one file per trigger: many tiny files are slow to read
        .writeStream.queryName("finished")
        .format("parquet")
        .outputMode("append")
        .option("path", arguments.parquet_dir)
        .option("checkpointLocation", f"{arguments.checkpoint_dir}/finished")
    )
    return start(writer, arguments)


def start(writer: Any, arguments: argparse.Namespace) -> StreamingQuery:
    """Start a query with the trigger that was asked for."""
    trigger = {"availableNow": True} if arguments.available_now else {"processingTime": arguments.trigger}
    query: StreamingQuery = writer.trigger(**trigger).start()
    return query


class ProgressReporter:
    """Prints one line of key=value pairs on stdout whenever a query has got further."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: str | None = None
        self._said = ""

    def report(self) -> None:
        """Print where the query is, unless that was printed before: a query that waits reports itself often."""
        found = progress_since(self._query, self._seen)
        if not found:
            return
        progress = found[-1]
        self._seen = progress["timestamp"]
        offsets = progress["sources"][0]["endOffset"] or {}
        if isinstance(offsets, str):  # Spark 4 leaves it as the JSON text that it was
            offsets = json.loads(offsets)
        read_to = sum(offset for partitions in offsets.values() for offset in partitions.values())
        watermark = progress.get("eventTime", {}).get("watermark", "-")
        text = (
            f"progress query={progress['name']} batch={progress['batchId']} rows={progress['numInputRows']} "
            f"offset={read_to} watermark={watermark}"
        )
        if text != self._said:
            print(f"{text} ms={progress['durationMs'].get('triggerExecution', 0)}", flush=True)
        self._said = text


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Run both queries until they end, one fails, or the job is told to stop."""
    stop = StopFlag()
    counts = count_events(read_events(spark, arguments))
    queries = [start_live_query(counts, arguments), start_finished_query(counts, arguments)]
    reporters = [ProgressReporter(query) for query in queries]
    print(f"running spark={spark.version} input={arguments.input_topic} output={arguments.output_topic}", flush=True)
    try:
        while not stop.is_set and any(query.isActive for query in queries):
            time.sleep(POLL_INTERVAL_S)
            for reporter in reporters:
                reporter.report()
            require_no_failure(queries)
    finally:
        for query in queries:
            query.stop()
    print("stopped", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Command line of the job."""
    parser = argparse.ArgumentParser(
        description="Count user activity per page and minute, from Kafka to Kafka and Parquet"
    )
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka to talk to, host:port[,host:port]")
    parser.add_argument("--input-topic", default="activity", help="topic of events (default %(default)s)")
    parser.add_argument("--output-topic", default="page-counts", help="topic of counts (default %(default)s)")
    parser.add_argument("--parquet-dir", required=True, help="folder for the finished minutes")
    parser.add_argument("--checkpoint-dir", required=True, help="folder for the queries' checkpoints")
    parser.add_argument("--watermark", default="10 minutes", help="how late an event may be (default %(default)s)")
    parser.add_argument("--trigger", default="1 second", help="time between triggers (default %(default)s)")
    parser.add_argument(
        "--max-offsets-per-trigger", type=int, default=0, help="records per trigger (default: all there are)"
    )
    parser.add_argument("--available-now", action="store_true", help="count what is there now, then end")
    add_session_arguments(parser)
    return parser.parse_args()


def main() -> int:
    """Start the session and run."""
    arguments = parse_arguments()
    try:
        spark = build_session("page-counts", master=arguments.master, ivy_dir=arguments.ivy_dir)
    except MissingRequirementError as error:
        say(f"page_counts.py: {error}")
        return 2
    try:
        run(spark, arguments)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
