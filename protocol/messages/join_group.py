"""JoinGroup (key 11): enter a rebalance of a classic group."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, byte_string, int16, int32, string


class JoinGroupRequestProtocol(Message):
    name: str = string("0+")
    metadata: bytes = byte_string("0+")


class JoinGroupRequest(Message, versions="0-9", flexible="6+", key=11):
    """JoinGroup request (API key 11): enter a rebalance of a classic group."""

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = byte_string("0+")


class JoinGroupResponse(Message, versions="0-9", flexible="6+", key=11):
    """JoinGroup response (API key 11)."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
