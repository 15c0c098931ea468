"""The error of a partition that has no online replica on this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext


def missing_partition_error(context: BrokerContext, topic: str, index: int) -> ErrorCode:
    """The error as in Kafka's `ReplicaManager.getPartitionOrError`, by the topic's name (P-375)."""
    services = context.services
    if services.partitions.is_offline(topic, index):
        return ErrorCode.KAFKA_STORAGE_ERROR
    image = services.metadata.topic(topic)
    if image is not None and index in image.partitions:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
