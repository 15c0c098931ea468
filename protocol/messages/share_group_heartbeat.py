"""ShareGroupHeartbeat (key 76): join, keep and leave a share group, and follow its assignment (KIP-932)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string, struct
from pykbroker.protocol.messages.consumer_group_heartbeat import Assignment


class ShareGroupHeartbeatRequest(Message, versions="1", flexible="0+", key=76):
    """ShareGroupHeartbeat request (API key 76)."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = array(string, "0+", default=None, nullable="0+")


class ShareGroupHeartbeatResponse(Message, versions="1", flexible="0+", key=76):
    """ShareGroupHeartbeat response (API key 76)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", default=None, nullable="0+")
