"""SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

Versions 0-1, never flexible. After v0 tokens follow as bare frames, after v1 inside SaslAuthenticate (KIP-152). On
a listener without SASL, or after authentication, the response is ILLEGAL_SASL_STATE. A second handshake before
authentication never gets here: `SaslSession.check_allowed` refuses it. On a session that ends it begins another login
of the client (KIP-368, P-17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykbroker.requests.login import delay_failed_login
from pykbroker.security.sasl import State

if TYPE_CHECKING:
    from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
    from pykbroker.requests.context import NodeContext


async def handle_sasl_handshake(context: NodeContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Accepts an enabled mechanism; refuses others with the list of enabled ones, then closes the connection (P-15)."""
    sasl = context.connection.sasl
    if sasl is None or sasl.state is State.COMPLETE:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        sasl.choose(request.mechanism, context.api_version)
    except KafkaError as error:
        await delay_failed_login(context.services, context.connection, str(error))
        return SaslHandshakeResponse(error_code=error.error_code, mechanisms=sasl.mechanisms)
    return SaslHandshakeResponse(mechanisms=sasl.mechanisms)
