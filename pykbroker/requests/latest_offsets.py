"""End offsets of partitions, from their leaders on this broker or on others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.errors import answered_error
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerServices

NO_EPOCH = -1
LIST_OFFSETS_VERSION_MIN = 6
TIMEOUT_MS = 30_000
"""Time limit of one request to another broker."""
ATTEMPTS = 3
PAUSE_S = 0.2
"""Seconds before the second attempt; twice as many before the third."""


class LatestOffset(NamedTuple):
    """The high watermark of a partition; -1 with an error."""

    error: ErrorCode
    offset: int = -1


async def latest_offsets(
    services: BrokerServices, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, LatestOffset]:
    """The high watermark of each partition, by a request to its leader."""
    found: dict[TopicPartition, LatestOffset] = {}
    remote: dict[int, list[TopicPartition]] = {}
    for topic_partition in partitions:
        topic = services.metadata.topic(topic_partition[0])
        image = None if topic is None else topic.partitions.get(topic_partition[1])
        if image is None or image.leader < 0:
            found[topic_partition] = LatestOffset(ErrorCode.LEADER_NOT_AVAILABLE)
        elif image.leader == services.node_id:
            found[topic_partition] = _local(services, topic_partition)
        else:
            remote.setdefault(image.leader, []).append(topic_partition)

    async def ask(broker_id: int, asked: list[TopicPartition]) -> None:
        found.update(await _ask(services, broker_id, asked))

    async with trio.open_nursery() as nursery:
        for broker_id, asked in remote.items():
            nursery.start_soon(ask, broker_id, asked)
    return found


def _local(services: BrokerServices, topic_partition: TopicPartition) -> LatestOffset:
    partition = services.partitions.get(*topic_partition)
    if partition is None or not partition.is_leader:
        return LatestOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.is_behind_its_epoch:
        return LatestOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    return LatestOffset(ErrorCode.NONE, partition.high_watermark)


async def _ask(
    services: BrokerServices, broker_id: int, asked: list[TopicPartition]
) -> Mapping[TopicPartition, LatestOffset]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, number in asked:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=number, timestamp=LATEST, current_leader_epoch=NO_EPOCH)
        )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values()))
    for attempt in range(ATTEMPTS):
        if attempt:
            await trio.sleep(PAUSE_S * attempt)
        clients = services.broker_clients
        if clients is None:
            break
        try:
            client = clients.connect(broker_id, "offsets")
            try:
                response = await client.request(request, TIMEOUT_MS, LIST_OFFSETS_VERSION_MIN)
            finally:
                await client.close()
        except (NodeUnreachable, ProtocolError):
            continue
        return {
            (topic.name, part.partition_index): LatestOffset(answered_error(part.error_code), part.offset)
            for topic in response.topics
            for part in topic.partitions
        }
    return dict.fromkeys(asked, LatestOffset(ErrorCode.NETWORK_EXCEPTION))
