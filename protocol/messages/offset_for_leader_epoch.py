"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the log."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string


class OffsetForLeaderPartition(Message):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Message):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Message, versions="2-4", flexible="4+", key=23):
    """OffsetForLeaderEpoch request (API key 23): where a leader epoch ends in the log."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Message):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Message, versions="2-4", flexible="4+", key=23):
    """OffsetForLeaderEpoch response (API key 23)."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
