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
        self._by_producer: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        # Group id -> topic and partition -> producer ids; empty levels are not kept.
        self._waiting: dict[str, dict[tuple[str, int], set[int]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self._by_producer == other._by_producer

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """True if there are any."""
        return bool(self._by_producer)

    def put(self, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        """Sets the pending offset of a producer for a partition."""
        pending = self._by_producer.get(producer_id)
        if pending is None:
            pending = self._by_producer[producer_id] = {}
        pending[key] = committed
        group_id, topic, partition = key
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
        offsets: dict[OffsetKey, CommittedOffset],
        producers: dict[tuple[str, int], set[int]],
        first_offset: int,
    ) -> None:
        """As `put` for the offsets of a batch of one group, which it takes over.

        Each `record_offset` counts from `first_offset`. `producers` has this producer for each topic and partition.
        """
        count_from(offsets, first_offset)
        pending = self._by_producer.get(producer_id)
        if pending is None:
            self._by_producer[producer_id] = offsets
        else:
            pending.update(offsets)
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
        for producer_id in producers_of.get((topic, partition), ()):
            pending = self._by_producer[producer_id]
            del pending[key]
            if not pending:
                del self._by_producer[producer_id]
        self._remove_waiting(key)

    def end(self, producer_id: int) -> dict[OffsetKey, CommittedOffset]:
        """Removes and returns the pending offsets of a producer whose transaction has ended."""
        ended = self._by_producer.pop(producer_id, {})
        # A transaction may have thousands of them, which end in one step.
        waiting = self._waiting
        group_id: str | None = None
        producers_of: dict[tuple[str, int], set[int]] = {}
        for key in ended:
            if key[0] != group_id:
                group_id = key[0]
                producers_of = waiting[group_id]
            partition = key[1:]
            producers = producers_of[partition]
            if len(producers) == 1:
                del producers_of[partition]
            else:
                producers.remove(producer_id)
        for ended_group in {key[0] for key in ended}:
            if not waiting[ended_group]:
                del waiting[ended_group]
        return ended

    def _remove_waiting(self, key: OffsetKey) -> None:
        group_id, topic, partition = key
        producers_of = self._waiting.get(group_id)
        if producers_of is not None:
            producers_of.pop((topic, partition), None)
            if not producers_of:
                del self._waiting[group_id]

    def __contains__(self, key: OffsetKey) -> bool:
        """True if the partition's committed offset may change with the end of a transaction."""
        group_id, topic, partition = key
        return (topic, partition) in self._waiting.get(group_id, ())

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions for which the group has pending offsets."""
        return list(self._waiting.get(group_id, ()))

    def of_topics(self, names: Container[str]) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Pending offsets of the topics with these names, in all groups."""
        for pending in self._by_producer.values():
            for key, committed in pending.items():
                if key[1] in names:
                    yield key, committed
