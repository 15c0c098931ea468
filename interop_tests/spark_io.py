"""A Spark session with the Kafka connector, and short ways to read and write topics with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from interop_tests.clients import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"
QUERY_TIMEOUT_S = 90
FAULT_OF_SPARK_41 = 'because the return value of "scala.Option.get()" is null'
"""Spark 4.1.1 ends a query with it that repeats the batch at which an earlier run has failed, on Apache Kafka, too: the
connector's metrics take the latest offsets, which it has not asked for (KafkaMicroBatchStream.metrics)."""


def spark_session() -> Iterator[SparkSession]:
    """A local session, stopped at the end; how the connector's coordinates are found stands in spark_jobs alone."""
    pytest.importorskip("pyspark", reason="PySpark is not installed in this Python")
    if not SPARK_JOBS.is_dir():
        pytest.skip("spark_jobs/session.py, which finds the Kafka connector of this PySpark, is not beside this folder")
    sys.path.insert(0, str(SPARK_JOBS))
    try:
        from session import build_session
    finally:
        sys.path.remove(str(SPARK_JOBS))
    session = build_session("interop")
    yield session
    session.stop()


def numbered(start: int, stop: int) -> list[Message]:
    """Records with the numbers as their values, and seven keys."""
    return [Message(b"key-%d" % (number % 7), b"%d" % number) for number in range(start, stop)]


def read(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    """Batch read with options by their names."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def values(frame: DataFrame) -> list[int]:
    """The values as numbers, in order."""
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def numbers_of(messages: Sequence[Message]) -> list[int]:
    """The values as numbers, in order."""
    return sorted(int(message.value or b"") for message in messages)


def stream(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    """A streaming read from the beginning."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def copy(frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path, **trigger: Any) -> Any:
    """Starts a query that writes key and value to a topic."""
    writer = frame.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("topic", topic).option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def copy_what_is_there(frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> Any:
    """Copies all that is available now, in as many triggers as the frame's options want; the ended query.

    Skips the test where Spark itself fails: see FAULT_OF_SPARK_41.
    """
    query = copy(frame, bootstrap, topic, checkpoint, availableNow=True)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    except Exception as error:
        if FAULT_OF_SPARK_41 in str(error):
            pytest.skip("Spark 4.1 cannot repeat the batch at which a query has failed, whatever the broker")
        raise
    assert query.exception() is None
    return query


@contextmanager
def transactional(bootstrap: str, transactional_id: str) -> Iterator[confluent_kafka.Producer]:
    """A librdkafka producer that has begun to use an id."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    try:
        yield producer
    finally:
        producer.purge()


def write_transaction(
    producer: confluent_kafka.Producer, topic: str, numbers: range, *, is_committed: bool = True
) -> None:
    """One transaction with the numbers as values, committed or aborted; all of them are in the log either way."""
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    if is_committed:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
