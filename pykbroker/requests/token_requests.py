"""Common parts of the requests about delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykbroker.controller.metadata.delegation_tokens import (
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenSettings,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.controller_calls import forwarded_or_submitted

if TYPE_CHECKING:
    from pykbroker.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from pykbroker.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from pykbroker.requests.context import NodeContext

R = TypeVar("R", "ExpireDelegationTokenResponse", "RenewDelegationTokenResponse")

NO_TIMESTAMP = -1
"""Timestamp in a response with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""


def may_use_tokens(context: NodeContext) -> bool:
    """False for a client that has logged in by token, and for one that has not logged in at all.

    A request that a broker has forwarded was checked there; its client may have another protocol than the broker.
    """
    connection = context.connection
    if connection.is_token_authenticated:
        return False
    if connection.is_forwarded:
        return True
    protocol = context.services.config.network.security_protocols.get(connection.listener_name, "PLAINTEXT")
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and connection.principal == "User:ANONYMOUS")


def token_settings(context: NodeContext) -> TokenSettings:
    """Settings of this node for the commands about tokens."""
    config = context.services.config
    return TokenSettings(
        config.delegation_tokens.secret_key,
        config.delegation_tokens.max_lifetime_ms,
        config.delegation_tokens.expiry_time_ms,
    )


async def change_token(
    context: NodeContext,
    request: ExpireDelegationTokenRequest | RenewDelegationTokenRequest,
    response: type[R],
    command: type[ExpireDelegationToken | RenewDelegationToken],
    period_ms: int,
) -> R:
    """Moves the expiry of a token, on the active controller.

    A client that may not use tokens gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED from this node.
    """
    if not may_use_tokens(context):
        return response(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)
    # Copied, as it is a view of the request's frame.
    hmac = bytes(request.hmac)
    clock = context.services.clock

    def planned() -> ExpireDelegationToken | RenewDelegationToken:
        return command(token_settings(context), context.connection.principal, hmac, period_ms, clock.now_ms())

    answer: R | None
    answer, result, failure = await forwarded_or_submitted(context, request, planned)
    if answer is not None:
        return answer
    if result is None:
        return response(error_code=failure.code)
    return response(error_code=result.error, expiry_timestamp_ms=result.expiry_ms)
