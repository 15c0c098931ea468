"""Topics as they stand in Metadata responses, kept in encoded form for the next client that asks.

What a topic looks like depends on its image, on the image of the brokers, on the listener of the client, and on the
version of the API. Images never change, so what was encoded is good for as long as the objects are the same ones: a
change of one topic has that one encoded again, a change of a broker has all.

What is kept costs about 30 bytes a partition and 300 a topic for each version that is in use: 1.2 MB for 10,000
partitions of 3,334 topics. It is given back a minute after the last use (`release_unused`). Versions in which a topic
has the same bytes, such as 10 to 13, count as one.

When a broker changes or another version is asked for, every topic is encoded anew. What does not change with that is
kept, too: which topics have the same partitions (`TopicShapes`), so that these are encoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage

FIRST_VERSIONS_OF_LAYOUTS = (0, 1, 5, 6, 7, 8, 9, 10)
"""Versions from which a topic has other bytes: replicas that are gone (1), offline replicas (5), the error
LISTENER_NOT_FOUND (6), leader epochs (7), operations (8), compact lengths (9), topic ids (10)."""

SETS_MAX = 4
"""Layouts and listeners whose topics are kept: clients of one cluster use few, and each costs memory."""

KEPT_S = 60.0
"""Time after the last use for which encoded topics are kept. Clients ask every `metadata.max.age.ms`, 5 minutes, each
for itself: with several of them the topics stay, and a broker that nobody asks has none."""

STRAY_MAX = 64
"""Topics that are gone, or so many of them, may stay among the encoded ones before they are looked for."""


class Shape:
    """The partitions that some topics have in common. Compared by identity."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: tuple[PartitionImage, ...]) -> None:
        self.partitions = partitions


class TopicShapes:
    """Shapes of topics: topics with equal partitions share one `Shape`. `of` finds the shape of a known topic image
    without comparing partitions."""

    __slots__ = ("_images", "_interned", "_shapes")

    def __init__(self) -> None:
        # By topic id, in two tables, as in EncodedTopicSet.
        self._images: dict[bytes, TopicImage] = {}
        self._shapes: dict[bytes, Shape] = {}
        self._interned: dict[tuple[PartitionImage, ...], Shape] = {}

    def __len__(self) -> int:
        return max(len(self._shapes), len(self._interned))

    def of(self, topic: TopicImage) -> Shape:
        """The shape of a topic, the same object for topics with equal partitions."""
        topic_id = topic.topic_id
        if self._images.get(topic_id) is topic:
            return self._shapes[topic_id]
        partitions = tuple(topic.partitions.values())
        shape = self._interned.get(partitions)
        if shape is None:
            shape = self._interned[partitions] = Shape(partitions)
        self._images[topic_id] = topic
        self._shapes[topic_id] = shape
        return shape

    def limit(self, image: ClusterImage) -> None:
        """Forget all when there are many topics that are gone, or shapes that no topic has any more."""
        if len(self) > len(image.topics_by_id) + STRAY_MAX:
            self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._images.clear()
        self._shapes.clear()
        self._interned.clear()


class EncodedTopicSet:
    """Encoded topics for one listener and layout, under one image of the brokers. `used_at` is in seconds."""

    __slots__ = ("_encoded", "_images", "brokers", "used_at")

    def __init__(self, brokers: Mapping[int, BrokerImage]) -> None:
        self.brokers = brokers
        self.used_at = 0.0
        # By topic id, and two tables: a pair for each topic would be work for the garbage collector.
        self._images: dict[bytes, TopicImage] = {}
        self._encoded: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._encoded)

    def get(self, topic: TopicImage) -> bytes | None:
        """The encoded topic, None if it is not there or was another image of the topic."""
        return self._encoded[topic.topic_id] if self._images.get(topic.topic_id) is topic else None

    def put(self, topic: TopicImage, encoded: bytes, image: ClusterImage) -> None:
        """Keep an encoded topic of this image."""
        if len(self._images) >= len(image.topics_by_id) + STRAY_MAX:
            for topic_id in [topic_id for topic_id in self._images if topic_id not in image.topics_by_id]:
                del self._images[topic_id]
                del self._encoded[topic_id]
        self._images[topic.topic_id] = topic
        self._encoded[topic.topic_id] = encoded


class EncodedTopics:
    """The sets in use, the one used last at the end, and the topics' shapes for all of them."""

    __slots__ = ("_sets", "shapes")

    def __init__(self) -> None:
        self.shapes = TopicShapes()
        self._sets: dict[tuple[str, int], EncodedTopicSet] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def for_client(self, image: ClusterImage, listener_name: str, version: int, now_s: float) -> EncodedTopicSet:
        """The set for a client of this listener that uses this version.

        It stays good for `image` also when a newer image of the brokers replaces it here.
        """
        self.shapes.limit(image)
        key = listener_name, max(first for first in FIRST_VERSIONS_OF_LAYOUTS if first <= version)
        found = self._sets.pop(key, None)
        if found is None or found.brokers is not image.brokers:
            found = EncodedTopicSet(image.brokers)
        self._sets[key] = found
        if len(self._sets) > SETS_MAX:
            del self._sets[next(iter(self._sets))]
        found.used_at = now_s
        return found

    def release_unused(self, now_s: float) -> None:
        """Let go of what was not used for `KEPT_S`."""
        for key, encoded in list(self._sets.items()):
            if now_s - encoded.used_at > KEPT_S:
                del self._sets[key]
        if not self._sets:
            self.shapes.clear()
