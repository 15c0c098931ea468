"""The delta between any two images, found by identity: they share the objects that have not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pykbroker.controller.metadata.image import ClusterImage, ImageDelta

K = TypeVar("K")
V = TypeVar("V")


def delta_between(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """The delta from `old` to `new`, between which there may be other images. Looks at every topic."""
    before, after = old.topics_by_id, new.topics_by_id
    return ImageDelta(
        created_topics=tuple(topic for topic_id, topic in after.items() if topic_id not in before),
        changed_topics=tuple(
            (before[topic_id], topic)
            for topic_id, topic in after.items()
            if topic_id in before and before[topic_id] is not topic
        ),
        deleted_topics=tuple(topic for topic_id, topic in before.items() if topic_id not in after),
        configs=_changed_keys(old.configs, new.configs),
        brokers=_changed_keys(old.brokers, new.brokers),
        controllers=_changed_keys(old.controllers, new.controllers),
        features=_changed_keys(old.features, new.features),
    )


def _changed_keys(old: Mapping[K, V], new: Mapping[K, V]) -> frozenset[K]:
    if old is new:
        return frozenset()
    return frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
