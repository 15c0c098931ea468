"""Cache of topics in the encoded form of Metadata responses.

The bytes of a topic depend on its image, on the image of the brokers, on the listener of the client, and on the version
of the API. Images are immutable, so encoded bytes are valid as long as the image objects are the same: after a change
of one topic that topic is encoded again, and after a change of a broker all topics are.

The cache takes about 30 bytes per partition and 300 per topic for each layout in use: 1.2 MB for 10,000 partitions of
3,334 topics. It is freed a minute after the last use (`release_unused`). Versions in which a topic has the same bytes,
such as 10 to 13, share one layout.

After a change of a broker, and for another layout, every topic is encoded again. Topics with equal partitions
(`TopicShapes`) share the encoding of these partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage

FIRST_VERSIONS_OF_LAYOUTS = (0, 1, 5, 6, 7, 8, 9, 10)
"""First Metadata version of each layout of a topic: replicas that are gone (1), offline replicas (5), the error
LISTENER_NOT_FOUND (6), leader epochs (7), authorized operations (8), compact lengths (9), topic ids (10)."""

SETS_MAX = 4
"""Largest number of (layout, listener) pairs in the cache: clients of one cluster use few, and each takes memory."""

KEPT_S = 60.0
"""Seconds after the last use for which encoded topics are kept. Each client asks every `metadata.max.age.ms`, 5 minutes
by default: with several clients the topics stay, and a broker without clients keeps none."""

STRAY_MAX = 64
"""Number of deleted topics that may stay in the cache before they are removed: an answer that is encoded in turns may
store a topic after its deletion."""


class Shape:
    """Partitions that several topics have in common. Compared by identity."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: tuple[PartitionImage, ...]) -> None:
        self.partitions = partitions


class TopicShapes:
    """Shapes of topics: topics with equal partitions share one `Shape`.

    `of` finds the shape of a known topic image without comparing partitions.
    """

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
        """Clears the tables when they have more than `STRAY_MAX` deleted topics or unused shapes."""
        if len(self) > len(image.topics_by_id) + STRAY_MAX:
            self.clear()

    def clear(self) -> None:
        """Removes all topics and shapes."""
        self._images.clear()
        self._shapes.clear()
        self._interned.clear()


class EncodedTopicSet:
    """Encoded topics for one listener and layout, under one image of the brokers. `used_at` is in seconds."""

    __slots__ = ("_encoded", "_images", "brokers", "used_at")

    def __init__(self, brokers: Mapping[int, BrokerImage]) -> None:
        self.brokers = brokers
        self.used_at = 0.0
        # By topic id. Two tables, because a tuple for each topic would be work for the garbage collector.
        self._images: dict[bytes, TopicImage] = {}
        self._encoded: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._encoded)

    def get(self, topic: TopicImage) -> bytes | None:
        """The encoded topic; None if it is missing or belongs to another image of the topic."""
        return self._encoded[topic.topic_id] if self._images.get(topic.topic_id) is topic else None

    def put(self, topic: TopicImage, encoded: bytes, image: ClusterImage) -> None:
        """Stores the encoded bytes of a topic of this image."""
        if len(self._images) >= len(image.topics_by_id) + STRAY_MAX:
            for topic_id in [topic_id for topic_id in self._images if topic_id not in image.topics_by_id]:
                del self._images[topic_id]
                del self._encoded[topic_id]
        self._images[topic.topic_id] = topic
        self._encoded[topic.topic_id] = encoded

    def remove(self, topic_id: bytes) -> None:
        """Frees a topic, if it is stored."""
        if self._images.pop(topic_id, None) is not None:
            del self._encoded[topic_id]


class EncodedTopics:
    """The encoded topics of each listener and layout, the most recently used last, and the shapes that they share."""

    __slots__ = ("_sets", "shapes")

    def __init__(self) -> None:
        self.shapes = TopicShapes()
        self._sets: dict[tuple[str, int], EncodedTopicSet] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def for_client(self, image: ClusterImage, listener_name: str, version: int, now_s: float) -> EncodedTopicSet:
        """Encoded topics for a client of this listener and version.

        The set stays valid for `image` even after a newer image of the brokers has replaced it in the cache.
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

    def remove_topics(self, topics: Iterable[TopicImage]) -> None:
        """Frees deleted topics: the image of one with 10,000 partitions has more than a megabyte."""
        for encoded in self._sets.values():
            for topic in topics:
                encoded.remove(topic.topic_id)

    def release_unused(self, now_s: float) -> None:
        """Frees the sets that were not used for `KEPT_S`, and the shapes with the last of them."""
        for key, encoded in list(self._sets.items()):
            if now_s - encoded.used_at > KEPT_S:
                del self._sets[key]
        if not self._sets:
            self.shapes.clear()
