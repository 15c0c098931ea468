"""CreateDelegationToken (key 38): create a delegation token."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int16, int32, int64, string


class CreatableRenewers(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, versions="1-3", flexible="2+", key=38):
    """CreateDelegationToken request (API key 38): create a delegation token."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, versions="1-3", flexible="2+", key=38):
    """CreateDelegationToken response (API key 38)."""

    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = byte_string("0+")
    throttle_time_ms: int = int32("0+")
