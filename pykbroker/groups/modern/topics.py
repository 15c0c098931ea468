"""The topics of the cluster as groups see them: names, ids, partitions and hashes, from one metadata image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pykbroker.controller.metadata.image import ClusterImage, TopicImage
from pykbroker.groups.modern.metadata_hash import group_hash, topic_hash
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import copied_table_size, string_hash
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.steps import PIECE, Steps

R = TypeVar("R")

RESULTS_MAX = 8
"""Large sets of names for which results of one kind are kept."""


class _Results(NamedTuple):
    """Results for large sets of names: ids, partition counts and hashes of those topics that exist."""

    ids: dict[frozenset[str], frozenset[bytes]]
    partition_counts: dict[frozenset[str], Mapping[bytes, int]]
    hashes: dict[frozenset[str], int]


class GroupTopics:
    """A view of the newest metadata image.

    Attributes:
        version: offset of the image in the metadata log.
        version_with_new_topics: offset of the newest image that created topics, at least that of the first image.
        changes: number of images so far that have changed topics, or racks of brokers.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._hashes: dict[str, int] = {}
        self._results = _Results({}, {}, {})
        self.changes = 0
        self.version = self.version_with_new_topics = image.offset

    def update(self, image: ClusterImage) -> set[str]:
        """Follows a new image; returns the names of the topics that it changed or deleted."""
        delta = image.delta
        changed = {new.name for _, new in delta.changed_topics} | {topic.name for topic in delta.deleted_topics}
        changed |= {topic.name for topic in delta.created_topics}
        if delta.brokers and _racks_of_brokers(image) != _racks_of_brokers(self._image):
            # A hash covers the racks of the replicas.
            self._hashes.clear()
            self._results = _Results({}, {}, {})
            self.changes += 1
        elif changed:
            self._forget_results(changed)
            self.changes += 1
        for name in changed:
            self._hashes.pop(name, None)
        self._image = image
        self.version = image.offset
        if delta.created_topics:
            self.version_with_new_topics = image.offset
        return changed

    @property
    def names(self) -> Iterable[str]:
        """Names of all topics."""
        return self._image.topics_by_name

    def id_of(self, name: str) -> bytes | None:
        """Id of a topic; None if it does not exist."""
        topic = self._image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """Ids of those topics that exist."""
        known = frozenset(names)
        found = self._results.ids.get(known)
        if found is None:
            topics = self._image.topics_by_name
            found = frozenset([topics[name].topic_id for name in known if name in topics])
            self._keep_result(self._results.ids, known, found)
        return found

    def partition_counts(self, names: Iterable[str]) -> Steps[Mapping[bytes, int]]:
        """Topic id -> partition count of those topics that exist, in the order of Kafka's set of these names.

        All are those of the first step, even if topics change between the steps.
        """
        known = frozenset(names)
        results = self._results.partition_counts
        found = results.get(known)
        if found is None:
            topics = self._image.topics_by_name
            ordered = yield from table_order_in_steps(sorted(known), string_hash, copied_table_size(len(known)))
            counts = {}
            for number, name in enumerate(ordered, 1):
                topic = topics.get(name)
                if topic is not None:
                    counts[topic.topic_id] = len(topic.partitions)
                if not number % PIECE:
                    yield
            found = counts
            self._keep_result(results, known, found)
        return found

    @property
    def by_id(self) -> Mapping[bytes, TopicImage]:
        """The topics that exist now, by id. The mapping never changes; another image has another one."""
        return self._image.topics_by_id

    def name_of(self, topic_id: bytes) -> str | None:
        """Name of a topic; None if it does not exist."""
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic_id: bytes) -> int:
        """Number of partitions of a topic; 0 if it does not exist."""
        topic = self._image.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def partition_count_of(self, name: str) -> int | None:
        """Number of partitions of a topic; None if it does not exist."""
        topic = self._image.topics_by_name.get(name)
        return None if topic is None else len(topic.partitions)

    def hash_of(self, names: Iterable[str]) -> int:
        """Hash of the existing topics among these names, for a group's epoch record."""
        known = frozenset(names)
        result = self._results.hashes.get(known)
        if result is None:
            hashes = self._hashes
            for name in known:
                if name not in hashes:
                    self.prepare_hash(name)
            result = group_hash([(name, hashes[name]) for name in known if name in hashes])
            self._keep_result(self._results.hashes, known, result)
        return result

    def _keep_result(self, results: dict[frozenset[str], R], names: frozenset[str], result: R) -> None:
        """Keeps a result for many topics, which the members of a large group ask for again and again."""
        if len(names) > PIECE:
            if len(results) >= RESULTS_MAX:
                results.clear()
            results[names] = result

    def _forget_results(self, changed: set[str]) -> None:
        """Forgets the results for sets that name one of these topics."""
        self._results = _Results(*(_results_without(results, changed) for results in self._results))

    def prepare_hash(self, name: str) -> None:
        """Computes the hash of a topic, if it exists, for later calls of `hash_of`."""
        if name not in self._hashes:
            topic = self._image.topics_by_name.get(name)
            if topic is not None:
                self._hashes[name] = topic_hash(name, topic.topic_id, self._racks(topic))

    def prepare(self, names: Iterable[str]) -> Steps[None]:
        """Computes in steps, and keeps, what later calls for these names return: hash, ids and partition counts."""
        names = frozenset(names)
        yield from self.prepare_hashes(names)
        self.ids_of(names)
        yield
        yield from self.partition_counts(names)

    def prepare_hashes(self, names: Iterable[str]) -> Steps[None]:
        """Computes the hashes of these topics in steps, and keeps them for later calls of `hash_of`."""
        names = frozenset(names)
        for count, name in enumerate(names, 1):
            self.prepare_hash(name)
            string_hash(name)
            if not count % PIECE:
                yield
        self.hash_of(names)
        yield

    def _racks(self, topic: TopicImage) -> Mapping[int, Sequence[str]]:
        brokers = self._image.brokers
        if not any(broker.rack for broker in brokers.values()):
            return dict.fromkeys(topic.partitions, ())
        return {
            number: [rack for replica in partition.replicas if replica in brokers and (rack := brokers[replica].rack)]
            for number, partition in topic.partitions.items()
        }


def _results_without(results: dict[frozenset[str], R], changed: set[str]) -> dict[frozenset[str], R]:
    return {names: result for names, result in results.items() if names.isdisjoint(changed)}


def _racks_of_brokers(image: ClusterImage) -> dict[int, str]:
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack}
