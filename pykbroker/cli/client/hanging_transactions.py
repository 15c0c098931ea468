"""Transactions that are open in a partition though no coordinator will end them (KIP-664).

They hold back the last stable offset: read_committed consumers wait, and no record after it is compacted. They come
from brokers and clients before Apache Kafka 3.6, where partitions accepted records of a transaction that had ended
already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.cli.client.cluster import Cluster
    from pykbroker.protocol.topic_partition import TopicPartition


def find_hanging(cluster: Cluster, partitions: list[TopicPartition], last_record_ms_max: int) -> list[dict[str, Any]]:
    """Returns the hanging transactions of these partitions with a last record before a time in ms, by partition.

    Each has topic, partition, and the fields of `Cluster.producers` for its producer.
    """
    candidates = [
        {"topic": topic_partition[0], "partition": topic_partition[1], **item}
        for topic_partition, items in sorted(cluster.producers(partitions).items())
        for item in items
        if item["start_offset"] is not None and item["last_timestamp_ms"] < last_record_ms_max
    ]
    return [
        row for row in candidates if owner_of(cluster, (row["topic"], row["partition"]), row["producer_id"]) is None
    ]


def owner_of(cluster: Cluster, topic_partition: TopicPartition, producer_id: int) -> str | None:
    """Returns the transactional id whose coordinator will write a marker of this producer into a partition, or None."""
    for row in cluster.transactions(producer_ids=[producer_id]):
        found = cluster.describe_transaction(row["transactional_id"])
        # A coordinator lists the partitions that have no marker yet, also while it completes the transaction.
        if found and {"topic": topic_partition[0], "partition": topic_partition[1]} in found["partitions"]:
            return str(row["transactional_id"])
    return None
