"""Records of groups that are appended and not replicated yet: writes take them into account, reads do not return them.

Responses to readers have replicated records only. But a deletion or expiry of offsets must include those in flight, and
an offset with a transactional commit in flight is as unstable as one whose commit is replicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from pykbroker.coordination.shard import NO_PRODUCER
from pykbroker.groups.offsets import CommittedOffset, OffsetKey
from pykbroker.groups.result import GroupResult, PreparedOffsets, PreparedPending, PreparedRemovals
from pykbroker.protocol.log_messages.consumer_group_records import ConsumerGroupMetadataKey
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from pykbroker.protocol.log_messages.share_group_records import ShareGroupMetadataKey
from pykbroker.protocol.log_messages.streams_group_records import StreamsGroupMetadataKey
from pykbroker.protocol.uuids import ZERO_UUID

Key = TypeVar("Key")


class InFlight:
    """Counts of the records in flight, by group and by partition of committed offsets."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}  # by group; none is empty
        # By group: a large commit or deletion. A group is either here or in `_offsets`.
        self._whole: dict[str, GroupResult] = {}
        self._transactional: dict[OffsetKey, int] = {}
        self._topic_ids: dict[OffsetKey, bytes] = {}
        self._ending_groups: dict[str, int] = {}

    def add(self, result: GroupResult) -> None:
        """Counts the records of a result, which are appended.

        A large commit or deletion is kept as a whole, as its partitions can be looked up, until there is another one of
        its group.
        """
        prepared = result.offsets
        if prepared is not None and prepared.group_id not in self._offsets and prepared.group_id not in self._whole:
            self._whole[prepared.group_id] = result
        else:
            self._count_records(result, 1)

    def remove(self, result: GroupResult) -> None:
        """No longer counts the records of a result, which are replicated."""
        prepared = result.offsets
        if prepared is not None and self._whole.get(prepared.group_id) is result:
            del self._whole[prepared.group_id]
        else:
            self._count_records(result, -1)

    def _whole_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions of the large commit or deletion of a group, if there is one."""
        whole = self._whole.get(group_id)
        if whole is None or whole.offsets is None:
            return []
        if isinstance(whole.offsets, PreparedPending):
            return list(whole.offsets.producers)
        return [(topic, number) for topic, partitions in whole.offsets.topics.items() for number in partitions]

    def _large_result_of(self, key: OffsetKey) -> GroupResult | None:
        """The large commit or deletion of a group, if it has a partition."""
        whole = self._whole.get(key[0])
        if whole is None or whole.offsets is None:
            return None
        return whole if key[2] in whole.offsets.topics.get(key[1], ()) else None

    def is_ending(self, group_id: str) -> bool:
        """True if a tombstone of the group is in flight.

        Records of the group that become replicated meanwhile lie before the tombstone, and must not create it again.
        """
        return group_id in self._ending_groups

    def unstable_of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions for which a transactional commit of the group is in flight."""
        found = [(topic, partition) for group, topic, partition in self._transactional if group == group_id]
        whole = self._whole.get(group_id)
        if whole is not None and whole.producer is not NO_PRODUCER:
            found += self._whole_partitions(group_id)
        return found

    def __contains__(self, key: OffsetKey) -> bool:
        """True if a commit for the partition, or the tombstone of one, is in flight."""
        group_id, topic, partition = key
        return (topic, partition) in self._offsets.get(group_id, ()) or self._large_result_of(key) is not None

    def is_tombstone(self, key: OffsetKey) -> bool:
        """True if only tombstones for the partition are in flight."""
        whole = self._large_result_of(key)
        if whole is not None:
            return isinstance(whole.offsets, PreparedRemovals)
        return key not in self._topic_ids and key in self

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions for which a commit or tombstone of the group is in flight."""
        return [*self._offsets.get(group_id, ()), *self._whole_partitions(group_id)]

    def of_topics(self, topics: Mapping[str, bytes]) -> Iterable[OffsetKey]:
        """Commits in flight for topics (name to id): those with the topic's id, and those with its name and no id."""
        counted = [
            key
            for group_id, partitions in self._offsets.items()
            for topic, partition in partitions
            if topic in topics
            and self._topic_ids.get(key := (group_id, topic, partition)) in (ZERO_UUID, topics[topic])
        ]
        return counted + [
            (whole.offsets.group_id, topic, partition)
            for whole in self._whole.values()
            if isinstance(whole.offsets, PreparedOffsets | PreparedPending)
            for topic, partition, committed in _commits(whole.offsets)
            if topic in topics and committed.topic_id in (ZERO_UUID, topics[topic])
        ]

    def _count_records(self, result: GroupResult, change: int) -> None:
        ended: list[str] = []
        offsets, topic_ids = self._offsets, self._topic_ids
        is_transactional = result.producer is not NO_PRODUCER
        for record in result.records:
            key = record.key
            if isinstance(key, OffsetCommitKey):
                offset_key = (key.group, key.topic, key.partition)
                if key.group in self._whole:
                    self._count_records(self._whole.pop(key.group), 1)
                if change > 0:
                    if record.value is not None:
                        topic_ids[offset_key] = record.value.topic_id
                    partitions = offsets.setdefault(key.group, {})
                    partitions[offset_key[1:]] = partitions.get(offset_key[1:], 0) + 1
                elif not _add(offsets[key.group], offset_key[1:], change):
                    topic_ids.pop(offset_key, None)
                    if not offsets[key.group]:
                        del offsets[key.group]
                if is_transactional:
                    _add(self._transactional, offset_key, change)
            elif isinstance(key, GroupMetadataKey):
                if record.value is not None:
                    if key.group in ended:
                        ended.remove(key.group)
                elif not result.applies_at_append:
                    _add(self._ending_groups, key.group, change)
            elif (
                isinstance(key, ConsumerGroupMetadataKey | ShareGroupMetadataKey | StreamsGroupMetadataKey)
                and record.value is None
                and not result.applies_at_append
            ):
                ended.append(key.group_id)
        for group_id in ended:
            _add(self._ending_groups, group_id, change)


def _commits(prepared: PreparedOffsets | PreparedPending) -> Iterator[tuple[str, int, CommittedOffset]]:
    """Topic, partition and offset of each commit."""
    for topic, partitions in prepared.topics.items():
        for number, committed in partitions.items():
            yield topic, number, committed


def _add(counts: dict[Key, int], key: Key, change: int) -> int:
    """Changes a count, which is not kept at 0; returns it."""
    count = counts.get(key, 0) + change
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)
    return count
