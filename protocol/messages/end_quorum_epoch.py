"""EndQuorumEpoch (key 54): a leader gives up its epoch."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string, uuid
from pykbroker.protocol.messages.begin_quorum_epoch import (
    LeaderEndpoint,
    NodeEndpoint,
    TopicDataResponse,
)


class ReplicaInfo(Message):
    candidate_id: int = int32("1+")
    candidate_directory_id: bytes = uuid("1+")


class PartitionData(Message):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Message):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class EndQuorumEpochRequest(Message, versions="0-1", flexible="1+", key=54):
    """EndQuorumEpoch request (API key 54): a leader gives up its epoch."""

    cluster_id: str | None = string("0+", default=None, nullable="0+")
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class EndQuorumEpochResponse(Message, versions="0-1", flexible="1+", key=54):
    """EndQuorumEpoch response (API key 54)."""

    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
