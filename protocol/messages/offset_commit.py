"""OffsetCommit (key 8): store a group's positions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Message):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Message, versions="2-10", flexible="8+", key=8):
    """OffsetCommit request (API key 8): store a group's positions."""

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Message):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


class OffsetCommitResponse(Message, versions="2-10", flexible="8+", key=8):
    """OffsetCommit response (API key 8)."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")
