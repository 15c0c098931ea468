"""Descriptions of modern groups: the part that consumer and share groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.protocol.steps import PIECE, Steps

TopicPartitions = TypeVar("TopicPartitions")


def topic_partitions(
    make: Callable[..., TopicPartitions],
    assigned: Iterable[tuple[bytes, Collection[int]]],
    topics: Mapping[bytes, TopicImage],
) -> Steps[list[TopicPartitions]]:
    """An assignment in a response, without topics that do not exist now.

    Args:
        make: class of the response for one topic.
        assigned: (topic id, partitions) each; a list is in order already.
        topics: the topics that exist, by id.
    """
    found: list[TopicPartitions] = []
    for count, (topic_id, numbers) in enumerate(assigned, 1):
        topic = topics.get(topic_id)
        if topic is not None:
            ordered = numbers if isinstance(numbers, list) else sorted(numbers)
            found.append(make(topic_id=topic_id, topic_name=topic.name, partitions=ordered))
        if not count % PIECE:
            yield
    return found
