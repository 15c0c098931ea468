"""Name of a partition in Kafka's terms: TopicPartition."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""Topic and partition number."""
