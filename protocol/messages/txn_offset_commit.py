"""TxnOffsetCommit (key 28): commit offsets within a transaction."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


class TxnOffsetCommitRequest(Message, versions="0-5", flexible="3+", key=28):
    """TxnOffsetCommit request (API key 28): commit offsets within a transaction."""

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


class TxnOffsetCommitResponse(Message, versions="0-5", flexible="3+", key=28):
    """TxnOffsetCommit response (API key 28)."""

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")
