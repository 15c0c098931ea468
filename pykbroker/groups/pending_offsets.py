"""Pending offsets, which wait for the end of a transaction (P-139), by producer and by partition."""

from __future__ import annotations

from collections.abc import Container, Iterator

from pykbroker.groups.offsets import CommittedOffset, OffsetKey, count_from


class PendingOffsets:
    """Offsets committed in transactions that are still open.

    A tombstone removes the pending offsets of its partition, whatever the outcome of the transactions; a producer's
    marker removes those of the producer.
    """

    def __init__(self) -> None:
        # Producer id -> group id -> topic -> partition -> offset; empty levels are not kept, here and below.
        self._by_producer: dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]] = {}
        # Group id -> ids of the producers with pending offsets of the group.
        self._producers: dict[str, set[int]] = {}
        # Group id -> topic and partition -> producer ids.
        self._waiting: dict[str, dict[tuple[str, int], set[int]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self._by_producer == other._by_producer

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """True if there are any."""
        return bool(self._by_producer)

    def put(self, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        """Sets the pending offset of a producer for a partition."""
        group_id, topic, partition = key
        groups = self._by_producer.get(producer_id)
        if groups is None:
            groups = self._by_producer[producer_id] = {}
        topics = groups.get(group_id)
        if topics is None:
            topics = groups[group_id] = {}
            self._producers.setdefault(group_id, set()).add(producer_id)
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed
        producers_of = self._waiting.get(group_id)
        if producers_of is None:
            producers_of = self._waiting[group_id] = {}
        producers = producers_of.get((topic, partition))
        if producers is None:
            producers_of[topic, partition] = {producer_id}
        else:
            producers.add(producer_id)

    def put_all(
        self,
        producer_id: int,
        group_id: str,
        topics: dict[str, dict[int, CommittedOffset]],
        producers: dict[tuple[str, int], set[int]],
        first_offset: int,
    ) -> None:
        """As `put` for the offsets of a batch of one group, which it takes over.

        Each `record_offset` counts from `first_offset`. `producers` has this producer for each topic and partition.
        """
        groups = self._by_producer.setdefault(producer_id, {})
        known_topics = groups.setdefault(group_id, topics)
        for topic, partitions in topics.items():
            count_from(partitions, first_offset)
            known_partitions = known_topics.setdefault(topic, partitions)
            if known_partitions is not partitions:
                known_partitions.update(partitions)
        self._producers.setdefault(group_id, set()).add(producer_id)
        producers_of = self._waiting.get(group_id)
        if producers_of is None:
            self._waiting[group_id] = producers
            return
        for waiting, producer in producers.items():
            known = producers_of.setdefault(waiting, producer)
            if known is not producer:
                known.add(producer_id)

    def discard(self, key: OffsetKey) -> None:
        """Removes the pending offsets of all producers for a partition, for a tombstone."""
        group_id, topic, partition = key
        producers_of = self._waiting.get(group_id)
        if producers_of is None:
            return
        for producer_id in producers_of.pop((topic, partition), ()):
            groups = self._by_producer[producer_id]
            topics = groups[group_id]
            partitions = topics[topic]
            del partitions[partition]
            if partitions:
                continue
            del topics[topic]
            if topics:
                continue
            del groups[group_id]
            self._producers[group_id].remove(producer_id)
            if not groups:
                del self._by_producer[producer_id]
        if not producers_of:
            del self._waiting[group_id], self._producers[group_id]

    def end(self, producer_id: int) -> dict[str, dict[str, dict[int, CommittedOffset]]]:
        """Removes the pending offsets of a producer whose transaction has ended.

        Returns them: group id -> topic -> partition -> offset, for the caller to keep.
        """
        ended = self._by_producer.pop(producer_id, {})
        # A transaction may have thousands of them, which end in one step.
        for group_id, topics in ended.items():
            others = self._producers[group_id]
            others.remove(producer_id)
            if not others:
                del self._waiting[group_id], self._producers[group_id]
                continue
            producers_of = self._waiting[group_id]
            for topic, partitions in topics.items():
                for partition in partitions:
                    producers = producers_of[topic, partition]
                    if len(producers) == 1:
                        del producers_of[topic, partition]
                    else:
                        producers.remove(producer_id)
        return ended

    def __contains__(self, key: OffsetKey) -> bool:
        """True if the partition's committed offset may change with the end of a transaction."""
        group_id, topic, partition = key
        return (topic, partition) in self._waiting.get(group_id, ())

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions for which the group has pending offsets."""
        return list(self._waiting.get(group_id, ()))

    def of_topics(self, names: Container[str]) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Pending offsets of the topics with these names, in all groups."""
        for groups in self._by_producer.values():
            for group_id, topics in groups.items():
                for topic, partitions in topics.items():
                    if topic in names:
                        for partition, committed in partitions.items():
                            yield (group_id, topic, partition), committed
