"""GetTelemetrySubscriptions (key 71): ask which metrics a client should push (KIP-714)."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Message, versions="0", flexible="0+", key=71):
    """GetTelemetrySubscriptions request (API key 71)."""

    client_instance_id: bytes = uuid("0+")


class GetTelemetrySubscriptionsResponse(Message, versions="0", flexible="0+", key=71):
    """GetTelemetrySubscriptions response (API key 71)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array(int8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array(string, "0+")
