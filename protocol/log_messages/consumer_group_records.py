"""Keys and values of the `__consumer_offsets` records of consumer groups (KIP-848); `key` is the key type."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int8, int32, int64, string, struct, uuid


class ConsumerGroupMetadataKey(Message, versions="0", flexible="none", key=3):
    """Key of a record with key type 3."""

    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+", key=3):
    """Value of a record with key type 3."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0, tagged="0+")


class ConsumerGroupPartitionMetadataKey(Message, versions="0", flexible="none", key=4):
    """Key of a record with key type 4."""

    group_id: str = string("0")


class PartitionMetadata(Message):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+", key=4):
    """Value of a record with key type 4."""

    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Message, versions="0", flexible="none", key=5):
    """Key of a record with key type 5."""

    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Message):
    name: str = string("0+")
    metadata: bytes = byte_string("0+")


class ClassicMemberMetadata(Message):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+", key=5):
    """Value of a record with key type 5."""

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0, tagged="0+"
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", key=6):
    """Key of a record with key type 6."""

    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", key=6):
    """Value of a record with key type 6."""

    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, tagged="0+", ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", key=7):
    """Key of a record with key type 7."""

    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", key=7):
    """Value of a record with key type 7."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", key=8):
    """Key of a record with key type 8."""

    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, tagged="0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", key=8):
    """Value of a record with key type 8."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Message, versions="0", flexible="none", key=16):
    """Key of a record with key type 16."""

    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+", key=16):
    """Value of a record with key type 16."""

    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")
