"""Spark's own Kafka source and sink in streaming queries; `make test` runs this with PySpark 4 and with 3.5."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import confluent_kafka.admin
import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.spark_io import (
    QUERY_TIMEOUT_S,
    copy,
    copy_what_is_there,
    numbered,
    numbers_of,
    read,
    stream,
    transactional,
    write_transaction,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.area("streaming"), pytest.mark.client("Spark")]


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Source to sink with availableNow in small triggers, twice over one checkpoint: each record is copied once."""
    source, sink = create_topic(bootstrap, name, 2), create_topic(bootstrap, name + "-sink", 3)
    for start, stop in ((0, 100), (100, 150)):
        confluent_produce(bootstrap, source, numbered(start, stop))
        frame = stream(spark, bootstrap, subscribe=source, maxOffsetsPerTrigger="30")
        query = copy_what_is_there(frame, bootstrap, sink, tmp_path / "checkpoint")
        triggers = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        assert sum(triggers) == stop - start
        assert max(triggers) <= 30, "maxOffsetsPerTrigger"
        found = kafka_python_consume(bootstrap, [sink], stop)
        assert numbers_of(found) == list(range(stop))
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
        assert numbers_of(found) == list(range(60))
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
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert query.exception() is None
    last = {message.key: message.value for message in kafka_python_consume(bootstrap, [sink], 14)}
    assert last == {b"key-%d" % number: b"20" for number in range(7)}


