"""InitializeShareGroupState (key 83): begin the state of share-partitions (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Message, versions="0", flexible="0+", key=83):
    """InitializeShareGroupState request (API key 83)."""

    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class InitializeStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Message, versions="0", flexible="0+", key=83):
    """InitializeShareGroupState response (API key 83)."""

    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")
