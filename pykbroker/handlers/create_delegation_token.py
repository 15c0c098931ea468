"""CreateDelegationToken (key 38): a token by which an application logs in for its owner (KIP-48).

Versions 1-3. v2 flexible; v3 another owner than the requester (KIP-373). A client may create tokens for itself, and
for others with CREATE_TOKENS on the USER resource. Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (P-250),
DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_AUTHORIZATION_FAILED, INVALID_PRINCIPAL_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import CreateDelegationToken, token_hmac
from pykbroker.protocol.acl_codes import CREATE_TOKENS, USER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from pykbroker.requests.controller_calls import forwarded_or_submitted
from pykbroker.requests.token_requests import NO_TIMESTAMP, may_use_tokens, token_settings
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from pykbroker.requests.context import NodeContext

REQUESTER_VERSION = 3
ANONYMOUS = "User:ANONYMOUS"


async def handle_create_delegation_token(
    context: NodeContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Creates the token at the active controller; a client that may not is refused here."""
    requester, owner = context.connection.principal, context.connection.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            # Kafka cannot make a principal of it, and names ANONYMOUS as owner and requester.
            return _refused_here(context, ErrorCode.UNKNOWN_SERVER_ERROR, ANONYMOUS, ANONYMOUS)
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
    refusal = ErrorCode.NONE
    if not may_use_tokens(context):
        refusal = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != requester and not context.authorize(CREATE_TOKENS, USER, owner):
        refusal = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif context.connection.listener_kind is ListenerKind.BROKER and any(
        renewer.principal_type != "User" for renewer in request.renewers
    ):
        refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
    if refusal != ErrorCode.NONE:
        return _refused_here(context, refusal, owner)
    settings, clock, longest_ms = token_settings(context), context.services.clock, request.max_lifetime_ms

    def command() -> CreateDelegationToken:
        return CreateDelegationToken(settings, owner, requester, renewers, longest_ms, clock.now_ms())

    answer: CreateDelegationTokenResponse | None
    answer, result, failure = await forwarded_or_submitted(context, request, command)
    if answer is not None:
        return answer
    if result is None:
        # An error of the whole request: as above Kafka makes no principal of it.
        return _refused_here(context, failure.code, ANONYMOUS, ANONYMOUS)
    if result.token is None:
        return _response(context, result.error, owner)
    token = result.token
    response = _response(
        context,
        ErrorCode.NONE,
        owner,
        times_ms=(token.issue_timestamp, token.expiration_timestamp, token.max_timestamp),
    )
    response.token_id, response.hmac = token.token_id, token_hmac(settings.secret_key or "", token.token_id)
    return response


def _refused_here(
    context: NodeContext, error: ErrorCode, owner: str, requester: str = ""
) -> CreateDelegationTokenResponse:
    """Response of a broker that has not asked the controller."""
    return _response(context, error, owner, requester, (NO_TIMESTAMP, NO_TIMESTAMP, NO_TIMESTAMP))


def _response(
    context: NodeContext,
    error: ErrorCode,
    owner: str,
    requester: str = "",
    times_ms: tuple[int, int, int] = (0, 0, 0),
) -> CreateDelegationTokenResponse:
    """A response without a token. `times_ms`: issue, expiry, latest expiry."""
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = (requester or context.connection.principal).partition(":")
    has_requester = context.api_version >= REQUESTER_VERSION
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if has_requester else "",
        token_requester_principal_name=requester_name if has_requester else "",
        issue_timestamp_ms=times_ms[0],
        expiry_timestamp_ms=times_ms[1],
        max_timestamp_ms=times_ms[2],
    )
