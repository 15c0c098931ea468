"""The records of share groups in `__consumer_offsets`, with Kafka's keys, versions and values (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.groups.assignors.spec import in_order
from pykbroker.groups.modern.group import Assignment
from pykbroker.groups.result import LogRecord
from pykbroker.groups.share.group import RECORD_TYPES, TopicState
from pykbroker.groups.share.member import ShareMember
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import table_order, uuid_hash
from pykbroker.protocol.log_messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from pykbroker.protocol.steps import PIECE, Steps, list_in_steps

member_tombstones = RECORD_TYPES.member_tombstones


def member_record(group_id: str, member: ShareMember) -> LogRecord:
    """The subscription and the other properties of a member."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    return LogRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    """The group epoch and the hash of the subscribed topics."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return LogRecord(ShareGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> Steps[LogRecord]:
    """The target assignment of a member."""
    topics = yield from list_in_steps(
        TopicPartition(topic_id=topic_id, partitions=list(in_order(partitions)))
        for topic_id, partitions in target.items()
    )
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return LogRecord(key, ShareGroupTargetAssignmentMemberValue(topic_partitions=topics), state=target)


def current_record(group_id: str, member: ShareMember) -> LogRecord:
    """The current assignment of a member."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ],
    )
    return LogRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def state_record(
    group_id: str,
    initializing: Mapping[bytes, TopicState],
    initialized: Mapping[bytes, TopicState],
    deleting: Mapping[bytes, str],
    now_ms: int | None = None,
) -> Steps[LogRecord]:
    """The topics whose share partitions have a state or are about to get or to lose it.

    The topics of each list come in the order of a HashMap, as Kafka writes them.

    Args:
        group_id: id of the group.
        initializing: topic id -> partitions that the share coordinator was asked to initialize.
        initialized: topic id -> partitions that it has initialized.
        deleting: topic id -> name of topics that it was asked to forget.
        now_ms: the time, with which the group keeps the states; None if it makes them of the record, at once.
    """
    initializing_topics, kept = yield from _topic_partitions(initializing, now_ms)
    initialized_topics, kept_initialized = yield from _topic_partitions(initialized, now_ms)
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=initializing_topics,
        initialized_topics=initialized_topics,
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=deleting[topic_id])
            for topic_id in table_order(sorted(deleting), uuid_hash)
        ],
    )
    key = ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return LogRecord(key, value, state=None if now_ms is None else (kept, kept_initialized))


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[LogRecord]:
    """Tombstones of everything that is stored for a group."""
    before = [ShareGroupStatePartitionMetadataKey(group_id=group_id)]
    return RECORD_TYPES.group_tombstones(group_id, member_ids, before)


def _topic_partitions(
    topics: Mapping[bytes, TopicState], now_ms: int | None
) -> Steps[tuple[list[TopicPartitionsInfo], dict[bytes, TopicState]]]:
    """The partitions in the form of the record, and as a group keeps them that has read it."""
    found = []
    kept = {}
    ordered = yield from table_order_in_steps(topics, uuid_hash)
    for count, topic_id in enumerate(ordered, 1):
        state = topics[topic_id]
        numbers = sorted(state.partitions)
        found.append(TopicPartitionsInfo(topic_id=topic_id, topic_name=state.name, partitions=numbers))
        if now_ms is not None:
            kept[topic_id] = TopicState(state.name, frozenset(numbers), now_ms)
        if not count % PIECE:
            yield
    return found, kept
