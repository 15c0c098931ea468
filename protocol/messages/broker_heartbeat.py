"""BrokerHeartbeat (key 63): a broker is alive."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Message, versions="0-2", flexible="0+", key=63):
    """BrokerHeartbeat request (API key 63): a broker is alive."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", default=None, nullable="2+", tag=1, tagged="2+")


class BrokerHeartbeatResponse(Message, versions="0-2", flexible="0+", key=63):
    """BrokerHeartbeat response (API key 63)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
