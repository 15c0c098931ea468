"""Descriptions of modern groups: the part that consumer and share groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.protocol.steps import Steps, list_in_steps

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
    return list_in_steps(
        make(
            topic_id=topic_id,
            topic_name=topic.name,
            partitions=numbers if isinstance(numbers, list) else sorted(numbers),
        )
        for topic_id, numbers in assigned
        if (topic := topics.get(topic_id)) is not None
    )
