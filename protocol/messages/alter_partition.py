"""AlterPartition (key 56): a leader changes the in-sync set of its partitions."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, int64, uuid


class BrokerState(Message):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Message):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class TopicData(Message):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class AlterPartitionRequest(Message, versions="2-3", flexible="0+", key=56):
    """AlterPartition request (API key 56): a leader changes the in-sync set of its partitions."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class PartitionDataResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class TopicDataResponse(Message):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class AlterPartitionResponse(Message, versions="2-3", flexible="0+", key=56):
    """AlterPartition response (API key 56)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
