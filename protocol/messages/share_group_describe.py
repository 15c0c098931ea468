"""ShareGroupDescribe (key 77): describe share groups (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string, struct
from pykbroker.protocol.messages.consumer_group_describe import Assignment


class ShareGroupDescribeRequest(Message, versions="1", flexible="0+", key=77):
    """ShareGroupDescribe request (API key 77)."""

    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class Member(Message):
    member_id: str = string("0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    assignment: Assignment = struct(Assignment, "0+")


class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2147483648)


class ShareGroupDescribeResponse(Message, versions="1", flexible="0+", key=77):
    """ShareGroupDescribe response (API key 77)."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
