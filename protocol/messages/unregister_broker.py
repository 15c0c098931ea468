"""UnregisterBroker (key 64): remove a broker from the cluster."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, int16, int32, string


class UnregisterBrokerRequest(Message, versions="0", flexible="0+", key=64):
    """UnregisterBroker request (API key 64): remove a broker from the cluster."""

    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Message, versions="0", flexible="0+", key=64):
    """UnregisterBroker response (API key 64)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
