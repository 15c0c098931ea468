"""ExpireDelegationToken (key 40): expire a delegation token."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, byte_string, int16, int32, int64


class ExpireDelegationTokenRequest(Message, versions="1-2", flexible="2+", key=40):
    """ExpireDelegationToken request (API key 40): expire a delegation token."""

    hmac: bytes = byte_string("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, versions="1-2", flexible="2+", key=40):
    """ExpireDelegationToken response (API key 40)."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
