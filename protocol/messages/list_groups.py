"""ListGroups (key 16): the groups that this broker coordinates."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class ListGroupsRequest(Message, versions="0-5", flexible="3+", key=16):
    """ListGroups request (API key 16): the groups that this broker coordinates."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Message):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, versions="0-5", flexible="3+", key=16):
    """ListGroups response (API key 16)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")
