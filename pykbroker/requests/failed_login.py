"""End of a connection whose login failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo


async def delay_failed_login(services: NodeServices, connection: ConnectionInfo, reason: str) -> None:
    """Waits `connection.failed.authentication.delay.ms`, then marks the connection to be closed after any response.

    Kafka delays the response and the close after every failed login, so that clients with a wrong password do not
    reconnect at once; also after an unsupported mechanism, a request out of order and a token without headers.
    """
    await trio.sleep(services.config.connections.failed_authentication_delay_ms / 1000)
    connection.close_reason = reason
