"""RenewDelegationToken (key 39): renew a delegation token."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, byte_string, int16, int32, int64


class RenewDelegationTokenRequest(Message, versions="1-2", flexible="2+", key=39):
    """RenewDelegationToken request (API key 39): renew a delegation token."""

    hmac: bytes = byte_string("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, versions="1-2", flexible="2+", key=39):
    """RenewDelegationToken response (API key 39)."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
