"""DeleteRecords (key 21): advance the start of logs."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string


class DeleteRecordsPartition(Message):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+", key=21):
    """DeleteRecords request (API key 21): advance the start of logs."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Message):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+", key=21):
    """DeleteRecords response (API key 21)."""

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
