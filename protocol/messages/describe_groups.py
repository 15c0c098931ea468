"""DescribeGroups (key 15): state and members of classic groups."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, byte_string, int16, int32, string


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+", key=15):
    """DescribeGroups request (API key 15): state and members of classic groups."""

    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", default=None, nullable="4+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = byte_string("0+")
    member_assignment: bytes = byte_string("0+")


class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+", key=15):
    """DescribeGroups response (API key 15)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
