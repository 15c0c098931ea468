"""Committed offsets of the groups of one partition of `__consumer_offsets`, and their expiry (P-111 to P-114)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TypeVar

from pykbroker.groups.classic.group import EMPTY, STABLE, Group
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.java_order import utf16_length
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from pykbroker.protocol.uuids import ZERO_UUID

MEMBER_EPOCH_VERSION = 9
"""From this version on OffsetCommit has the errors of member epochs."""

Key = TypeVar("Key")

OffsetKey = tuple[str, str, int]
"""Group id, topic and partition."""


class CommittedOffset(NamedTuple):
    """One committed offset. `leader_epoch` is -1 and `topic_id` zero if the client or an old record gave none.

    `expire_timestamp_ms` is None unless the commit asked for its own retention (versions 2 to 4 of OffsetCommit).
    `record_offset` is that of its record in the log: when a transaction ends, the commit with the higher one is newer.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1

    def may_be_of(self, topic_id: bytes) -> bool:
        """True if it was committed for the topic with this id, or without an id."""
        return self.topic_id in (ZERO_UUID, topic_id)

    def __eq__(self, other: object) -> bool:
        """True if all fields but `record_offset` are equal."""
        return isinstance(other, CommittedOffset) and self[:-1] == other[:-1]

    def __hash__(self) -> int:  # pragma: no cover: equal values must have equal hashes, though none is needed yet
        return hash(self[:-1])


