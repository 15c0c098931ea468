"""Server side of SASL/PLAIN (RFC 4616)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from pykbroker.security.sasl_mechanism import Authenticated, LoginRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "PLAIN"
TOKENS_MAX = 4
"""Kafka counts at most one token more than there may be."""


class PlainExchange:
    """One login: a single token ``[authorization id] NUL user NUL password``.

    Args:
        passwords: passwords by user name.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Checks the token; an unknown user and a wrong password have the same text (P-18).

        Raises:
            LoginRefused: the login failed.
        """
        # Bytes that are not UTF-8 become replacement characters, as in Java.
        parts = token.decode(errors="replace").split("\0", TOKENS_MAX - 1)
        if len(parts) != 3:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user or not password:
            missing = "username" if not user else "password"
            raise LoginRefused(f"Authentication failed: {missing} not specified")
        expected = self._passwords.get(user)
        is_right = hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None
        if not is_right:
            raise LoginRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.result = Authenticated(user)
        return b""
