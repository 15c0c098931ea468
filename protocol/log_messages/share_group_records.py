"""Keys and values of the `__consumer_offsets` records of share groups (KIP-932); `key` is the key type."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Message, versions="0", flexible="none", key=10):
    """Key of a record with key type 10."""

    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+", key=10):
    """Value of a record with key type 10."""

    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")


class ShareGroupMetadataKey(Message, versions="0", flexible="none", key=11):
    """Key of a record with key type 11."""

    group_id: str = string("0")


class ShareGroupMetadataValue(Message, versions="0", flexible="0+", key=11):
    """Value of a record with key type 11."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", key=12):
    """Key of a record with key type 12."""

    group_id: str = string("0")


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", key=12):
    """Value of a record with key type 12."""

    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, tagged="0+", ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", key=13):
    """Key of a record with key type 13."""

    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", key=13):
    """Value of a record with key type 13."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", key=14):
    """Key of a record with key type 14."""

    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", key=14):
    """Value of a record with key type 14."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupStatePartitionMetadataKey(Message, versions="0", flexible="none", key=15):
    """Key of a record with key type 15."""

    group_id: str = string("0")


class TopicPartitionsInfo(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class TopicInfo(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+", key=15):
    """Value of a record with key type 15."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")