class CommittedOffsets:
    """group id -> topic -> partition -> `CommittedOffset`; empty levels are not kept."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffsets) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset, or None."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """topic -> partition -> offset of one group; not to be changed."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        """Ids of all groups with a committed offset."""
        return iter(self._groups)

    def pieces_of_group(self, group_id: str, size: int) -> Iterator[dict[str, dict[int, CommittedOffset]]]:
        """The present offsets of one group, as `of_group`, in pieces of at most this number of offsets."""
        piece: dict[str, dict[int, CommittedOffset]] = {}
        count = 0
        for topic, partitions in [(topic, [*found.items()]) for topic, found in self.of_group(group_id).items()]:
            for start in range(0, len(partitions), size):
                part = dict(partitions[start : start + size])
                if count and count + len(part) > size:
                    yield piece
                    piece, count = {}, 0
                piece[topic] = part
                count += len(part)
        if piece:
            yield piece

    def unchanged(
        self, group_id: str, topics: dict[str, dict[int, CommittedOffset]]
    ) -> dict[str, dict[int, CommittedOffset]]:
        """The given offsets of a group that are still committed."""
        current = self.of_group(group_id)
        return {
            topic: {
                partition: committed
                for partition, committed in partitions.items()
                if current.get(topic, {}).get(partition) is committed
            }
            for topic, partitions in topics.items()
        }

    def pieces_of_topics(
        self, names: Mapping[str, object], size: int
    ) -> Iterator[tuple[str, str, list[tuple[int, CommittedOffset]]]]:
        """The present offsets of the topics with these names, in all groups, in pieces of at most this number.

        Each piece is of one group and topic: their names, partitions and offsets.
        """
        found = [
            (group_id, topic, [*partitions.items()]) for group_id, topic, partitions in self._offsets_of_topics(names)
        ]
        return (
            (group_id, topic, partitions[start : start + size])
            for group_id, topic, partitions in found
            for start in range(0, len(partitions), size)
        )

    def count_of_topics(self, names: Mapping[str, object]) -> int:
        """Number of offsets of the topics with these names, in all groups."""
        return sum(len(partitions) for _, _, partitions in self._offsets_of_topics(names))

    def _offsets_of_topics(self, names: Mapping[str, object]) -> Iterator[tuple[str, str, dict[int, CommittedOffset]]]:
        for group_id, topics in self._groups.items():
            # Loops over whichever are fewer: 5,000 topics and 5,000 groups with one topic each are 25 million pairs.
            if len(names) < len(topics):
                for topic in names:
                    if topic in topics:
                        yield group_id, topic, topics[topic]
            else:
                for topic, partitions in topics.items():
                    if topic in names:
                        yield group_id, topic, partitions

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Sets the committed offset."""
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def put_all(self, group_id: str, topics: dict[str, dict[int, CommittedOffset]], first_offset: int) -> None:
        """As `put` for the offsets of a batch, which it takes over; each `record_offset` counts from `first_offset`."""
        known = self._groups.setdefault(group_id, {})
        for topic, partitions in topics.items():
            count_from(partitions, first_offset)
            present = known.get(topic)
            if present is None:
                known[topic] = partitions
            else:
                present.update(partitions)

    def put_newer(self, group_id: str, topics: dict[str, dict[int, CommittedOffset]]) -> None:
        """As `put` for each offset of a group whose record comes after that of the present one.

        It takes them over. There may be thousands, for one step: they are not looked at singly where none can be older.
        """
        known = self._groups.setdefault(group_id, {})
        for topic, partitions in topics.items():
            present = known.get(topic)
            if present is None:
                known[topic] = partitions
            elif len(present) <= FEW_OTHERS * len(partitions) and _are_older(present, partitions):
                present.update(partitions)
            else:
                for partition, committed in partitions.items():
                    current = present.get(partition)
                    if current is None or committed.record_offset > current.record_offset:
                        present[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Removes the committed offset, if there is one."""
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def remove_all(self, group_id: str, removed: Mapping[str, Iterable[int]]) -> None:
        """As `remove` for thousands of partitions of a group, by topic."""
        topics = self._groups.get(group_id, {})
        for topic, numbers in removed.items():
            partitions = topics.get(topic)
            if partitions is None:
                continue
            for number in numbers:
                partitions.pop(number, None)
            if not partitions:
                del topics[topic]
        if not topics:
            self._groups.pop(group_id, None)


FEW_OTHERS = 4
"""Present offsets of a topic, for each new one, up to which all are looked at for the last record."""

_record_offset: Callable[[CommittedOffset], int] = itemgetter(CommittedOffset._fields.index("record_offset"))


def _are_older(present: Mapping[int, CommittedOffset], others: Mapping[int, CommittedOffset]) -> bool:
    """True if the records of all present offsets come before those of the others. There are some of both."""
    return max(map(_record_offset, present.values())) < min(map(_record_offset, others.values()))


_new_tuple = tuple.__new__  # a NamedTuple's own constructor costs as much as all of the rest


def count_from(offsets: dict[Key, CommittedOffset], first_offset: int) -> None:
    """Adds the offset of a batch's first record to each `record_offset`, which is the number of a record so far."""
    for key, (offset, epoch, metadata, at_ms, expires_ms, topic_id, index) in offsets.items():
        fields = (offset, epoch, metadata, at_ms, expires_ms, topic_id, first_offset + index)
        offsets[key] = _new_tuple(CommittedOffset, fields)


def is_anonymous(request: OffsetCommitRequest) -> bool:
    """True for a commit without member, instance and generation, as of an administrator."""
    has_member = request.member_id != "" or request.group_instance_id is not None
    return request.generation_id_or_member_epoch == -1 and not has_member


def has_too_large_metadata(partition: OffsetCommitRequestPartition, length_max: int) -> bool:
    """True if a partition's metadata is longer than `offset.metadata.max.bytes`, which Kafka counts in UTF-16 units."""
    return utf16_length(partition.committed_metadata or "") > length_max


def expired_offsets(
    group: Group, topics: dict[str, dict[int, CommittedOffset]], now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """Expired offsets of a group (P-114), as (topic, partition).

    * of a group without members: all, `retention_ms` after the group became Empty;
    * of a group without a protocol type, whose consumers assign partitions themselves, and of a Stable consumer group:
      each `retention_ms` after its commit, but none of a topic that is being consumed;
    * of a group that rebalances, or whose topics are unknown: none.

    A commit with a retention of its own expires by that.
    """
    is_emptied = group.protocol_type is not None and group.state is EMPTY
    if group.protocol_type is not None and not is_emptied:
        has_known_topics = group.is_consumer_group and group.subscribed_topics is not None
        if group.state is not STABLE or not has_known_topics:
            return []

    def is_expired(committed: CommittedOffset) -> bool:
        since_ms = committed.commit_timestamp_ms
        if is_emptied and group.state_timestamp_ms is not None:
            since_ms = group.state_timestamp_ms
        return _is_expired(committed, since_ms, now_ms, retention_ms)

    return [
        (topic, partition)
        for topic, partitions in topics.items()
        if not group.is_subscribed_to(topic)
        for partition, committed in partitions.items()
        if is_expired(committed)
    ]


def expired_offsets_of_modern(
    group: ConsumerGroup | StreamsGroup, topics: dict[str, dict[int, CommittedOffset]], now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """Expired offsets of a modern group, as (topic, partition).

    Each expires `retention_ms` after its commit, or by its own retention; never one of a topic that members consume.
    """
    return [
        (topic, partition)
        for topic, partitions in topics.items()
        if not group.consumes_topic(topic)
        for partition, committed in partitions.items()
        if _is_expired(committed, committed.commit_timestamp_ms, now_ms, retention_ms)
    ]


def _is_expired(committed: CommittedOffset, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
