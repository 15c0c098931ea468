"""DeleteShareGroupOffsets (key 92): delete the start offsets of a share group (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Message, versions="0", flexible="0+", key=92):
    """DeleteShareGroupOffsets request (API key 92)."""

    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, "0+")


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, versions="0", flexible="0+", key=92):
    """DeleteShareGroupOffsets response (API key 92)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic, "0+")
