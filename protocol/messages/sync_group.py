"""SyncGroup (key 14): hand over, or ask for, the leader's assignment."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int16, int32, string


class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+")
    assignment: bytes = byte_string("0+")


class SyncGroupRequest(Message, versions="0-5", flexible="4+", key=14):
    """SyncGroup request (API key 14): hand over, or ask for, the leader's assignment."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, versions="0-5", flexible="4+", key=14):
    """SyncGroup response (API key 14)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = byte_string("0+")
