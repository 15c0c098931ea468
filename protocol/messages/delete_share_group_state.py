"""DeleteShareGroupState (key 86): delete the state of share-partitions (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int32, string, uuid
from pykbroker.protocol.messages.initialize_share_group_state import PartitionResult


class PartitionData(Message):
    partition: int = int32("0+")


class DeleteStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Message, versions="0", flexible="0+", key=86):
    """DeleteShareGroupState request (API key 86)."""

    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class DeleteStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, versions="0", flexible="0+", key=86):
    """DeleteShareGroupState response (API key 86)."""

    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")
