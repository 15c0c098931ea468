"""OffsetFetch (key 9): read a group's positions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Message):
    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


class OffsetFetchRequestTopics(Message):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "8+")


class OffsetFetchRequestGroup(Message):
    group_id: str = string("8+")
    member_id: str | None = string("9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


class OffsetFetchRequest(Message, versions="1-10", flexible="6+", key=9):
    """OffsetFetch request (API key 9): read a group's positions."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Message):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Message):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Message):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Message):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Message):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Message, versions="1-10", flexible="6+", key=9):
    """OffsetFetch response (API key 9)."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
