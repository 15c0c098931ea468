"""ReadShareGroupStateSummary (key 87): read the start offsets of share-partitions (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateSummaryData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateSummaryRequest(Message, versions="0-1", flexible="0+", key=87):
    """ReadShareGroupStateSummary request (API key 87)."""

    group_id: str = string("0+")
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData, "0+")


class PartitionResult(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(Message, versions="0-1", flexible="0+", key=87):
    """ReadShareGroupStateSummary response (API key 87)."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")
