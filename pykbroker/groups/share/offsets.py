"""Administration of share groups' start offsets and their deletion, as records of the group and work for the persister.

Operations return records and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.groups.share.group import ShareGroup, TopicState
from pykbroker.groups.share.initialization import TopicPartitionNumbers, initializing_record, merged, with_names
from pykbroker.groups.share.records import state_record
from pykbroker.java_order import table_order, uuid_hash
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps, finished

WantedOffsets: TypeAlias = Sequence[tuple[str, Mapping[int, int]]]
"""Topics in the order of a request, each with the start offsets of its partitions; a topic may come twice."""

NO_OFFSETS = "There is no offset information to delete."


class Alteration(NamedTuple):
    """New start offsets for the share coordinator, at the group's epoch.

    Attributes:
        state_epoch: the group epoch.
        offsets: topic id -> partition -> start offset, of partitions that exist.
    """

    state_epoch: int
    offsets: Mapping[bytes, Mapping[int, int]]


class Deletion(NamedTuple):
    """Share partitions whose state is to be deleted, and topics that have none.

    Attributes:
        partitions: topic id -> partitions.
        errors: name of a topic, the error, and its text if it has one of its own; a topic that comes twice has two.
    """

    partitions: TopicPartitionNumbers
    errors: Sequence[tuple[str, ErrorCode, str | None]]


def alter(group: ShareGroup, wanted: WantedOffsets, topics: GroupTopics, now_ms: int) -> GroupResult:
    """Marks partitions as initializing from new start offsets (AlterShareGroupOffsets); the group is empty.

    The response is an `Alteration`. Of a topic that comes twice Kafka marks only the partitions named last.
    """
    offsets: dict[bytes, dict[int, int]] = {}
    states = {}
    for name, partitions in wanted:
        topic_id = topics.id_of(name)
        if topic_id is None:
            continue
        count = topics.partition_count(topic_id)
        existing = {number: offset for number, offset in partitions.items() if number < count}
        states[topic_id] = TopicState(name, frozenset(existing), now_ms)
        if existing:
            offsets.setdefault(topic_id, {}).update(existing)
    result = GroupResult(response=Alteration(group.epoch, offsets), applies_at_append=True)
    if states:
        result.records.append(finished(initializing_record(group, states, topics, now_ms)))
    return result


def begin_deletion(group: ShareGroup, names: Iterable[str], topics: GroupTopics) -> GroupResult:
    """Marks topics as deleting (DeleteShareGroupOffsets); the group is empty. The response is a `Deletion`."""
    partitions: dict[bytes, frozenset[int]] = {}
    errors: list[tuple[str, ErrorCode, str | None]] = []
    if not group.has_state_record:
        return GroupResult(response=Deletion(partitions, errors))
    initialized = dict(group.initialized)
    deleting = set(group.deleting)
    for name in names:
        topic_id = topics.id_of(name)
        if topic_id is None:
            errors.append((name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
        elif topic_id in initialized:
            partitions[topic_id] = initialized.pop(topic_id).partitions
            deleting.add(topic_id)
        elif topic_id in deleting:
            # An earlier deletion has not ended.
            partitions[topic_id] = frozenset(range(topics.partition_count(topic_id)))
        else:
            errors.append((name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSETS))
    record = finished(state_record(group.group_id, group.initializing, initialized, with_names(deleting, topics)))
    return GroupResult(records=[record], response=Deletion(partitions, errors), applies_at_append=True)


def end_deletion(group: ShareGroup, topic_ids: Iterable[bytes], topics: GroupTopics) -> GroupResult:
    """Forgets topics whose state is deleted."""
    deleting = with_names(group.deleting - frozenset(topic_ids), topics)
    record = finished(state_record(group.group_id, group.initializing, group.initialized, deleting))
    return GroupResult(records=[record], applies_at_append=True)


def begin_group_deletion(group: ShareGroup, topics: GroupTopics) -> GroupResult:
    """Marks all topics of an empty group as deleting; the response has the partitions whose state is to be deleted."""
    if not group.has_state_record:
        return GroupResult(response={})
    deleting = merged(group.initialized, group.initializing)
    # Topics of an earlier deletion that has not ended, if they still exist.
    left = {
        topic_id: TopicState(name, frozenset(range(topics.partition_count(topic_id))), -1)
        for topic_id in table_order(sorted(group.deleting), uuid_hash)
        if (name := topics.name_of(topic_id)) is not None
    }
    deleting = merged(deleting, left)
    record = finished(
        state_record(group.group_id, {}, {}, {topic_id: state.name for topic_id, state in deleting.items()})
    )
    partitions = {topic_id: state.partitions for topic_id, state in deleting.items()}
    return GroupResult(records=[record], response=partitions, applies_at_append=True)


def forget_topics(group: ShareGroup, topic_ids: frozenset[bytes], topics: GroupTopics, now_ms: int) -> Steps[LogRecord]:
    """The record that removes deleted topics from the group's states.

    The share coordinator deletes its own state of them itself.
    """
    initializing = {topic_id: state for topic_id, state in group.initializing.items() if topic_id not in topic_ids}
    initialized = {topic_id: state for topic_id, state in group.initialized.items() if topic_id not in topic_ids}
    yield
    deleting = with_names(group.deleting - topic_ids, topics)
    return (yield from state_record(group.group_id, initializing, initialized, deleting, now_ms))
