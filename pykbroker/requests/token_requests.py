"""Common parts of the requests about delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.delegation_tokens import TokenSettings

if TYPE_CHECKING:
    from pykbroker.requests.context import NodeContext

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
