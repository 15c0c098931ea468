"""PushTelemetry (key 72): push metrics of a client (KIP-714)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, boolean, byte_string, int8, int16, int32, uuid


class PushTelemetryRequest(Message, versions="0", flexible="0+", key=72):
    """PushTelemetry request (API key 72)."""

    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = byte_string("0+")


class PushTelemetryResponse(Message, versions="0", flexible="0+", key=72):
    """PushTelemetry response (API key 72)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
