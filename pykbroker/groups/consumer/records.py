"""The records of consumer groups in `__consumer_offsets`, with Kafka's keys, versions and values (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.groups.assignors.spec import in_order
from pykbroker.groups.consumer.group import RECORD_TYPES
from pykbroker.groups.consumer.member import ConsumerMember, PartitionEpochs
from pykbroker.groups.modern.group import Assignment
from pykbroker.groups.result import LogRecord
from pykbroker.protocol.log_messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
    TopicPartitions,
)
from pykbroker.protocol.steps import PIECE, Steps, list_in_steps

target_epoch_record = RECORD_TYPES.target_epoch_record
member_tombstones = RECORD_TYPES.member_tombstones


def member_record(group_id: str, member: ConsumerMember) -> LogRecord:
    """The subscription and the other properties of a member."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return LogRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    """The group epoch and the hash of the subscribed topics."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return LogRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> Steps[LogRecord]:
    """The target assignment of a member."""
    topics = yield from list_in_steps(
        TopicPartition(topic_id=topic_id, partitions=list(in_order(partitions)))
        for topic_id, partitions in target.items()
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return LogRecord(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics), state=target)


def current_record(group_id: str, member: ConsumerMember) -> Steps[LogRecord]:
    """The current assignment of a member."""
    assigned, kept = yield from _topic_partitions(member.assigned)
    pending, kept_pending = yield from _topic_partitions(member.pending_revocation)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=assigned,
        partitions_pending_revocation=pending,
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return LogRecord(key, value, state=(kept, kept_pending))


def regex_record(group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int) -> LogRecord:
    """The topics that match a regular expression, at a version of the cluster's metadata."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms)
    return LogRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> LogRecord:
    """The tombstone of a regular expression that no member uses any more."""
    return LogRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def subscription_metadata_tombstone(group_id: str) -> LogRecord:
    """The tombstone of a record with the topics' partitions, which Kafka wrote before 4.1."""
    return LogRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[LogRecord]:
    """Tombstones of everything that is stored for a group."""
    resolved = [ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex) for regex in regexes]
    before = (*resolved, ConsumerGroupPartitionMetadataKey(group_id=group_id))
    return RECORD_TYPES.group_tombstones(group_id, member_ids, before)


def _topic_partitions(assigned: PartitionEpochs) -> Steps[tuple[list[TopicPartitions], PartitionEpochs]]:
    """The partitions in the form of the record, and as a group keeps them that has read it."""
    topics = []
    kept = {}
    for count, (topic_id, epochs) in enumerate(assigned.items(), 1):
        numbers = sorted(epochs)
        values = [epochs[number] for number in numbers]
        topics.append(TopicPartitions(topic_id=topic_id, partitions=numbers, assignment_epochs=values))
        kept[topic_id] = dict(zip(numbers, values, strict=True))
        if not count % PIECE:
            yield
    return topics, kept
