"""LeaveGroup (key 13): take members out of a classic group."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class MemberIdentity(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+", key=13):
    """LeaveGroup request (API key 13): take members out of a classic group."""

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, versions="0-5", flexible="4+", key=13):
    """LeaveGroup response (API key 13)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")
