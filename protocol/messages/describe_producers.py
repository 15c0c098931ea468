"""DescribeProducers (key 61): producers of partitions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string


class TopicRequest(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class DescribeProducersRequest(Message, versions="0", flexible="0+", key=61):
    """DescribeProducers request (API key 61): producers of partitions."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")


class ProducerState(Message):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


class PartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


class TopicResponse(Message):
    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


class DescribeProducersResponse(Message, versions="0", flexible="0+", key=61):
    """DescribeProducers response (API key 61)."""

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")
