"""Logins by SASL: answers to tokens, then principal and session of the connection; the delay after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.security.audit import audit_refused_login
from pykbroker.security.principals import AuthenticationContext, PrincipalBuilderFailed

if TYPE_CHECKING:
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo


async def answer_token(services: NodeServices, connection: ConnectionInfo, token: bytes) -> tuple[bytes, int]:
    """The answer to a token, and the lifetime of the session in ms: 0 without an end, and before the login is complete.

    Raises:
        KafkaError: SASL_AUTHENTICATION_FAILED.
        CloseConnection: the login failed in a way to which there is no answer.
    """
    sasl = connection.sasl
    assert sasl is not None
    await sasl.prepare(token)
    try:
        answer = sasl.authenticate(token)
        if not sasl.is_authenticated:
            return answer, 0
        result = sasl.result
        assert result is not None
        principal, refusal = f"User:{result.user}", result.refusal
        builder = services.principal_builder
        if builder is not None and builder.is_for(connection.listener_name):
            principal, refusal = _built(services, connection, principal), ""
        lifetime_ms = sasl.complete(connection.principal, principal, services.clock.now_ms(), refusal)
    except KafkaError as error:
        audit_refused_login(connection, sasl.mechanism, error)
        raise
    connection.principal = principal
    connection.is_token_authenticated = result.is_token
    return answer, lifetime_ms


def _built(services: NodeServices, connection: ConnectionInfo, principal: str) -> str:
    sasl = connection.sasl
    assert services.principal_builder is not None
    assert sasl is not None
    assert sasl.result is not None
    context = AuthenticationContext(
        listener_name=connection.listener_name,
        client_host=connection.client_host,
        mechanism=sasl.mechanism,
        principal=principal,
        extensions=sasl.result.extensions,
        authorization_id=sasl.result.authorization_id or sasl.result.user,
    )
    try:
        return services.principal_builder.build(context)
    except PrincipalBuilderFailed as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed") from error


async def delay_failed_login(services: NodeServices, connection: ConnectionInfo, reason: str) -> None:
    """Waits `connection.failed.authentication.delay.ms`, then marks the connection to be closed after any response.

    Kafka delays the response and the close after every failed login, so that clients with a wrong password do not
    reconnect at once; also after an unsupported mechanism, a request out of order and a token without headers.
    """
    await trio.sleep(services.config.connections.failed_authentication_delay_ms / 1000)
    connection.close_reason = reason
