"""ElectLeaders (key 43): elect leaders of partitions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, string


class TopicPartitions(Message):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ElectLeadersRequest(Message, versions="0-2", flexible="2+", key=43):
    """ElectLeaders request (API key 43): elect leaders of partitions."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Message):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


class ElectLeadersResponse(Message, versions="0-2", flexible="2+", key=43):
    """ElectLeaders response (API key 43)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
