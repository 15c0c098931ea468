"""Transactions that are open in a partition though no coordinator will end them (KIP-664).

They keep the last stable offset where it is: readers of committed records wait, and nothing behind it is compacted.
They come from brokers and clients before Apache Kafka 3.6, whose partitions took records of a transaction that had
been ended already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.cli.cluster import Cluster

Where = tuple[str, int]


def find_hanging(cluster: Cluster, partitions: list[Where], last_record_ms_max: int) -> list[dict[str, Any]]:
    """Return what hangs in these partitions and had its last record before a time, by partition.

    Of each: topic, partition, and what `Cluster.producers` says of the producer.
    """
    candidates = [
        {"topic": where[0], "partition": where[1], **item}
        for where, items in sorted(cluster.producers(partitions).items())
        for item in items
        if item["start_offset"] is not None and item["last_timestamp_ms"] < last_record_ms_max
    ]
    return [
        row for row in candidates if owner_of(cluster, (row["topic"], row["partition"]), row["producer_id"]) is None
    ]


def owner_of(cluster: Cluster, where: Where, producer_id: int) -> str | None:
    """Return the transactional id whose coordinator will write a marker of this producer into a partition, or None."""
    for row in cluster.transactions(producer_ids=[producer_id]):
        found = cluster.describe_transaction(row["transactional_id"])
        # A coordinator names the partitions that have no marker yet, also while it ends the transaction.
        if found and {"topic": where[0], "partition": where[1]} in found["partitions"]:
            return str(row["transactional_id"])
    return None
