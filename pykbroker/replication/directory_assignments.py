"""AssignReplicasToDirs (KIP-858): the request that tells the active controller in which directories replicas are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import answered_error

if TYPE_CHECKING:
    from pykbroker.protocol.fields import Message

REQUEST_TIMEOUT_MS = 10_000
REPLICAS_PER_REQUEST = 2000
"""Largest number of replicas in one AssignReplicasToDirs request, as in Kafka's AssignmentsManager."""


class Channel(Protocol):
    """The part of `ControllerChannel` that is used."""

    async def request(self, message: Message, timeout_ms: int) -> Any:
        """The active controller's response. Raises KafkaError."""


async def assign_replicas(
    channel: Channel, broker_id: int, broker_epoch: int, replicas: Iterable[tuple[bytes, bytes, int]]
) -> str | None:
    """Assigns replicas to directories: (directory id, topic id, partition) each.

    Returns the reason why the whole request failed, None if it did not. A single replica may be refused nevertheless.
    """
    try:
        response = await channel.request(_request(broker_id, broker_epoch, replicas), REQUEST_TIMEOUT_MS)
    except KafkaError as error:
        return str(error)
    return answered_error(response.error_code).name if response.error_code else None


def _request(broker_id: int, broker_epoch: int, replicas: Iterable[tuple[bytes, bytes, int]]) -> Message:
    # Imported here: most brokers never send this request.
    from pykbroker.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        DirectoryData,
        PartitionData,
        TopicData,
    )

    directories: dict[bytes, DirectoryData] = {}
    topics: dict[tuple[bytes, bytes], TopicData] = {}
    for directory_id, topic_id, number in replicas:
        directory = directories.setdefault(directory_id, DirectoryData(id=directory_id))
        topic = topics.get((directory_id, topic_id))
        if topic is None:
            topic = topics[directory_id, topic_id] = TopicData(topic_id=topic_id)
            directory.topics.append(topic)
        topic.partitions.append(PartitionData(partition_index=number))
    return AssignReplicasToDirsRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, directories=list(directories.values())
    )
