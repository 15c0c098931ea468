"""A broker of ours and one of Apache Kafka in one cluster: each follows the other, and takes over from it.

They run as processes and threads on the real clock.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from interop_tests.ports import free_port
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from tests.support.apache_kafka import START_SECONDS_MAX, java
from tests.support.kafka_jars import kafka_libs
from tests.support.whole_broker import WholeBroker
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.java

OURS, KAFKAS = 1, 2
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
WAIT_S = 30.0


@contextmanager
def kafka_broker(folder: Path, port: int, controller_port: int) -> Iterator[None]:
    """Kafka's broker, whose controller is ours."""
    folder.mkdir()
    settings = folder / "server.properties"
    properties = {
        "process.roles": "broker",
        "node.id": KAFKAS,
        "controller.quorum.voters": f"{OURS}@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "data",
    }
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    formatting = java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
    subprocess.run(formatting, check=True, capture_output=True)
    log_path = folder / "kafka.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(java("kafka.Kafka", str(settings)), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not answers(port):
                assert process.poll() is None, log_path.read_text()[-4000:]
                assert time.monotonic() < deadline, log_path.read_text()[-4000:]
                time.sleep(0.2)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Pair:
    """Clients of both brokers."""

    def __init__(self, ours: WholeBroker, kafka_port: int) -> None:
        self._ours = ours
        self.clients = {OURS: ours.client, KAFKAS: WireClient(("127.0.0.1", kafka_port))}

    def close(self) -> None:
        self.clients[KAFKAS].close()

    def create(self, topic: str, replicas: list[int]) -> None:
        assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        new = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned)
        answer = self.clients[OURS].call(CreateTopicsRequest(topics=[new], timeout_ms=20_000), 5)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def partition(self, topic: str) -> Any:
        topics = self.clients[OURS].call(MetadataRequest(topics=None), 7).topics
        return next(found for found in topics if found.name == topic).partitions[0]

    def produce(self, topic: str, leader: int, *values: str) -> None:
        now_ms = int(time.time() * 1000)
        batch = build_batch([Record(n, now_ms, None, value.encode(), ()) for n, value in enumerate(values)])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])
        # A leader that has not read yet that it leads refuses, and nothing is appended then.
        self.until(lambda: not self.clients[leader].call(request, 9).responses[0].partition_responses[0].error_code)

    def values(self, topic: str, broker: int) -> list[str]:
        """Values of the records that a consumer reads from a broker, leader or follower."""
        asked = FetchTopic(topic=topic, partitions=[FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked])
        answer = self.clients[broker].call(request, 11).responses[0].partitions[0]
        if answer.error_code:
            return []  # it has not read the metadata yet
        return [(r.value or b"").decode() for batch in iter_batches(answer.records or b"") for r in batch.records()]

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def move_leader(self, topic: str, *replicas: int) -> None:
        moved = ReassignablePartition(partition_index=0, replicas=list(replicas))
        topics = [ReassignableTopic(name=topic, partitions=[moved])]
        assert self.clients[OURS].call(AlterPartitionReassignmentsRequest(topics=topics), 0).error_code == 0
        elected = [TopicPartitions(topic=topic, partitions=[0])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=elected, timeout_ms=20_000)
        assert self.clients[OURS].call(request, 2).error_code == 0
        self.until(lambda: self.partition(topic).leader_id == replicas[0])


def test_each_follows_the_other(tmp_path: Path) -> None:
    kafka_libs()
    port, controller_port = free_port(), free_port()
    settings = {
        "node.id": str(OURS),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{OURS}@127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={OURS}\n")
    with (
        WholeBroker(tmp_path / "ours", settings) as ours,
        kafka_broker(tmp_path / "kafkas", port, controller_port),
        closing(Pair(ours, port)) as pair,
    ):
        pair.until(lambda: len(ours.client.call(DescribeClusterRequest(), 0).brokers) == 2)
        for topic, replicas in (("ours", [OURS, KAFKAS]), ("kafkas", [KAFKAS, OURS])):
            leader, follower = replicas
            pair.create(topic, replicas)
            pair.until(lambda t=topic, n=leader: pair.partition(t).leader_id == n)
            for n in range(5):
                pair.produce(topic, leader, f"a{n}", f"b{n}")
            wanted = [f"{letter}{n}" for n in range(5) for letter in "ab"]
            pair.until(lambda t=topic, n=follower, w=wanted: pair.values(t, n) == w)
            assert sorted(pair.partition(topic).isr_nodes) == [OURS, KAFKAS]
            pair.move_leader(topic, follower, leader)
            pair.produce(topic, follower, "more")
            for broker in replicas:
                pair.until(lambda t=topic, n=broker, w=wanted: pair.values(t, n) == [*w, "more"])
            assert sorted(pair.partition(topic).isr_nodes) == [OURS, KAFKAS]
