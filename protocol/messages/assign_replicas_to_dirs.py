"""AssignReplicasToDirs (key 73): replicas are in these log directories."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, uuid


class PartitionData(Message):
    partition_index: int = int32("0+")


class TopicData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Message):
    id: bytes = uuid("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Message, versions="0", flexible="0+", key=73):
    """AssignReplicasToDirs request (API key 73): replicas are in these log directories."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[DirectoryData] = array(DirectoryData, "0+")


class PartitionDataResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TopicDataResponse(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class DirectoryDataResponse(Message):
    id: bytes = uuid("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")


class AssignReplicasToDirsResponse(Message, versions="0", flexible="0+", key=73):
    """AssignReplicasToDirs response (API key 73)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[DirectoryDataResponse] = array(DirectoryDataResponse, "0+")
