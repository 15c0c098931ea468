"""Vote (key 52): a candidate asks for votes."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, int64, string, uuid
from pykbroker.protocol.messages.begin_quorum_epoch import NodeEndpoint


class PartitionData(Message):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("1+", ignorable=True)
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class TopicData(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class VoteRequest(Message, versions="0-2", flexible="0+", key=52):
    """Vote request (API key 52): a candidate asks for votes."""

    cluster_id: str | None = string("0+", default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")


class PartitionDataResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class TopicDataResponse(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class VoteResponse(Message, versions="0-2", flexible="0+", key=52):
    """Vote response (API key 52)."""

    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
