"""Brokers that hold replicas of one partition, under metadata that a test makes: real logs, handlers and fetch sessions
without sockets or tasks. A test moves every message itself."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode, encode_chunks
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from pykbroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykbroker.replication.fetch_sessions import FetchSessions
from pykbroker.replication.follower_fetch_session import FetchSessionHandler
from pykbroker.replication.leadership import RegisteredBrokers
from pykbroker.replication.partition import Partition
from pykbroker.replication.partitions import Partitions
from pykbroker.replication.replica_environment import ReplicaEnvironment
from pykbroker.replication.replication_tasks import ReplicationSettings
from pykbroker.requests.context import RequestContext
from pykbroker.security.connection_info import ConnectionInfo
from tests.support.data_path import ManualClock, Proposals, topic_id
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.services import Services

TOPIC = "t"
FETCH_VERSION = 18
LIST_OFFSETS_VERSION = 11
BACKOFF_S = 1.0
FETCH_LIMITS = ReplicationSettings.from_config(BrokerConfig.from_properties({})).limits._replace(max_wait_ms=0)
HANDLERS: dict[type, tuple[Any, ApiKey, int, type]] = {
    FetchRequest: (handle_fetch, ApiKey.FETCH, FETCH_VERSION, FetchResponse),
    ListOffsetsRequest: (handle_list_offsets, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, ListOffsetsResponse),
}


def image_of(partition: PartitionImage, brokers: dict[int, BrokerImage]) -> ClusterImage:
    image = ClusterImage()
    topic = TopicImage(TOPIC, topic_id(TOPIC), {0: partition})
    image.topics_by_name = {TOPIC: topic}
    image.topics_by_id = {topic.topic_id: topic}
    image.brokers = brokers
    return image


def broker_image(broker_id: int, epoch: int, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, epoch, bytes(16), (), {}, None, is_fenced, False, (bytes(16),))


class ReplicaBroker:
    """One broker. `proposals` is what it wants to tell the controller; `session` follows the leader that it knows."""

    def __init__(self, broker_id: int, settings: dict[str, str] | None = None) -> None:
        self.broker_id = broker_id
        self.filesystem = FakeFileSystem()
        self.clock = ManualClock()
        self.image = ClusterImage()
        self.proposals = Proposals()
        self._settings = settings or {}
        self.open()

    def open(self) -> None:
        """Starts, on what is in its folder."""
        config = BrokerConfig.from_properties({"log.dirs": "/data", "node.id": str(self.broker_id), **self._settings})
        self.directory = LogDirectory.open("/data", filesystem=self.filesystem)
        self.metadata = MetadataCache(config, self.broker_id, self.image)
        log_config = self.metadata.settings.log_config
        self.directory.load_logs(lambda topic: log_config(self.image, topic), self.clock.now_ms())
        environment = ReplicaEnvironment(
            RegisteredBrokers(self.broker_id), lambda: self.clock.time_ms / 1000, self.proposals
        )
        self.partitions = Partitions(environment, self.directory, log_config, self.clock)
        self.image = ClusterImage()
        self.proposals.clear()
        self.leader_id = -1
        self._make_session()
        unused: Any = SimpleNamespace(runtime=SimpleNamespace(load_missing=lambda: None))
        values: dict[str, Any] = {
            **dict.fromkeys(("controller", "groups", "transactions", "producer_ids", "run_in_thread"), unused),
            "config": config,
            "cluster_id": "test",
            "node_id": self.broker_id,
            "metadata": self.metadata,
            "partitions": self.partitions,
            "fetch_sessions": FetchSessions(100, random.Random(self.broker_id)),
            "log_directory": self.directory,
            "clock": self.clock,
            "random": random.Random(self.broker_id),
        }
        self.services = Services(**values)

    def _make_session(self) -> None:
        self.session = FetchSessionHandler(self.broker_id, FETCH_LIMITS, BACKOFF_S)

    def stop(self) -> None:
        """Ends as a killed process: what it has written stays, nothing is tidied up. High watermarks of the last
        checkpoint are what the next start knows."""
        self.directory.checkpoint_high_watermarks({(TOPIC, 0): self.partition.high_watermark})
        self.directory.abandon()

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    def apply(self, image: ClusterImage) -> None:
        """The metadata comes here."""
        image.delta = delta_between(self.image, image)
        self.metadata.apply(self.image, image)
        self.partitions.apply(self.image, image)
        self.image = image
        partition = self.partitions.get(TOPIC, 0)
        if partition is None or partition.is_leader:
            self.leader_id = -1
            self._make_session()
        else:
            if partition.leader_id != self.leader_id:
                self.leader_id = partition.leader_id
                self._make_session()
            if partition.leader_id >= 0:
                self.session.follow(partition)

    @property
    def now(self) -> float:
        return self.clock.time_ms / 1000

    def broker_epoch(self) -> int:
        return self.partitions.environment.brokers.epoch(self.broker_id)

    def serve(self, request: Message) -> Any:
        """Response to a request of another broker, decoded from one buffer as a broker receives it."""
        handler, key, version, response_type = HANDLERS[type(request)]
        arrived = decode(type(request), version, memoryview(encode(request, version)))
        connection = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("localhost", 9092), None)
        response = run_through(handler(RequestContext(self.services, connection, key, version, 1, "replica"), arrived))
        body = bytearray()
        for chunk in encode_chunks(response, version):
            if hasattr(chunk, "release"):
                body += chunk.read()
                chunk.release()
            else:
                body += chunk
        return decode(response_type, version, memoryview(body))


def run_through(coroutine: Any) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")
