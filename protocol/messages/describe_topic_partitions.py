"""DescribeTopicPartitions (key 75): topics page by page."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string, struct, uuid


class TopicRequest(Message):
    name: str = string("0+")


class Cursor(Message):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, versions="0", flexible="0+", key=75):
    """DescribeTopicPartitions request (API key 75): topics page by page."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    eligible_leader_replicas: list[int] | None = array(int32, "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = array(int32, "0+", default=None, nullable="0+")
    offline_replicas: list[int] = array(int32, "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+", takes_encoded=True
    )
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, versions="0", flexible="0+", key=75):
    """DescribeTopicPartitions response (API key 75)."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")
