"""Partition of an internal topic that stores a group, a transactional id or a share partition (P-88)."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units with multiplier 31, as a signed 32-bit integer.

    A character outside the basic plane counts as its two surrogates; a lone surrogate as itself.
    """
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=256)  # each heartbeat and commit of a group asks; the hash is a loop over its id
def coordinator_partition(key: str, partition_count: int) -> int:
    """Number of the partition that stores `key`: the hash's absolute value modulo the partition count.

    Kafka's absolute value of the smallest integer is 0, not an overflow.
    """
    value = java_string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partition_count


def utf16_length(text: str) -> int:
    """Length in UTF-16 units, Java's ``String.length``, by which Kafka limits a committed offset's metadata (P-111)."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
