"""Jobs that run through the loss of a node: transactions that copy, exactly once, and a Spark structured stream."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from interop_tests.clients import confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster
from interop_tests.copiers import Command, Copiers, SteadyProducing
from interop_tests.report import Tables
from interop_tests.spark_io import QUERY_TIMEOUT_S, copy, numbered, numbers_of, stream
from interop_tests.transaction_clients import committed, read_decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.own_broker, pytest.mark.area("several nodes")]

PARTITIONS = 3
PROGRESS_S = 120.0
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("streams")
    yield cluster
    cluster.close()


@pytest.mark.client("confluent-kafka")
@pytest.mark.fault("kill -9 of coordinators of transactions")
def test_copy_exactly_once(
    cluster: Cluster, unique: Unique, tmp_path: Path, target: str, summary_tables: Tables
) -> None:
    """Copied in transactions while the nodes are killed that coordinate them: each record once (P-139, P-142)."""
    bootstrap = cluster.bootstrap
    source = create_topic(bootstrap, unique("copy-in"), PARTITIONS, replicas=NODES)
    sink = create_topic(bootstrap, unique("copy-out"), PARTITIONS, replicas=NODES)
    group = unique("copy-group")
    producing = SteadyProducing(bootstrap, source, PARTITIONS)
    command: Command = [sys.executable, "-m", "interop_tests.copier", "confluent-kafka", bootstrap, source, sink, group]
    copiers = Copiers([[*command, f"{group}-{number}"] for number in range(2)], tmp_path / "copiers.log")
    moments = random.Random(20261122)

    def copied() -> int:
        try:
            return sum(max(offset, 0) for offset in committed(bootstrap, group, source, PARTITIONS))
        except KafkaException:
            return 0

    def wait_for(count: int) -> None:
        def is_done() -> bool:
            copiers.keep_up()
            return copied() >= count

        wait_until(is_done, f"{count} records to be copied", timeout_s=PROGRESS_S, pause_s=0.1)

    producing.start()
    try:
        copiers.keep_up()
        wait_for(100)
        for topic in ("__transaction_state", "__consumer_offsets", sink):
            time.sleep(moments.uniform(0.0, 0.3))
            victim = cluster.leader(topic, 0)
            cluster.nodes[victim].kill()
            wait_for(copied() + 100)
            cluster.nodes[victim].start()
            cluster.wait_until_whole()
        producing.finish()
        wait_for(producing.sent)
    finally:
        copiers.kill_all()
    found = read_decided(bootstrap, sink, PARTITIONS)
    producing.check_end({n: [int(value[:10]) for value in values] for n, values in found.items()})
    summary_tables.texts.append(
        f"three nodes of {target}, a node killed three times: {producing.sent} records copied in transactions, in "
        f"order, once; copiers started {copiers.starts} times"
    )


@pytest.mark.spark
@pytest.mark.client("Spark")
@pytest.mark.fault("kill -9")
def test_spark_stream(cluster: Cluster, spark: SparkSession, unique: Unique, tmp_path: Path) -> None:
    """A structured stream copies on while the leader of its partitions is killed, and in a rolling restart."""
    bootstrap = cluster.bootstrap
    source = create_topic(bootstrap, unique("spark-in"), 2, replicas=NODES)
    sink = create_topic(bootstrap, unique("spark-out"), 1, replicas=NODES)
    confluent_produce(bootstrap, source, numbered(0, 50))
    frame = stream(spark, bootstrap, subscribe=source)
    query = copy(frame, bootstrap, sink, tmp_path / "c", processingTime="200 milliseconds")

    def has_all(count: int) -> bool:
        try:
            return set(numbers_of(kafka_python_consume(bootstrap, [sink], count))) >= set(range(count))
        except AssertionError:
            # Not yet: a Java client may wait for half a minute for a node that is gone.
            return False

    try:
        wait_until(lambda: has_all(50), "the first records in the sink", timeout_s=QUERY_TIMEOUT_S)
        victim = cluster.leader(source, 0)
        cluster.nodes[victim].kill()
        confluent_produce(bootstrap, source, numbered(50, 100))
        wait_until(lambda: has_all(100), "the records after the kill", timeout_s=QUERY_TIMEOUT_S)
        cluster.nodes[victim].start()
        cluster.wait_until_whole()
        for number, node in enumerate(cluster.nodes.values()):
            node.stop()
            confluent_produce(bootstrap, source, numbered(100 + 20 * number, 120 + 20 * number))
            node.start()
            cluster.wait_until_whole()
        wait_until(lambda: has_all(160), "the records of the rolling restart", timeout_s=QUERY_TIMEOUT_S)
        assert query.isActive
        assert query.exception() is None
    finally:
        query.stop()
