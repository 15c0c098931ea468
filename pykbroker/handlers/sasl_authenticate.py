"""SaslAuthenticate (key 36): carry SASL tokens (KIP-152).

Versions 0-2. v1 session lifetime (KIP-368, P-17): 0 if the session does not end; v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from pykbroker.requests.login import answer_token, delay_failed_login
from pykbroker.security.sasl import State

if TYPE_CHECKING:
    from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from pykbroker.requests.context import NodeContext


async def handle_sasl_authenticate(context: NodeContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Checks the token; the response to a failure is delayed, then the connection is closed (P-16)."""
    connection = context.connection
    if connection.sasl is None or connection.sasl.state is not State.AUTHENTICATE:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        answer, lifetime_ms = await answer_token(context.services, connection, bytes(request.auth_bytes))
    except KafkaError as error:
        await delay_failed_login(context.services, connection, str(error))
        return SaslAuthenticateResponse(error_code=error.error_code, error_message=error.message)
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
