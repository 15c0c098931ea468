"""Heartbeat (key 12): keep a member of a classic group alive."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, int16, int32, string


class HeartbeatRequest(Message, versions="0-4", flexible="4+", key=12):
    """Heartbeat request (API key 12): keep a member of a classic group alive."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")


class HeartbeatResponse(Message, versions="0-4", flexible="4+", key=12):
    """Heartbeat response (API key 12)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
