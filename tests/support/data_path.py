"""The data path of one broker without sockets: real logs in a temporary folder under a metadata image made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import KafkaError
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode, encode_chunks
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.replication.fetch_sessions import FetchSessions
from pykbroker.replication.leadership import Proposal, RegisteredBrokers
from pykbroker.replication.partitions import Partitions
from pykbroker.replication.replica_environment import ProposingPartition, ReplicaEnvironment
from pykbroker.requests.context import RequestContext
from pykbroker.requests.invocation import failed
from pykbroker.security.connection_info import ConnectionInfo
from tests.support.services import Services

NODE_ID = 1
ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092, 0),)
NOW_MS = 1_700_000_000_000


class Proposals(list[Proposal]):
    """Changed in-sync sets that leaders want to tell the controller, in order."""

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        self.append(proposal)


class ManualClock:
    """A time of day that a test sets."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")[:16]


def topic_image(
    name: str,
    partitions: int = 1,
    *,
    leader: int = NODE_ID,
    leader_epoch: int = 0,
    followers: tuple[int, ...] = (),
    isr: tuple[int, ...] = (),
    partition_epoch: int = 0,
) -> TopicImage:
    """A topic whose partitions have one leader; without `isr` only that one is in sync."""
    images = {
        number: PartitionImage(number, (leader, *followers), isr or (leader,), leader, leader_epoch, partition_epoch)
        for number in range(partitions)
    }
    return TopicImage(name, topic_id(name), images)


def replicated_topic_image(name: str, partitions: int, *, leader: int, leader_epoch: int) -> TopicImage:
    """As `topic_image`, with replicas on brokers 1 to 3."""
    images = {
        number: PartitionImage(number, (1, 2, 3), (1, 2, 3), leader, leader_epoch, 0) for number in range(partitions)
    }
    return TopicImage(name, topic_id(name), images)


def cluster_image(*topics: TopicImage, configs: Mapping[str, Mapping[str, str]] | None = None) -> ClusterImage:
    image = ClusterImage()
    image.topics_by_name = {topic.name: topic for topic in topics}
    image.topics_by_id = {topic.topic_id: topic for topic in topics}
    image.configs = {(TOPIC_RESOURCE, name): values for name, values in (configs or {}).items()}
    image.brokers = {NODE_ID: BrokerImage(NODE_ID, 5, bytes(16), ENDPOINTS, {}, None, False, False, (bytes(16),))}
    return image


def with_delta(image: ClusterImage) -> ClusterImage:
    """The image as the first one that a subscriber sees."""
    image.delta = delta_between(ClusterImage(), image)
    return image


class DataPath:
    """Partitions under an image, and contexts to call handlers with."""

    def __init__(self, folder: Path, image: ClusterImage, properties: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        config = BrokerConfig.from_properties({"log.dirs": str(folder), **(properties or {})})
        self.directory = LogDirectory.open(str(folder), filesystem=OsFileSystem())
        metadata = MetadataCache(config, NODE_ID, image)
        self.proposals = Proposals()
        environment = ReplicaEnvironment(RegisteredBrokers(NODE_ID), lambda: self.clock.time_ms / 1000, self.proposals)
        partitions = Partitions(environment, self.directory, metadata.settings.log_config, self.clock)
        partitions.apply(ClusterImage(), with_delta(image))
        self.partitions = partitions
        generator = random.Random(5)
        runtime = SimpleNamespace(load_missing=lambda: None, import_shard=trio.lowlevel.checkpoint)
        unused: Any = SimpleNamespace(runtime=runtime)
        self.services = Services(
            config=config,
            cluster_id="test",
            node_id=NODE_ID,
            metadata=metadata,
            partitions=partitions,
            controller=unused,
            groups=unused,
            transactions=unused,
            share_state=unused,
            producer_ids=unused,
            fetch_sessions=FetchSessions(config.fetch.max_incremental_session_cache_slots, generator),
            log_directory=self.directory,
            clock=self.clock,
            random=generator,
            run_in_thread=trio.to_thread.run_sync,
        )

    def context(self, key: ApiKey, version: int, client_id: str = "test") -> RequestContext[Services]:
        connection = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("localhost", 9092), None)
        return RequestContext(self.services, connection, key, version, 1, client_id)

    async def call(self, handler: Any, request: Any, version: int, *, client_id: str = "test") -> Any:
        """Calls a handler with the request as it arrives at this version; the response must be one it can carry."""
        arrived = decode(type(request), version, memoryview(encode(request, version)))
        context = self.context(ApiKey(request.KEY), version, client_id)
        response = await handler(context, arrived)
        context.connection.run_follow_up()
        if response is not None:
            encode_chunks(response, version)  # the version can carry all that the handler put into it
        return response

    async def answer(self, handler: Any, request: Any, version: int, *, client_id: str = "test") -> Any:
        """As `call`, but an error is the response that the client gets."""
        try:
            return await self.call(handler, request, version, client_id=client_id)
        except KafkaError as error:
            return failed(self.context(ApiKey(request.KEY), version), request, error)

    def close(self) -> None:
        self.directory.close()


def records(count: int, *, timestamp: int = NOW_MS, size: int = 10, key: bytes | None = None) -> list[Record]:
    return [Record(number, timestamp + number, key, b"v" * size, ()) for number in range(count)]


def batch(count: int = 1, **options: Any) -> bytes:
    """A batch of `count` records; options go to `build_batch`."""
    timestamp = options.pop("timestamp", NOW_MS)
    size = options.pop("size", 10)
    key = options.pop("key", None)
    return build_batch(records(count, timestamp=timestamp, size=size, key=key), **options)
