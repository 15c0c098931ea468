"""ExpireDelegationToken (key 40): another expiry of a delegation token, or its end at once (KIP-48).

Versions 1-2. v2 flexible. The owner and the renewers of a token may; others get DELEGATION_TOKEN_OWNER_MISMATCH.
A negative period removes the token, also an expired one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import ExpireDelegationToken
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from pykbroker.requests.controller_calls import forwarded, has_moved, submit
from pykbroker.requests.token_requests import NO_TIMESTAMP, may_use_tokens, token_settings

if TYPE_CHECKING:
    from pykbroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
    from pykbroker.requests.context import NodeContext


async def handle_expire_delegation_token(
    context: NodeContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Changes the token at the active controller; a client that has not logged in itself is refused here."""
    if not may_use_tokens(context):
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
        )
    # Copied, as it is a view of the request's frame.
    hmac = bytes(request.hmac)
    while True:
        answer: ExpireDelegationTokenResponse | None = await forwarded(context, request)
        if answer is not None:
            return answer
        now_ms = context.services.clock.now_ms()
        command = ExpireDelegationToken(
            token_settings(context), context.principal, hmac, request.expiry_time_period_ms, now_ms
        )
        result, failure = await submit(context, command, context.services.config.request_timeout_ms)
        if not has_moved(context, failure):
            break
    if result is None:
        return ExpireDelegationTokenResponse(error_code=failure.code)
    return ExpireDelegationTokenResponse(error_code=result.error, expiry_timestamp_ms=result.expiry_ms)
