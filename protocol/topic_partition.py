"""Name of a partition in Kafka's terms: TopicPartition."""

from __future__ import annotations

from collections.abc import Iterable

TopicPartition = tuple[str, int]
"""Topic and partition number."""


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, as most messages list partitions; both in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
