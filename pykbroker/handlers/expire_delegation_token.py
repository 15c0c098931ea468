"""ExpireDelegationToken (key 40): another expiry of a delegation token, or its end at once (KIP-48).

Versions 1-2. v2 flexible. The owner and the renewers of a token may; others get DELEGATION_TOKEN_OWNER_MISMATCH.
A negative period removes the token, also an expired one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import ExpireDelegationToken
from pykbroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from pykbroker.requests.token_requests import change_token

if TYPE_CHECKING:
    from pykbroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
    from pykbroker.requests.context import NodeContext


async def handle_expire_delegation_token(
    context: NodeContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Changes the token at the active controller; a client that has not logged in itself is refused here."""
    return await change_token(
        context, request, ExpireDelegationTokenResponse, ExpireDelegationToken, request.expiry_time_period_ms
    )
