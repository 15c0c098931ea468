"""A whole broker on a machine that is not real: files in memory, streams in memory, a clock that jumps."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.node_client import NodeAddress, NodeClient
from pykbroker.node.broker import run_broker
from pykbroker.node.host import Host
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_path import batch
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.in_place import run_in_place

NOW_MS = 1_700_000_000_000


class MemoryListening:
    """A port that `connect` reaches."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._waiting: list[trio.abc.Stream] = []
        self._arrived = trio.Event()

    def listen(self, backlog: int) -> None: ...

    def accept(self) -> tuple[trio.abc.Stream, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        return self._waiting.pop(0), ("client", 50_000)

    async def wait_readable(self) -> None:
        await self._arrived.wait()
        self._arrived = trio.Event()

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None: ...

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        assert (host, port) == self._address
        ours, theirs = trio.testing.memory_stream_pair()
        self._waiting.append(theirs)
        self._arrived.set()
        await trio.lowlevel.checkpoint()
        return ours


class TrioWallClock:
    def now_ms(self) -> int:
        return NOW_MS + int(trio.current_time() * 1000)


async def test_serves_over_streams() -> None:
    filesystem = FakeFileSystem()
    listening: list[MemoryListening] = []

    def bind(host: str, port: int) -> list[MemoryListening]:
        listening.append(MemoryListening(host, port))
        return listening

    async def no_other(host: str, port: int) -> trio.abc.Stream:
        raise OSError(f"nobody else is here, neither {host}:{port}")

    host = Host(filesystem, TrioWallClock(), random.Random(1), no_other, bind, run_in_place)
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://here:9092", "log.dirs": "/data"})
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(run_broker, config, host=host, on_ready=lambda address: ready.set()))
        await ready.wait()
        await use(NodeClient(NodeAddress("here", 9092), listening[0].connect, client_id="test", software_version="1"))
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert filesystem.exists("/data/.kafka_cleanshutdown")


async def use(client: NodeClient) -> None:
    """Creates a topic, writes to it and reads it, asks for the volume."""

    async def call(message: Any) -> Any:
        return await client.request(message, 5000)

    new = CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
    topic_id = (await call(CreateTopicsRequest(topics=[new], timeout_ms=5000))).topics[0].topic_id
    metadata = await call(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]))
    assert [(broker.host, broker.port) for broker in metadata.brokers] == [("here", 9092)]
    data = PartitionProduceData(index=0, records=batch(size=20))
    produced = await call(
        ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
        )
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    fetched = await call(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[asked]))
    assert b"v" * 20 in bytes(fetched.responses[0].partitions[0].records)
    described = await call(DescribeLogDirsRequest())
    assert described.results[0].total_bytes == 1 << 40
    await client.close()
