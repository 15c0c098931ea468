"""Deletion of committed offsets that have expired (P-114), and of those of deleted topics, on one shard."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from pykbroker.groups.classic.group import EMPTY, Group
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.offset_log import offset_tombstones
from pykbroker.groups.offsets import CommittedOffset, OffsetKey, expired_offsets, expired_offsets_of_modern
from pykbroker.groups.result import GroupResult
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams.group import StreamsGroup

TOMBSTONES_PER_STEP = 200
"""Offsets that are looked at, and deleted, in one step when very many expire or a topic is deleted: 1 to 2 ms."""


def expire_offsets(shard: GroupShard, now_ms: int) -> Iterator[GroupResult]:
    """Tombstones of expired offsets, and of Empty groups that have none left (P-114).

    Neither is deleted while a commit for it is pending or in flight. There may be very many: each result is to be
    carried out before the next one is asked for, and between two of them others may change the groups.
    """
    result = GroupResult()
    looked_at = 0
    retention_ms = shard.config.groups.offsets_retention_minutes * 60_000
    groups: list[Group | ConsumerGroup | StreamsGroup] = [
        *shard.groups.values(),
        *shard.consumer.by_id.values(),
        *shard.streams.by_id.values(),
    ]
    for group in groups:
        if looked_at >= TOMBSTONES_PER_STEP:
            yield result
            result, looked_at = GroupResult(), 0
        group_id = group.group_id
        ended: set[tuple[str, int]] = set()  # offsets whose tombstones are in `result`
        looked_at += 1
        for topics in shard.offsets.pieces_of_group(group_id, TOMBSTONES_PER_STEP):
            if looked_at >= TOMBSTONES_PER_STEP:
                yield result
                result, looked_at = GroupResult(), 0
                ended.clear()
            if shard.any_group(group_id) is not group:
                break
            looked_at += sum(map(len, topics.values()))
            expired = _expired(shard, group, shard.offsets.unchanged(group_id, topics), now_ms, retention_ms)
            result.records += offset_tombstones((group_id, *partition) for partition in expired)
            ended.update(expired)
        is_empty = group.state is EMPTY if isinstance(group, Group) else not group.members
        if is_empty and shard.any_group(group_id) is group and _may_delete_group(shard, group_id, ended):
            result.records += shard.tombstones(group_id)
    yield result


def _expired(
    shard: GroupShard,
    group: Group | ConsumerGroup | StreamsGroup,
    topics: dict[str, dict[int, CommittedOffset]],
    now_ms: int,
    retention_ms: int,
) -> list[tuple[str, int]]:
    """Expired offsets of a group, as (topic, partition), without those for which something is pending or in flight."""
    group_id = group.group_id
    if isinstance(group, Group):
        found = expired_offsets(group, topics, now_ms, retention_ms)
    else:
        found = expired_offsets_of_modern(group, topics, now_ms, retention_ms)
    return [
        (topic, partition)
        for topic, partition in found
        if (group_id, topic, partition) not in shard.pending and (group_id, topic, partition) not in shard.in_flight
    ]


def _may_delete_group(shard: GroupShard, group_id: str, ended: Container[tuple[str, int]]) -> bool:
    """True if each offset of a group is in `ended` or has a tombstone in flight."""
    in_flight = shard.in_flight
    return (
        all(
            (topic, partition) in ended or in_flight.is_tombstone((group_id, topic, partition))
            for topic, partitions in shard.offsets.of_group(group_id).items()
            for partition in partitions
        )
        and not shard.pending.of_group(group_id)
        and all(in_flight.is_tombstone((group_id, *partition)) for partition in in_flight.of_group(group_id))
    )


def delete_topics(shard: GroupShard, topics: dict[str, bytes], *, in_turns: bool = False) -> Iterator[GroupResult]:
    """Tombstones of the offsets of deleted topics (name to id); offsets without a topic id are matched by name.

    As in Kafka, a partition has one for its committed offset and one for the pending offset of each producer. Each
    result must be carried out before the next one is asked for. Offsets that are committed after the call stay: a
    topic may have been created again. With `in_turns` the first result has the tombstones of offsets that are
    pending or in flight, and no others: it must be carried out at once, before any commit for a new topic.
    """
    pieces = shard.offsets.pieces_of_topics(topics, TOMBSTONES_PER_STEP)
    others = [key for key, committed in shard.pending.of_topics(topics) if committed.may_be_of(topics[key[1]])]
    known = set(others)
    for key in shard.in_flight.of_topics(topics):
        committed = shard.offsets.get(*key)
        is_known = committed is not None and committed.may_be_of(topics[key[1]])
        if not is_known and key not in known:
            others.append(key)
    return _tombstones_of_topics(shard, topics, pieces, others, in_turns)


def _tombstones_of_topics(
    shard: GroupShard,
    topics: dict[str, bytes],
    pieces: Iterable[tuple[str, str, list[tuple[int, CommittedOffset]]]],
    others: list[OffsetKey],
    in_turns: bool,
) -> Iterator[GroupResult]:
    result = GroupResult()
    if in_turns:
        yield GroupResult(records=offset_tombstones(others))
        others = []
    for group_id, topic, partitions in pieces:
        if len(result.records) + len(partitions) > TOMBSTONES_PER_STEP and result.records:
            result.records += offset_tombstones(others)
            others = []
            yield result
            result = GroupResult()
        current = shard.offsets.of_group(group_id).get(topic, {})
        result.records += offset_tombstones(
            (group_id, topic, partition)
            for partition, committed in partitions
            if committed.may_be_of(topics[topic]) and current.get(partition) is committed
        )
    result.records += offset_tombstones(others)
    yield result
