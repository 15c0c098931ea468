"""Read what page_counts.py has written, as a batch: the topic with Spark's Kafka source, the Parquet folder, or both.

    python spark_jobs/batch_read.py --bootstrap-servers localhost:9092 --topic page-counts --parquet-dir out/page_counts

From the topic, the last value of each key is taken; the Parquet folder has each finished minute once. Where both are
given, each finished row must equal the topic's: exit code 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from session import MissingRequirementError, add_session_arguments, build_session, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS_SCHEMA = "minute STRING, page STRING, page_views LONG, searches LONG, clicks LONG, events LONG"
COLUMNS = ("minute", "page", "page_views", "searches", "clicks", "events")


def read_topic(spark: SparkSession, bootstrap_servers: str, topic: str) -> tuple[DataFrame, int]:
    """The counts of the topic (the last value of each key) and how many records it holds now."""
    from pyspark.sql import functions as f

    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    # One key is always in one partition, so the greatest offset is the last value.
    latest = records.groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    rows = latest.select(f.from_json(f.col("value").cast("string"), COUNTS_SCHEMA).alias("row")).select("row.*")
    return rows, records.count()


def read_parquet(spark: SparkSession, parquet_dir: str) -> DataFrame:
    """The finished minutes, with the minute as text like in the topic."""
    from pyspark.sql import functions as f

    rows = spark.read.parquet(parquet_dir)
    return rows.withColumn("minute", f.date_format("minute", "yyyy-MM-dd'T'HH:mm'Z'")).select(*COLUMNS)


def print_top_pages(rows: DataFrame, title: str) -> None:
    """The ten pages with most events."""
    from pyspark.sql import functions as f

    print(title)
    sums = (f.sum(name).alias(name) for name in COLUMNS[2:])
    rows.groupBy("page").agg(*sums).orderBy(f.desc("events"), "page").show(10, truncate=False)


def export(rows: DataFrame, path: Path) -> None:
    """Write the rows as one JSON object per line."""
    with path.open("w") as file:
        file.writelines(json.dumps(row.asDict()) + "\n" for row in rows.orderBy("minute", "page").collect())


def report(spark: SparkSession, arguments: argparse.Namespace) -> int:
    """Print, export and compare as asked; returns the exit code."""
    from_topic = finished = None
    if arguments.topic:
        from_topic, records = read_topic(spark, arguments.bootstrap_servers, arguments.topic)
        from_topic = from_topic.cache()
        print(f"topic {arguments.topic}: {records} records, {from_topic.count()} keys")
    if arguments.parquet_dir:
        finished = read_parquet(spark, arguments.parquet_dir).cache()
        print(f"parquet {arguments.parquet_dir}: {finished.count()} rows")
        if arguments.export:
            export(finished, arguments.export)
    shown = finished if from_topic is None else from_topic
    if shown is not None:
        print_top_pages(shown, "most active pages")
    if from_topic is None or finished is None:
        return 0
    different = finished.exceptAll(from_topic).count()
    print(f"compared: {different} finished rows differ from the topic" if different else "compared: they agree")
    return 1 if different else 0


def main() -> int:
    """Start the session and report."""
    parser = argparse.ArgumentParser(description="Read the counts of page_counts.py as a batch")
    parser.add_argument("--bootstrap-servers", default="localhost:9092", help="Kafka (default %(default)s)")
    parser.add_argument("--topic", help="topic of counts")
    parser.add_argument("--parquet-dir", help="folder of finished minutes")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the Parquet rows here, one JSON per line")
    add_session_arguments(parser)
    arguments = parser.parse_args()
    if not arguments.topic and not arguments.parquet_dir:
        parser.error("give --topic, --parquet-dir or both")
    try:
        spark = build_session("batch-read", master=arguments.master, ivy_dir=arguments.ivy_dir)
    except MissingRequirementError as error:
        say(f"batch_read.py: {error}")
        return 2
    try:
        return report(spark, arguments)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
