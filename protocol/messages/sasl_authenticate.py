"""SaslAuthenticate (key 36): carry SASL tokens."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, byte_string, int16, int64, string


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+", key=36):
    """SaslAuthenticate request (API key 36): carry SASL tokens."""

    auth_bytes: bytes = byte_string("0+")


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+", key=36):
    """SaslAuthenticate response (API key 36)."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = byte_string("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
