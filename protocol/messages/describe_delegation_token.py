"""DescribeDelegationToken (key 41): describe delegation tokens."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int16, int32, int64, string


class DescribeDelegationTokenOwner(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Message, versions="1-3", flexible="2+", key=41):
    """DescribeDelegationToken request (API key 41): describe delegation tokens."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, "0+", nullable="0+")


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribedDelegationToken(Message):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = byte_string("0+")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+")


class DescribeDelegationTokenResponse(Message, versions="1-3", flexible="2+", key=41):
    """DescribeDelegationToken response (API key 41)."""

    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")
