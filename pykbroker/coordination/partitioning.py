"""Partition of an internal topic that stores a group, a transactional id or a share partition (P-88)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pykbroker.java_order import hashed_partition_order, string_hash
from pykbroker.protocol.steps import Steps

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC))
"""Topics that Metadata marks as internal."""


@lru_cache(maxsize=256)  # called by each heartbeat and commit; the hash is a loop over the key
def coordinator_partition(key: str, partition_count: int) -> int:
    """Number of the partition that stores `key`: the hash's absolute value modulo the partition count.

    Kafka's absolute value of the smallest integer is 0, not an overflow.
    """
    value = string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partition_count


def keys_by_partition(keys: Iterable[str], topic: str, partition_count: int) -> Steps[list[list[str]]]:
    """Keys of each partition that has one, in the order in which Kafka's group coordinator asks the partitions."""
    found: dict[int, list[str]] = {}
    for key in keys:
        found.setdefault(coordinator_partition(key, partition_count), []).append(key)
        yield
    return [found[number] for number in hashed_partition_order(topic, found)]
