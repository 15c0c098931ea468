"""DescribeDelegationToken (key 41): tokens with their HMACs (KIP-48).

Versions 1-3. v2 flexible; v3 requester (KIP-373). A client sees the tokens of which it is owner, requester or renewer,
those on which it has DESCRIBE, and those of users on which it has DESCRIBE_TOKENS. Null owners mean all tokens, an
empty list none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import token_hmac, tokens
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from pykbroker.requests.token_requests import may_use_tokens

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.protocol.log_messages.metadata_records import DelegationTokenRecord
    from pykbroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
    from pykbroker.requests.context import NodeContext

REQUESTER_VERSION = 3


async def handle_describe_delegation_token(
    context: NodeContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Lists tokens of the newest metadata, also those that have expired and are not removed yet."""
    if not may_use_tokens(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = context.services.config.delegation_tokens.secret_key
    if not secret_key:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, secret_key, has_requester=context.api_version >= REQUESTER_VERSION)
            for token in tokens(context.services.metadata.image)
            if _is_eligible(context, token, owners)
        ]
    )


def _is_eligible(context: NodeContext, token: DelegationTokenRecord, owners: Collection[str] | None) -> bool:
    concerned = {token.owner, token.requester, *token.renewers}
    if owners is not None and concerned.isdisjoint(owners):
        return False
    return (
        context.connection.principal in concerned
        or context.authorize(DESCRIBE, DELEGATION_TOKEN, token.token_id)
        or context.authorize(DESCRIBE_TOKENS, USER, token.owner)
    )


def _described(token: DelegationTokenRecord, secret_key: str, *, has_requester: bool) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if has_requester else "",
        token_requester_principal_name=requester_name if has_requester else "",
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[_renewer(renewer) for renewer in token.renewers],
    )


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, _, name = principal.partition(":")
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
