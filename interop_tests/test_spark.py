"""Spark's own Kafka source and sink, batch and streaming; `make test` runs this with PySpark 4 and with 3.5."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interop_tests.clients import CODECS, Message, confluent_produce, create_topic, kafka_python_consume, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SPARK_JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session with the connector; how its coordinates are found stands in spark_jobs/session.py alone."""
    pytest.importorskip("pyspark", reason="PySpark is not installed in this Python")
    sys.path.insert(0, str(SPARK_JOBS))
    try:
        from session import build_session
    finally:
        sys.path.remove(str(SPARK_JOBS))
    session = build_session("interop")
    yield session
    session.stop()


def numbered(start: int, stop: int) -> list[Message]:
    return [Message(b"key-%d" % (number % 7), b"%d" % number) for number in range(start, stop)]


def read(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    """Batch read with options by their names."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def test_batch_reads_every_codec(spark: SparkSession, bootstrap: str, name: str) -> None:
    """What librdkafka wrote in each codec comes out with key, value, partition, offset and timestamp."""
    topic = create_topic(bootstrap, name, 2)
    for number, codec in enumerate(CODECS):
        confluent_produce(bootstrap, topic, numbered(100 * number, 100 * number + 100), codec, partitioner="murmur2")
    frame = read(spark, bootstrap, subscribe=topic)
    assert values(frame) == list(range(500))
    rows = frame.collect()
    assert {row.topic for row in rows} == {topic}
    assert {bytes(row.key) for row in rows} == {b"key-%d" % n for n in range(7)}
    assert abs(rows[0].timestamp.timestamp() - time.time()) < 600
    found = sorted((row.partition, row.offset, bytes(row.value)) for row in rows)
    expected = sorted((m.partition, m.offset, m.value) for m in kafka_python_consume(bootstrap, [topic], 500))
    assert found == expected


@pytest.mark.parametrize("codec", CODECS)
def test_batch_writes_every_codec(codec: str, spark: SparkSession, bootstrap: str, name: str) -> None:
    """Spark's sink writes in each codec; another client reads keys, values, nulls and headers."""
    topic = create_topic(bootstrap, name)
    frame = spark.createDataFrame(
        [("a", "1", [("origin", bytearray(b"spark"))]), ("b", "2", None), (None, "3", None), ("d", None, None)],
        "key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    ).coalesce(1)
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.option("kafka.compression.type", codec).option("includeHeaders", "true").save()
    found = kafka_python_consume(bootstrap, [topic], 4)
    assert [m[:2] for m in found] == [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"d", None)]
    rows = read(spark, bootstrap, subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [(header.key, bytes(header.value)) for header in rows[0].headers] == [("origin", b"spark")]
    assert rows[1].headers is None


def test_batch_by_offsets_and_by_timestamps(spark: SparkSession, bootstrap: str, name: str) -> None:
    """startingOffsets and endingOffsets as JSON; startingOffsetsByTimestamp; minPartitions."""
    topic = create_topic(bootstrap, name)
    confluent_produce(bootstrap, topic, numbered(0, 50))
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    confluent_produce(bootstrap, topic, numbered(50, 80))
    starting, ending = json.dumps({topic: {"0": 10}}), json.dumps({topic: {"0": 60}})
    assert values(read(spark, bootstrap, subscribe=topic, startingOffsets=starting, endingOffsets=ending)) == list(
        range(10, 60)
    )
    since = json.dumps({topic: {"0": between_ms}})
    assert values(read(spark, bootstrap, subscribe=topic, startingOffsetsByTimestamp=since)) == list(range(50, 80))
    split = read(spark, bootstrap, subscribe=topic, minPartitions="4")
    assert split.rdd.getNumPartitions() >= 4
    assert values(split) == list(range(80))


def stream(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def copy(frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path, **trigger: Any) -> Any:
    """Starts a query that writes key and value to a topic."""
    writer = frame.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("topic", topic).option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Source to sink with availableNow in small triggers, twice over one checkpoint: each record is copied once."""
    source, sink = create_topic(bootstrap, name, 2), create_topic(bootstrap, name + "-sink", 3)
    for start, stop in ((0, 100), (100, 150)):
        confluent_produce(bootstrap, source, numbered(start, stop))
        frame = stream(spark, bootstrap, subscribe=source, maxOffsetsPerTrigger="30")
        query = copy(frame, bootstrap, sink, tmp_path / "checkpoint", availableNow=True)
        assert query.awaitTermination(90), "the query did not end"
        assert query.exception() is None
        found = kafka_python_consume(bootstrap, [sink], stop)
        assert sorted(int(m.value or b"") for m in found) == list(range(stop))
    partitions_of_key: dict[bytes | None, set[int]] = {}
    for message in found:
        partitions_of_key.setdefault(message.key, set()).add(message.partition)
    assert all(len(partitions) == 1 for partitions in partitions_of_key.values())


def test_stream_that_runs_while_records_come(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """A continuous query over a pattern sees what is produced later, and a topic that is made later."""
    first = create_topic(bootstrap, f"{name}-in-1")
    sink = create_topic(bootstrap, f"{name}-sink")
    options = {"subscribePattern": f"{name}-in-.*", "kafka.metadata.max.age.ms": "500"}
    query = copy(
        stream(spark, bootstrap, **options), bootstrap, sink, tmp_path / "checkpoint", processingTime="200 milliseconds"
    )
    try:
        confluent_produce(bootstrap, first, numbered(0, 40))
        assert len(kafka_python_consume(bootstrap, [sink], 40)) == 40
        second = create_topic(bootstrap, f"{name}-in-2")
        confluent_produce(bootstrap, second, numbered(40, 60))
        found = kafka_python_consume(bootstrap, [sink], 60)
        assert sorted(int(m.value or b"") for m in found) == list(range(60))
        wait_until(lambda: query.lastProgress and query.lastProgress["sources"], "progress")
        assert query.isActive
    finally:
        query.stop()


def test_stateful_stream(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Counts per key with state, in update mode into a compacted topic: the last value per key counts."""
    from pyspark.sql import functions as f

    source, sink = create_topic(bootstrap, name, 2), create_topic(bootstrap, f"{name}-counts", cleanup_policy="compact")
    confluent_produce(bootstrap, source, numbered(0, 140))
    counts = (
        stream(spark, bootstrap, subscribe=source, maxOffsetsPerTrigger="70")
        .groupBy("key")
        .agg(f.count("*").alias("n"))
    )
    frame = counts.select("key", f.col("n").cast("string").cast("binary").alias("value"))
    writer = frame.writeStream.format("kafka").outputMode("update").option("kafka.bootstrap.servers", bootstrap)
    query = (
        writer.option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    assert query.exception() is None
    last = {message.key: message.value for message in kafka_python_consume(bootstrap, [sink], 14)}
    assert last == {b"key-%d" % number: b"20" for number in range(7)}


def test_fail_on_data_loss(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Records deleted between two runs of a query: an error by default, a gap with failOnDataLoss=false."""
    import kafka

    source, sink = create_topic(bootstrap, name), create_topic(bootstrap, f"{name}-sink")
    confluent_produce(bootstrap, source, numbered(0, 10))
    first = copy(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c", availableNow=True)
    assert first.awaitTermination(90)
    confluent_produce(bootstrap, source, numbered(10, 30))
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.delete_records({kafka.TopicPartition(source, 0): 20})
    admin.close()
    strict = copy(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c", availableNow=True)
    with pytest.raises(Exception, match=r"(?i)data loss|data may have been lost|KAFKA_DATA_LOSS|failOnDataLoss"):
        strict.awaitTermination(90)
    lenient = copy(
        stream(spark, bootstrap, subscribe=source, failOnDataLoss="false"),
        bootstrap,
        sink,
        tmp_path / "c",
        availableNow=True,
    )
    assert lenient.awaitTermination(90)
    assert lenient.exception() is None
    found = kafka_python_consume(bootstrap, [sink], 20)
    assert sorted(int(m.value or b"") for m in found) == [*range(10), *range(20, 30)]
