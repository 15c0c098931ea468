"""AlterReplicaLogDirs and DescribeLogDirs with three log directories, on pykbroker and on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.barrier import Barrier
from tests.support.data_path import batch
from tests.support.kafka_jars import kafka_libs
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.java

NAMES = ("first", "second", "third")
BATCHES = 40
BATCH_BYTES = 100_000


class Replica(NamedTuple):
    """One log of DescribeLogDirs; the directory by where it is: "here", or "to 0" and "to 1", the two others."""

    directory: str
    topic: str
    partition: int
    is_future: bool
    lags: bool
    is_empty: bool


class Side:
    """One broker, and what it has answered."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.folder = folder
        self.client = WireClient(broker.address, "differential")
        self.barrier = Barrier(self.client.call)
        self.answers: list[object] = []
        # Directory in which each topic was made, as the brokers may choose differently.
        self.home: dict[str, Path] = {}

    def create(self, name: str, *, with_records: bool = True) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        assert self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
        asked = [MetadataRequestTopic(name=name)]
        while True:
            (found,) = self.client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
            if found.error_code == 0 and self.replicas(name):
                break
            time.sleep(0.05)
        self.home[name] = self.replicas(name)[0][0]
        records = bytes(batch(10, size=BATCH_BYTES // 10))
        for _ in range(BATCHES if with_records else 0):
            data = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(topic_id=found.topic_id, partition_data=[data])],
            )
            answer = self.client.call(request, 13)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def path(self, name: str, place: str) -> str:
        """The directory of a place of `Replica`, by a topic."""
        home = self.home[name]
        others = [self.folder / other for other in NAMES if self.folder / other != home]
        return str(home if place == "here" else others[int(place[-1])])

    def replicas(self, name: str) -> list[tuple[Path, int, bool, int, int]]:
        """(directory, partition, is future, lag, size) of each log of a topic."""
        request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[0])])
        return [
            (Path(result.log_dir), log.partition_index, log.is_future_key, log.offset_lag, log.partition_size)
            for result in self.client.call(request, 4).results
            for topic in result.topics
            for log in topic.partitions
        ]

    def describe(self, name: str) -> list[Replica]:
        """The logs of a topic, in the words of both brokers; noted as an answer."""
        places = {self.path(name, place): place for place in ("here", "to 0", "to 1")}
        found = sorted(
            Replica(places[str(path)], name, partition, is_future, lag > 0, size == 0)
            for path, partition, is_future, lag, size in self.replicas(name)
        )
        self.answers.append(found)
        return found

    def move(self, *moves: tuple[str, str, list[int]], version: int = 2) -> None:
        """Asks for moves, (path, topic, partitions), and notes the errors."""
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=partitions)])
                for path, name, partitions in moves
            ]
        )
        results = self.client.call(request, version).results
        self.answers.append(
            sorted(
                (topic.topic_name, partition.partition_index, ErrorCode(partition.error_code).name)
                for topic in results
                for partition in topic.partitions
            )
        )

    def throttle(self, rate: int | None) -> None:
        """Sets replica.alter.log.dirs.io.max.bytes.per.second."""
        config = AlterableConfig(
            name="replica.alter.log.dirs.io.max.bytes.per.second",
            config_operation=1 if rate is None else 0,
            value=None if rate is None else str(rate),
        )
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        answer = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        self.barrier.pass_through()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_for_move(self, name: str, place: str) -> None:
        goal = Path(self.path(name, place))
        self.until(lambda: [found[0] for found in self.replicas(name)] == [goal])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    folder: Path = tmp_path_factory.mktemp("directories")

    def settings(name: str) -> dict[str, str]:
        return {
            "log.dirs": ",".join(str(folder / name / "logs" / one) for one in NAMES),
            "log.retention.ms": "-1",
            "replica.fetch.max.bytes": "200000",
        }

    started: dict[str, BrokerProcess] = {
        "kafka": ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", settings("kafka"), JavaTools(kafka_libs())),
        "pykbroker": PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", settings("pykbroker")),
    }
    try:
        for broker in started.values():
            broker.start()
        made = {name: Side(broker, folder / name / "logs") for name, broker in started.items()}
        yield made
        for side in made.values():
            side.client.close()
    finally:
        for broker in started.values():
            broker.stop()


def refused(side: Side) -> None:
    side.create("refused", with_records=False)
    here = side.path("refused", "here")
    for version in (1, 2):
        side.move((here, "refused", [0, 1, -1]), (here, "nobody", [0]), version=version)
        side.move(("/nowhere", "refused", [0]), ("first", "nobody", [0]), ("", "refused", [7]), version=version)
        side.move((f"{here}/", "refused", [0]), version=version)
        side.move((here, "n" * 249, [0]), ("/nowhere", "n" * 213, [0, 10]), version=version)
        side.move((here, "refused", [0]), ("/nowhere", "refused", [0]), version=version)
        side.move(version=version)
    side.describe("refused")


def moved(side: Side) -> None:
    side.create("moved")
    side.describe("moved")
    for place in ("to 0", "to 1", "here"):
        side.move((side.path("moved", place), "moved", [0]))
        side.wait_for_move("moved", place)
        side.describe("moved")
    side.create("empty", with_records=False)
    side.move((side.path("empty", "to 0"), "empty", [0]))
    side.wait_for_move("empty", "to 0")
    side.describe("empty")


def cancelled_and_turned(side: Side) -> None:
    """A throttle of one byte per second keeps the moves on their way."""
    side.create("turned")
    side.throttle(1)
    side.move((side.path("turned", "to 0"), "turned", [0]))
    side.until(lambda: any(size > 0 for _, _, is_future, _, size in side.replicas("turned") if is_future))
    side.describe("turned")
    side.move((side.path("turned", "to 0"), "turned", [0]))
    side.describe("turned")
    side.move((side.path("turned", "here"), "turned", [0]))
    side.until(lambda: len(side.replicas("turned")) == 1)
    side.describe("turned")
    side.move((side.path("turned", "to 0"), "turned", [0]))
    side.move((side.path("turned", "to 1"), "turned", [0]))
    side.until(lambda: Path(side.path("turned", "to 1")) in [found[0] for found in side.replicas("turned")])
    assert len(side.describe("turned")) == 2
    side.throttle(None)
    side.wait_for_move("turned", "to 1")
    side.describe("turned")


def deleted(side: Side) -> None:
    side.create("deleted")
    side.throttle(1)
    side.move((side.path("deleted", "to 0"), "deleted", [0]))
    side.client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")], timeout_ms=10_000), 6)
    side.until(lambda: not side.replicas("deleted"))
    side.move((side.path("deleted", "to 1"), "deleted", [0]))
    side.throttle(None)


@pytest.mark.parametrize("scenario", [refused, moved, cancelled_and_turned, deleted])
def test_answers_are_kafkas(sides: dict[str, Side], scenario: Callable[[Side], None]) -> None:
    """P-278, P-300, P-301."""
    for side in sides.values():
        scenario(side)
    kafka, ours = sides["kafka"].answers, sides["pykbroker"].answers
    assert kafka
    assert ours == kafka
    for side in sides.values():
        side.answers = []
