"""Spark's own Kafka source and sink in batches; `make test` runs this with PySpark 4 and with 3.5."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from interop_tests.clients import CODECS, confluent_produce, create_topic, kafka_python_consume
from interop_tests.spark_io import numbered, read, transactional, values, write_transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.area("records"), pytest.mark.client("Spark")]


def test_batch_reads_every_codec(spark: SparkSession, bootstrap: str, name: str) -> None:
    """Spark reads batches of librdkafka in every codec, with key, value, partition, offset and timestamp."""
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


def test_batch_between_timestamps(spark: SparkSession, bootstrap: str, name: str) -> None:
    """startingTimestamp and endingTimestamp for all partitions; a start with nothing after it, by either strategy."""
    topic = create_topic(bootstrap, name, 2)
    base_ms = int(time.time() * 1000) - 60_000  # not so long ago that retention would take the records
    produce_at(bootstrap, topic, [(number % 2, base_ms + number, b"%d" % number) for number in range(100)])

    def between(**options: str) -> DataFrame:
        return read(spark, bootstrap, subscribe=topic, **options)

    assert values(between(startingTimestamp=str(base_ms + 60))) == list(range(60, 100))
    assert values(between(endingTimestamp=str(base_ms + 60))) == list(range(60))
    ending = json.dumps({topic: {"0": base_ms + 10, "1": base_ms + 90}})
    found = values(between(endingOffsetsByTimestamp=ending))
    assert found == sorted([*range(0, 10, 2), *range(1, 90, 2)])
    late = str(base_ms + 1000)
    assert values(between(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []
    with pytest.raises(Exception, match=r"(?i)no offset matched|timestamp"):
        values(between(startingTimestamp=late))
    # An end that no record has reached is the latest offset, for which there is no strategy to choose.
    assert values(between(startingTimestamp=str(base_ms + 95), endingTimestamp=late)) == list(range(95, 100))


def test_batch_by_assignment_and_by_pattern(spark: SparkSession, bootstrap: str, name: str) -> None:
    """assign reads the partitions that it names; subscribePattern the topics that match, none of the others."""
    first, second = create_topic(bootstrap, f"{name}-in-1", 2), create_topic(bootstrap, f"{name}-in-2")
    create_topic(bootstrap, f"{name}-out")
    now_ms = int(time.time() * 1000)
    produce_at(bootstrap, first, [(number % 2, now_ms, b"%d" % number) for number in range(10)])
    produce_at(bootstrap, second, [(0, now_ms, b"%d" % number) for number in range(10, 15)])
    produce_at(bootstrap, f"{name}-out", [(0, now_ms, b"99")])
    assert values(read(spark, bootstrap, assign=json.dumps({first: [1]}))) == [1, 3, 5, 7, 9]
    assert values(read(spark, bootstrap, subscribePattern=f"{name}-in-.*")) == list(range(15))


def test_batch_of_the_deprecated_kind(spark: SparkSession, bootstrap: str, name: str) -> None:
    """useDeprecatedOffsetFetching finds the offsets with a consumer in a group instead of the admin client."""
    topic = create_topic(bootstrap, name, 2)
    confluent_produce(bootstrap, topic, numbered(0, 20))
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, "true")
    try:
        assert values(read(spark, bootstrap, subscribe=topic)) == list(range(20))
    finally:
        spark.conf.unset(key)


def test_batch_sink_takes_topic_and_partition_of_each_row(spark: SparkSession, bootstrap: str, name: str) -> None:
    """The columns topic and partition say where each row goes; headers and null keys go with it."""
    topics = [create_topic(bootstrap, f"{name}-{number}", 3) for number in range(2)]
    rows = [
        (
            topics[number % 2],
            number % 3,
            f"key-{number}" if number % 4 else None,
            str(number),
            [("n", bytearray([number]))],
        )
        for number in range(24)
    ]
    frame = spark.createDataFrame(
        rows, "topic STRING, partition INT, key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").save()
    found = read(spark, bootstrap, subscribe=",".join(topics), includeHeaders="true").collect()
    assert sorted(
        (int(row.value), row.topic, row.partition, row.key and bytes(row.key).decode(), bytes(row.headers[0].value))
        for row in found
    ) == [(n, topics[n % 2], n % 3, f"key-{n}" if n % 4 else None, bytes([n])) for n in range(24)]


def test_batch_sink_says_what_is_wrong(spark: SparkSession, bootstrap: str, name: str) -> None:
    """A record that is too large, and a partition that does not exist, fail the job instead of being dropped."""
    topic = create_topic(bootstrap, name, max_message_bytes="1000")
    writer = spark.range(1).selectExpr("repeat('x', 5000) AS value").write.format("kafka")
    with pytest.raises(Exception, match=r"RecordTooLarge|larger than the max"):
        writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
    writer = spark.range(1).selectExpr("'x' AS value", "7 AS partition").write.format("kafka")
    with pytest.raises(Exception, match=r"(?i)partition 7|not present in metadata"):
        writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.max.block.ms": "3000"}).save()
    assert values(read(spark, bootstrap, subscribe=topic)) == []


def test_batch_of_transactions(spark: SparkSession, bootstrap: str, name: str) -> None:
    """read_committed reads what is committed, up to the first open transaction; read_uncommitted reads all (P-67)."""
    topic = create_topic(bootstrap, name)
    with transactional(bootstrap, name) as producer:
        write_transaction(producer, topic, range(10))
        write_transaction(producer, topic, range(10, 20), is_committed=False)
        write_transaction(producer, topic, range(20, 30))
        committed = {"kafka.isolation.level": "read_committed"}
        assert values(read(spark, bootstrap, subscribe=topic, **committed)) == [*range(10), *range(20, 30)]
        assert values(read(spark, bootstrap, subscribe=topic)) == list(range(30))
        # With an open transaction "latest" is where it begins.
        producer.begin_transaction()
        producer.produce(topic, b"30")
        assert producer.flush(30) == 0
        assert values(read(spark, bootstrap, subscribe=topic, **committed)) == [*range(10), *range(20, 30)]
        assert values(read(spark, bootstrap, subscribe=topic)) == list(range(31))
        producer.commit_transaction()
        assert values(read(spark, bootstrap, subscribe=topic, **committed)) == [*range(10), *range(20, 31)]


def produce_at(bootstrap: str, topic: str, records: list[tuple[int, int, bytes]]) -> None:
    """Records as (partition, timestamp in ms, value)."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition, timestamp_ms, value in records:
        producer.produce(topic, value=value, partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
