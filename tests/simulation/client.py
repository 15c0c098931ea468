"""A client machine: connections to brokers, the metadata it knows, coordinators; requests go by the real protocol."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequest
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from tests.simulation.world import World

PORT = 9092
REQUEST_TIMEOUT_MS = 1500
BACKOFF_S = 0.05
GROUP, TRANSACTION = 0, 1

CAPS: dict[type[Message], int] = {AddPartitionsToTxnRequest: 3, InitProducerIdRequest: 5}
"""Later versions are for brokers, and for two-phase commits."""

OLD_CAPS: dict[type[Message], int] = {
    **CAPS,
    # What clients use that do not know transaction.version 2, nor topic ids.
    ProduceRequest: 11,
    EndTxnRequest: 4,
    TxnOffsetCommitRequest: 4,
    FetchRequest: 12,
    OffsetFetchRequest: 9,
    OffsetCommitRequest: 9,
}


class Unreachable(Exception):
    """Nobody answered, or nobody is known who could: to be tried again."""


class PartitionInfo(NamedTuple):
    """Leader and replicas of a partition, as far as the client knows."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class _Connection(NodeClient):
    """A client may keep to older versions than it has."""

    caps: dict[type[Message], int]

    def _version_for(self, message: Message) -> int:
        return min(super()._version_for(message), self.caps.get(type(message), 99))


class Client:
    """A client machine of the simulated network.

    Attributes:
        random: for the choices of whoever uses this client.
        is_new: whether it speaks the newest versions: topic ids, a new epoch for each transaction.
    """

    def __init__(self, world: World, name: str, *, is_new: bool = False) -> None:
        self.world = world
        self.name = name
        self.random = random.Random(f"{world.seed} {name}")
        self.partitions: dict[tuple[str, int], PartitionInfo] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.is_new = is_new
        self._caps = CAPS if is_new else OLD_CAPS
        self._idle: dict[int, list[_Connection]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        world.network.add(name)

    def say(self, what: str) -> None:
        """A line for the trace."""
        self.world.trace.add(self.name, what)

    def _connection(self, node_id: int) -> _Connection:
        """One that nobody uses just now: a connection has one request at a time."""
        idle = self._idle.setdefault(node_id, [])
        if idle:
            return idle.pop()
        address = NodeAddress(self.world.broker_names[node_id], PORT)
        opener = self.world.network.opener_of(self.name)
        connection = _Connection(address, opener, client_id=self.name, software_version="1")
        connection.caps = self._caps
        return connection

    async def call(self, node_id: int, request: Message, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Sends a request and waits for its response.

        Raises:
            Unreachable: there is none; the request may have been served.
        """
        if node_id not in self.world.broker_names:
            raise Unreachable(f"there is no node {node_id}")
        connection = self._connection(node_id)
        try:
            return await connection.request(request, timeout_ms)
        except (NodeUnreachable, ProtocolError) as error:
            raise Unreachable(str(error)) from None
        finally:
            self._idle[node_id].append(connection)

    async def call_any(self, request: Message, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """The answer of any broker."""
        return await self.call(self.random.choice(list(self.world.broker_names)), request, timeout_ms)

    async def pause(self) -> None:
        """Between two tries."""
        await trio.sleep(BACKOFF_S * (1 + self.random.random()))

    # Metadata

    async def refresh(self, topics: list[str]) -> None:
        """Asks some broker where partitions are."""
        asked = [MetadataRequestTopic(name=name) for name in topics]
        response = await self.call_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        for topic in response.topics:
            if topic.error_code != ErrorCode.NONE:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for found in topic.partitions:
                key = topic.name, found.partition_index
                known = self.partitions.get(key)
                if known is None or known.leader_epoch <= found.leader_epoch:
                    self.partitions[key] = PartitionInfo(
                        found.leader_id, found.leader_epoch, tuple(found.replica_nodes), tuple(found.isr_nodes)
                    )

    async def leader_of(self, topic: str, partition: int) -> PartitionInfo:
        """Leader and replicas of a partition, from the cache or by Metadata. Raises Unreachable while there is no
        leader."""
        info = self.partitions.get((topic, partition))
        if info is None or info.leader < 0:
            await self.refresh([topic])
            info = self.partitions.get((topic, partition))
        if info is None or info.leader < 0:
            raise Unreachable(f"{topic}-{partition} has no leader")
        return info

    def forget(self, topic: str, partition: int) -> None:
        """Mark the cached leader of a partition as out of date."""
        info = self.partitions.get((topic, partition))
        if info is not None:
            self.partitions[topic, partition] = info._replace(leader=-1)

    # Coordinators

    async def call_coordinator(self, kind: int, key: str, request: Message, timeout_ms: int = 2500) -> Any:
        """Sends a request to the coordinator of a group or a transactional id."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            response = await self.call_any(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            found = response.coordinators[0]
            if found.error_code != ErrorCode.NONE:
                raise Unreachable(f"no coordinator of {key}: {ErrorCode(found.error_code).name}")
            node_id = self._coordinators[kind, key] = found.node_id
        try:
            return await self.call(node_id, request, timeout_ms)
        except Unreachable:
            self._coordinators.pop((kind, key), None)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    # Records

    async def produce(
        self, topic: str, partition: int, data: bytes, *, acks: int = -1, transactional_id: str | None = None
    ) -> Any:
        """The partition's part of the response; None with acks 0. Raises Unreachable."""
        info = await self.leader_of(topic, partition)
        parts = [PartitionProduceData(index=partition, records=data)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=REQUEST_TIMEOUT_MS - 200,
            topic_data=[
                TopicProduceData(name=topic, topic_id=self.topic_ids.get(topic, bytes(16)), partition_data=parts)
            ],
        )
        try:
            response = await self.call(info.leader, request)
        except Unreachable:
            self.forget(topic, partition)
            raise
        return response.responses[0].partition_responses[0]

    async def fetch(
        self,
        node_id: int,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: int = 0,
        epoch: int = -1,
        max_wait_ms: int = 200,
    ) -> Any:
        """The partition's part of the response, with an error of the whole request put into it."""
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 16
        )
        topic_id = self.topic_ids.get(topic, bytes(16))
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
        )
        response = await self.call(node_id, request, REQUEST_TIMEOUT_MS + max_wait_ms)
        if not response.responses:
            raise Unreachable(f"fetch of {topic}-{partition}: error {response.error_code}")
        return response.responses[0].partitions[0]

    async def end_offset(self, topic: str, partition: int, isolation: int = 0) -> int:
        """The end of what consumers may read. Raises Unreachable."""
        info = await self.leader_of(topic, partition)
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
        try:
            response = await self.call(
                info.leader, ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
            )
        except Unreachable:
            self.forget(topic, partition)
            raise
        found = response.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            self.forget(topic, partition)
            raise Unreachable(f"no end of {topic}-{partition}: {ErrorCode(found.error_code).name}")
        offset: int = found.offset
        return offset
