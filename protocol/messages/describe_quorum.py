"""DescribeQuorum (key 55): state of the metadata quorum."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Message):
    partition_index: int = int32("0+")


class TopicData(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DescribeQuorumRequest(Message, versions="0-2", flexible="0+", key=55):
    """DescribeQuorum request (API key 55): state of the metadata quorum."""

    topics: list[TopicData] = array(TopicData, "0+")


class ReplicaState(Message):
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionDataResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


class TopicDataResponse(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class Listener(Message):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Message):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, versions="0-2", flexible="0+", key=55):
    """DescribeQuorum response (API key 55)."""

    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    nodes: list[Node] = array(Node, "2+")
