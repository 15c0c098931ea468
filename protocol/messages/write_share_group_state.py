"""WriteShareGroupState (key 85): write the state of share-partitions (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int32, int64, string, uuid
from pykbroker.protocol.messages.initialize_share_group_state import PartitionResult
from pykbroker.protocol.messages.read_share_group_state import StateBatch


class PartitionData(Message):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Message, versions="0-1", flexible="0+", key=85):
    """WriteShareGroupState request (API key 85)."""

    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class WriteStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Message, versions="0-1", flexible="0+", key=85):
    """WriteShareGroupState response (API key 85)."""

    results: list[WriteStateResult] = array(WriteStateResult, "0+")
