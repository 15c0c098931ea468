"""Records of groups that are appended and not replicated yet: they count for writers and are hidden from readers.

Readers are told of replicated records only. But who deletes or expires offsets has to know of those on the way, and an
offset whose transactional commit is on the way is as unstable as one whose commit is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pykbroker.coordination.shard import NO_PRODUCER
from pykbroker.groups.pending_offsets import OffsetKey
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from pykbroker.protocol.uuids import ZERO_UUID

Key = TypeVar("Key")


class InFlight:
    """Counts of records on the way, by what they are about."""

    def __init__(self) -> None:
        self._offsets: dict[OffsetKey, int] = {}
        self._transactional: dict[OffsetKey, int] = {}
        self._topic_ids: dict[OffsetKey, bytes] = {}
        self._ending_groups: dict[str, int] = {}

    def add(self, result: GroupResult) -> None:
        """The records of a result are in the log."""
        self._count(result, 1)

    def remove(self, result: GroupResult) -> None:
        """They are replicated."""
        self._count(result, -1)

    def is_ending(self, group_id: str) -> bool:
        """True if the group's end is on the way; until it is there nobody can tell whether the group exists."""
        return group_id in self._ending_groups

    def is_unstable(self, key: OffsetKey) -> bool:
        """True if a transactional commit for the partition is on the way."""
        return key in self._transactional

    def __contains__(self, key: OffsetKey) -> bool:
        """True if a commit for the partition, or the end of one, is on the way."""
        return key in self._offsets

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions for which something of the group is on the way."""
        return [(topic, partition) for group, topic, partition in self._offsets if group == group_id]

    def of_topic(self, topic: str, topic_id: bytes) -> Iterable[OffsetKey]:
        """Commits on the way for a topic, or for one of its name that say no id."""
        return [k for k in self._offsets if k[1] == topic and self._topic_ids.get(k) in (ZERO_UUID, topic_id)]

    def _count(self, result: GroupResult, change: int) -> None:
        for record in result.records:
            key = record.key
            if isinstance(key, OffsetCommitKey):
                place = (key.group, key.topic, key.partition)
                self._note_topic(record, place)
                if not _add(self._offsets, place, change):
                    self._topic_ids.pop(place, None)
                if result.producer is not NO_PRODUCER:
                    _add(self._transactional, place, change)
            elif isinstance(key, GroupMetadataKey) and record.value is None:
                _add(self._ending_groups, key.group, change)

    def _note_topic(self, record: LogRecord, place: OffsetKey) -> None:
        if isinstance(record.value, OffsetCommitValue):
            self._topic_ids[place] = record.value.topic_id


def _add(counts: dict[Key, int], key: Key, change: int) -> int:
    count = counts.get(key, 0) + change
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)
    return count