def test_fail_on_data_loss(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Records deleted between two runs of a query: an error by default, a gap with failOnDataLoss=false."""
    import kafka

    source, sink = create_topic(bootstrap, name), create_topic(bootstrap, f"{name}-sink")
    confluent_produce(bootstrap, source, numbered(0, 10))
    copy_what_is_there(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c")
    confluent_produce(bootstrap, source, numbered(10, 30))
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.delete_records({kafka.TopicPartition(source, 0): 20})
    admin.close()
    strict = copy(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c", availableNow=True)
    with pytest.raises(Exception, match=r"(?i)data loss|data may have been lost|KAFKA_DATA_LOSS|failOnDataLoss"):
        strict.awaitTermination(QUERY_TIMEOUT_S)
    lenient = stream(spark, bootstrap, subscribe=source, failOnDataLoss="false")
    copy_what_is_there(lenient, bootstrap, sink, tmp_path / "c")
    found = kafka_python_consume(bootstrap, [sink], 20)
    assert numbers_of(found) == [*range(10), *range(20, 30)]


def test_topic_deleted_and_created_again(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """A query meets a new topic of the old name with fewer records: data loss by default, else it reads the new ones.

    Spark's checkpoint knows offsets and no topic ids: the end of the new topic is below what it has read.
    """
    source, sink = create_topic(bootstrap, name), create_topic(bootstrap, f"{name}-sink")
    confluent_produce(bootstrap, source, numbered(0, 30))
    copy_what_is_there(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([source])[source].result(30)
    wait_until(lambda: source not in admin.list_topics(timeout=30).topics, f"{source} to be gone")
    create_topic(bootstrap, source)
    confluent_produce(bootstrap, source, numbered(100, 110))
    strict = copy(stream(spark, bootstrap, subscribe=source), bootstrap, sink, tmp_path / "c", availableNow=True)
    with pytest.raises(Exception, match=r"(?i)data loss|data may have been lost|KAFKA_DATA_LOSS|failOnDataLoss"):
        strict.awaitTermination(QUERY_TIMEOUT_S)
    lenient = stream(spark, bootstrap, subscribe=source, failOnDataLoss="false")
    copy_what_is_there(lenient, bootstrap, sink, tmp_path / "c")
    confluent_produce(bootstrap, source, numbered(110, 120))
    copy_what_is_there(lenient, bootstrap, sink, tmp_path / "c")
    found = numbers_of(kafka_python_consume(bootstrap, [sink], 40))
    assert found[:30] == list(range(30))
    assert found[-10:] == list(range(110, 120))
    assert len(found) == len(set(found)), "nothing is copied twice"


def test_rate_limits(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """minPartitions splits the work of a trigger; minOffsetsPerTrigger waits for records until maxTriggerDelay."""
    source, sink = create_topic(bootstrap, name, 2), create_topic(bootstrap, f"{name}-sink")
    confluent_produce(bootstrap, source, numbered(0, 60))
    frame = stream(spark, bootstrap, subscribe=source, minPartitions="6", maxOffsetsPerTrigger="40")
    copy_what_is_there(frame, bootstrap, sink, tmp_path / "a")
    assert numbers_of(kafka_python_consume(bootstrap, [sink], 60)) == list(range(60))
    options = {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "2s"}
    frame = stream(spark, bootstrap, subscribe=source, **options)
    query = copy(frame, bootstrap, sink, tmp_path / "b", processingTime="100 milliseconds")
    try:
        # The first trigger takes what is there; these 10 are fewer than the least, so only the delay lets them through.
        assert len(kafka_python_consume(bootstrap, [sink], 120)) == 120
        confluent_produce(bootstrap, source, numbered(60, 70))
        assert len(kafka_python_consume(bootstrap, [sink], 130)) == 130
    finally:
        query.stop()


def test_headers_and_partitions_in_a_stream(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """Headers, topic and partition of each row go from source to sink; timestamps and their type are the broker's."""
    source, sink = create_topic(bootstrap, name, 3), create_topic(bootstrap, f"{name}-sink", 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    second_s = int(time.time()) - 60
    for number in range(12):
        headers: list[tuple[str, str | bytes | None]] = [
            ("number", b"%d" % number),
            ("empty", None),
            ("number", b"again"),
        ]
        producer.produce(source, b"%d" % number, partition=number % 3, timestamp=second_s * 1000, headers=headers)
    assert producer.flush(30) == 0
    target = (f"'{sink}' AS topic", "(partition + 1) % 3 AS partition")
    frame = stream(spark, bootstrap, subscribe=source, includeHeaders="true").selectExpr(
        "key", "value", "headers", *target, "timestamp", "timestampType"
    )
    seen: list[tuple[int, float]] = []
    query = (
        frame.writeStream.foreachBatch(
            lambda batch, _: seen.extend((row.timestampType, row.timestamp.timestamp()) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "seen"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert seen == [(0, second_s)] * 12
    writer = frame.drop("timestamp", "timestampType").writeStream.format("kafka").option("includeHeaders", "true")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert query.exception() is None
    rows = read(spark, bootstrap, subscribe=sink, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in rows) == list(range(12))
    for row in rows:
        number = int(row.value)
        assert row.partition == (number + 1) % 3
        found = [(header.key, header.value and bytes(header.value)) for header in row.headers]
        assert found == [("number", b"%d" % number), ("empty", None), ("number", b"again")]


def test_stream_of_transactions(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """A committed reader copies what is committed, and gets over markers and aborted records at the end of the log."""
    source, sink = create_topic(bootstrap, name), create_topic(bootstrap, f"{name}-sink")
    frame = stream(
        spark, bootstrap, subscribe=source, maxOffsetsPerTrigger="7", **{"kafka.isolation.level": "read_committed"}
    )
    with transactional(bootstrap, name) as producer:
        for start in (0, 40):
            write_transaction(producer, source, range(start, start + 10))
            write_transaction(producer, source, range(start + 10, start + 20), is_committed=False)
            write_transaction(producer, source, range(start + 20, start + 30))
            write_transaction(producer, source, range(start + 30, start + 40), is_committed=False)
            copy_what_is_there(frame, bootstrap, sink, tmp_path / "c")
    expected = [*range(10), *range(20, 30), *range(40, 50), *range(60, 70)]
    assert numbers_of(kafka_python_consume(bootstrap, [sink], len(expected))) == expected


def test_partitions_added_while_a_stream_runs(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    """New partitions of a topic are read from their beginning."""
    source, sink = create_topic(bootstrap, name), create_topic(bootstrap, f"{name}-sink")
    options = {"subscribe": source, "kafka.metadata.max.age.ms": "500"}
    query = copy(
        stream(spark, bootstrap, **options), bootstrap, sink, tmp_path / "c", processingTime="200 milliseconds"
    )
    try:
        confluent_produce(bootstrap, source, numbered(0, 10))
        assert len(kafka_python_consume(bootstrap, [sink], 10)) == 10
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([confluent_kafka.admin.NewPartitions(source, 3)])[source].result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        wait_until(lambda: len(producer.list_topics(source, 30).topics[source].partitions) == 3, "three partitions")
        for number in range(10, 30):
            producer.produce(source, b"%d" % number, partition=number % 3)
        assert producer.flush(30) == 0
        assert numbers_of(kafka_python_consume(bootstrap, [sink], 30)) == list(range(30))
    finally:
        query.stop()


@pytest.mark.own_broker
def test_stream_goes_on_after_the_broker_is_killed(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], name: str, tmp_path: Path
) -> None:
    """kill -9 of the broker under a running query: the query goes on by itself and copies every record."""
    broker = start_broker("spark-killed")
    source, sink = create_topic(broker.bootstrap, name, 2), create_topic(broker.bootstrap, f"{name}-sink")
    confluent_produce(broker.bootstrap, source, numbered(0, 50))
    frame = stream(spark, broker.bootstrap, subscribe=source)
    query = copy(frame, broker.bootstrap, sink, tmp_path / "c", processingTime="100 milliseconds")
    try:
        assert len(kafka_python_consume(broker.bootstrap, [sink], 50)) == 50
        broker.kill()
        broker.start()
        confluent_produce(broker.bootstrap, source, numbered(50, 100))
        # The sink is at least once: a trigger that the kill cut in two is written again.
        wait_until(
            lambda: set(numbers_of(kafka_python_consume(broker.bootstrap, [sink], 50))) >= set(range(100)),
            "every record in the sink",
            timeout_s=QUERY_TIMEOUT_S,
        )
        assert query.isActive
        assert query.exception() is None
    finally:
        query.stop()
        broker.kill()
