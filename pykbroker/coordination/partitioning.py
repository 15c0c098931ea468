"""Partition of an internal topic that stores a group, a transactional id or a share partition (P-88)."""

from __future__ import annotations

from functools import lru_cache

from pykbroker.java_order import string_hash

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
