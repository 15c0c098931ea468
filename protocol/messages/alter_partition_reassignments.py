"""AlterPartitionReassignments (key 45): change the replicas of partitions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string


class ReassignablePartition(Message):
    partition_index: int = int32("0+")
    replicas: list[int] | None = array(int32, "0+", default=None, nullable="0+")


class ReassignableTopic(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Message, versions="0-1", flexible="0+", key=45):
    """AlterPartitionReassignments request (API key 45): change the replicas of partitions."""

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(Message, versions="0-1", flexible="0+", key=45):
    """AlterPartitionReassignments response (API key 45)."""

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")
