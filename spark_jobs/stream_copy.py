"""Copy topics to another, keys, values, headers and all: the smallest streaming job that uses both ends of Kafka.

    python spark_jobs/stream_copy.py --bootstrap-servers localhost:9092 --input-pattern 'orders-.*' \
        --output-topic all-orders --checkpoint-dir out/copy

Each copy gets a header `copied-from` with topic, partition and offset of its original: Spark's Kafka sink is
at-least-once, and by this header a reader can tell a copy made twice. A topic that is created while the job runs
and matches the pattern is copied from its beginning. Without --follow the job ends when all that was there is copied.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from queries import StopFlag, require_no_failure
from session import MissingRequirementError, add_session_arguments, build_session, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_topics(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """All records of the topics that match, with their headers and the additional one."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("kafka.metadata.max.age.ms", "5000")  # how soon a new topic is seen
        .option("subscribePattern", arguments.input_pattern)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    origin = f.concat_ws("-", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    copied_from = f.array(f.struct(f.lit("copied-from").alias("key"), origin.cast("binary").alias("value")))
    headers = f.concat(f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>")), copied_from)
    return records.select("key", "value", headers.alias("headers"))


def main() -> int:
    """Start the session and copy."""
    parser = argparse.ArgumentParser(description="Copy the records of topics to another topic")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka to talk to, host:port[,host:port]")
    parser.add_argument("--input-pattern", required=True, help="Java regular expression of the topics to read")
    parser.add_argument("--output-topic", required=True, help="topic to write (must not match the pattern)")
    parser.add_argument("--checkpoint-dir", required=True, help="folder for the checkpoint")
    parser.add_argument("--follow", action="store_true", help="go on until SIGTERM or Ctrl-C")
    add_session_arguments(parser)
    arguments = parser.parse_args()
    try:
        spark = build_session("stream-copy", master=arguments.master, ivy_dir=arguments.ivy_dir)
    except MissingRequirementError as error:
        say(f"stream_copy.py: {error}")
        return 2
    writer = (
        read_topics(spark, arguments)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("topic", arguments.output_topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", arguments.checkpoint_dir)
    )
    stop = StopFlag()
    trigger = {"processingTime": "1 second"} if arguments.follow else {"availableNow": True}
    query = writer.trigger(**trigger).start()
    try:
        while not stop.is_set and query.isActive:
            time.sleep(0.3)
        require_no_failure([query])
    finally:
        query.stop()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
