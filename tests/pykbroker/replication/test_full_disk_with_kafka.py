"""A full disk on a broker of ours under Apache Kafka's controller, on the real clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from interop_tests.ports import free_port
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.logstore.errors import StorageFull
from pykbroker.logstore.filesystem import Buffer, OsFileSystem
from pykbroker.node.broker import run_broker
from pykbroker.node.host import Host
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.uuids import LOST_DIRECTORY
from pykbroker.replication.full_disk import FullDisk, ReportedFailures
from pykbroker.replication.partitions import Partitions
from tests.pykbroker.test_with_kafka import LIMIT_S, kafka, settings
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

FULL, OTHER = 2, 3


class FillableFileSystem(OsFileSystem):
    """Has space for metadata, and for nothing else while `is_full`."""

    is_full = False

    def append_mapped(self, descriptor: int, parts: Any, size: int, position: int, path: str) -> None:
        if self.is_full and "__cluster_metadata" not in path:
            raise StorageFull(path, "no space left on the volume")
        super().append_mapped(descriptor, parts, size, position, path)

    def write_file(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        if self.is_full and "__cluster_metadata" not in path:
            raise StorageFull(path, "no space left on the volume")
        super().write_file(path, content, durable=durable)


class Brokers:
    """Both brokers of ours, by their ports; the file system of the one that gets full, and what looks after it."""

    def __init__(self) -> None:
        self.ports = {FULL: free_port(), OTHER: free_port()}
        self.filesystem = FillableFileSystem()
        self.disks: list[FullDisk] = []

    async def ask(self, node_id: int, request: Any) -> Any:
        address = NodeAddress("127.0.0.1", self.ports[node_id])
        while True:
            client = NodeClient(address, trio.open_tcp_stream, client_id="test", software_version="1")
            try:
                return await client.request(request, 30_000)
            except NodeUnreachable:
                await trio.sleep(0.2)
            finally:
                await client.close()

    async def create(self, topic: str, *replicas: int) -> bytes:
        assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        new = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned)
        answer = await self.ask(OTHER, CreateTopicsRequest(topics=[new], timeout_ms=20_000))
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    async def produce(self, node_id: int, topic_id: bytes, acks: int) -> int:
        data = PartitionProduceData(index=0, records=build_batch([Record(0, 1000, None, b"v", ())]))
        topics = [TopicProduceData(topic_id=topic_id, partition_data=[data])]
        answer = await self.ask(node_id, ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics))
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def until(self, topic: str, condition: Callable[[Any], bool]) -> None:
        while True:
            topics = (await self.ask(OTHER, MetadataRequest(topics=None))).topics
            found = [one for one in topics if one.name == topic and one.partitions]
            if found and condition(found[0].partitions[0]):
                return
            await trio.sleep(0.05)


@asynccontextmanager
async def brokers(folder: Path, controller: NodeAddress, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brokers]:
    both = Brokers()
    make = FullDisk.__init__

    def init(disk: FullDisk, failures: ReportedFailures, partitions: Partitions, *arguments: Any) -> None:
        make(disk, failures, partitions, *arguments)
        if partitions.environment.node_id == FULL:
            both.disks.append(disk)

    monkeypatch.setattr(FullDisk, "__init__", init)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        for node_id, port in both.ports.items():
            given = {**settings(folder / str(node_id), "broker", controller, port), "node.id": str(node_id)}
            host = Host.real()
            if node_id == FULL:
                host = host._replace(filesystem=both.filesystem)
            ready = trio.Event()

            async def run(given: dict[str, str] = given, host: Any = host, ready: trio.Event = ready) -> None:
                config = BrokerConfig.from_properties(given)
                await run_broker(config, cluster_id=None, on_ready=lambda _: ready.set(), stop=stop, host=host)

            nursery.start_soon(run)
            await ready.wait()
        yield both
        stop.set()


@pytest.mark.parametrize("eligible_level", [0, 1])
def test_kafkas_controller_elects_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eligible_level: int) -> None:
    """Without and with eligible leader replicas (KIP-966)."""
    kafka_libs()
    trio.run(scenario, tmp_path, monkeypatch, eligible_level)


async def scenario(folder: Path, monkeypatch: pytest.MonkeyPatch, eligible_level: int) -> None:
    address = NodeAddress("127.0.0.1", free_port())
    with trio.fail_after(LIMIT_S):
        async with (
            kafka(
                folder,
                settings(folder, "controller", address, 0),
                f"eligible.leader.replicas.version={eligible_level}",
            ),
            brokers(folder, address, monkeypatch) as both,
        ):
            shared = await both.create("shared", FULL, OTHER)
            alone = await both.create("alone", FULL)
            await both.until("shared", lambda found: sorted(found.isr_nodes) == [FULL, OTHER])
            await both.until("alone", lambda found: found.leader_id == FULL)
            while await both.produce(FULL, shared, -1) or await both.produce(FULL, alone, -1):
                await trio.sleep(0.1)
            both.filesystem.is_full = True
            assert await both.produce(FULL, shared, -1) == ErrorCode.KAFKA_STORAGE_ERROR
            await both.until("shared", lambda found: found.leader_id == OTHER and found.isr_nodes == [OTHER])
            await both.until("shared", lambda found: found.offline_replicas == [FULL])
            while await both.produce(OTHER, shared, 1):
                await trio.sleep(0.1)
            # What only this broker has stays: also where that was not known when the controller was told.
            await both.until("alone", lambda found: found.leader_id == FULL and not found.offline_replicas)
            (disk,) = both.disks
            image = disk._image()
            await disk._request(image.brokers[FULL].epoch, LOST_DIRECTORY, [(alone, 0)])
            epoch = image.topics_by_name["alone"].partitions[0].leader_epoch
            await both.until("alone", lambda found: found.leader_id == FULL and found.leader_epoch > epoch)
            assert await both.produce(FULL, alone, -1) == ErrorCode.KAFKA_STORAGE_ERROR
            both.filesystem.is_full = False
            assert await both.produce(FULL, alone, -1) == 0
            await both.until("shared", lambda found: sorted(found.isr_nodes) == [FULL, OTHER])
            topics = [TopicPartitions(topic="shared", partitions=[0])]
            await both.ask(OTHER, ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=20_000))
            await both.until("shared", lambda found: found.leader_id == FULL)
