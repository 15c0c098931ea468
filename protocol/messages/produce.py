"""Produce (key 0): append record batches to partitions."""

from __future__ import annotations

from typing import Any

from pykbroker.protocol.fields import Message, array, int16, int32, int64, records, string, struct, uuid


class PartitionProduceData(Message):
    index: int = int32("0+")
    records: Any = records("0+", nullable="0+")


class TopicProduceData(Message):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, versions="3-13", flexible="9+", key=0):
    """Produce request (API key 0): append record batches to partitions."""

    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


class TopicProduceResponse(Message):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class NodeEndpoint(Message):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", default=None, nullable="10+")


class ProduceResponse(Message, versions="3-13", flexible="9+", key=0):
    """Produce response (API key 0)."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, tagged="10+")
