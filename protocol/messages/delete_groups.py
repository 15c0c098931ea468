"""DeleteGroups (key 42): delete empty groups."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class DeleteGroupsRequest(Message, versions="0-2", flexible="2+", key=42):
    """DeleteGroups request (API key 42): delete empty groups."""

    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Message):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Message, versions="0-2", flexible="2+", key=42):
    """DeleteGroups response (API key 42)."""

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
