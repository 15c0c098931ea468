"""OffsetDelete (key 47): forget committed offsets."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class OffsetDeleteRequestPartition(Message):
    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Message, versions="0", flexible="none", key=47):
    """OffsetDelete request (API key 47): forget committed offsets."""

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetDeleteResponseTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


class OffsetDeleteResponse(Message, versions="0", flexible="none", key=47):
    """OffsetDelete response (API key 47)."""

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
