"""RenewDelegationToken (key 39): a later expiry of a delegation token (KIP-48).

Versions 1-2. v2 flexible. The owner and the renewers of a token may; others get DELEGATION_TOKEN_OWNER_MISMATCH.
An expired token cannot be renewed, and none beyond its longest lifetime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import RenewDelegationToken
from pykbroker.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from pykbroker.requests.token_requests import change_token

if TYPE_CHECKING:
    from pykbroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
    from pykbroker.requests.context import NodeContext


async def handle_renew_delegation_token(
    context: NodeContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Changes the token at the active controller; a client that has not logged in itself is refused here."""
    return await change_token(
        context, request, RenewDelegationTokenResponse, RenewDelegationToken, request.renew_period_ms
    )
