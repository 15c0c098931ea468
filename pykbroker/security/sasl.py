"""Server side of a SASL exchange with the PLAIN mechanism (RFC 4616), as a state machine without I/O.

Order of requests on a SASL listener (P-13): ApiVersions (at most one success), SaslHandshake, then tokens, then any
request. After a handshake v1 the tokens are in SaslAuthenticate requests, after a handshake v0 they are frames without
a header (P-14). Another request in place of SaslAuthenticate gets ILLEGAL_SASL_STATE; other requests out of order get
no response, and the connection is closed.
"""

from __future__ import annotations

import enum
import hmac
import re
from typing import TYPE_CHECKING

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "PLAIN"
RECEIVE_SIZE_MAX = 524288
"""Kafka's default for the largest frame before authentication, in bytes (P-7)."""


class State(enum.Enum):
    """State of the exchange: the request that the client must send next."""

    VERSIONS_OR_HANDSHAKE = enum.auto()
    HANDSHAKE = enum.auto()
    AUTHENTICATE = enum.auto()
    RAW_TOKEN = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


_ALLOWED = {
    State.VERSIONS_OR_HANDSHAKE: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.HANDSHAKE: (ApiKey.SASL_HANDSHAKE,),
    State.AUTHENTICATE: (ApiKey.SASL_AUTHENTICATE,),
}


class SaslSession:
    """SASL exchange of one connection.

    Args:
        passwords: passwords by user name.
        receive_size_max: largest frame before authentication, in bytes (`sasl.server.max.receive.size`).
    """

    def __init__(self, passwords: Mapping[str, str], receive_size_max: int = RECEIVE_SIZE_MAX) -> None:
        self._passwords = passwords
        self._receive_size_max = receive_size_max
        self.state = State.VERSIONS_OR_HANDSHAKE
        self.mechanisms = [PLAIN]

    def frame_size_max(self, authenticated_max: int) -> int:
        """Largest size of the next frame, in bytes."""
        return authenticated_max if self.state is State.COMPLETE else min(authenticated_max, self._receive_size_max)

    def check_allowed(self, api_key: int) -> None:
        """Refuses a request that is not allowed in this state.

        Raises:
            CloseConnection: the text names the API and the state.
            KafkaError: ILLEGAL_SASL_STATE for a request in place of SaslAuthenticate. Only in this state Kafka sends a
                response; the connection must be closed after it.
        """
        if self.state is State.COMPLETE or api_key in _ALLOWED.get(self.state, ()):
            return
        name = next((key.name for key in ApiKey if key == api_key), None)
        if self.state is State.AUTHENTICATE and name is not None:
            self.state = State.FAILED
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, f"Unexpected Kafka request of type {name} during SASL authentication."
            )
        raise CloseConnection(f"API key {api_key} was sent before authentication ({self.state.name})")

    def versions_were_sent(self) -> None:
        """Notes a successful ApiVersions: a second one before authentication is not allowed (P-13)."""
        if self.state is State.VERSIONS_OR_HANDSHAKE:
            self.state = State.HANDSHAKE

    def choose(self, mechanism: str, handshake_version: int) -> None:
        """Sets the mechanism that the client has chosen.

        Raises:
            KafkaError: UNSUPPORTED_SASL_MECHANISM; the connection must be closed after the response (P-15).
        """
        if mechanism not in self.mechanisms:
            self.state = State.FAILED
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {mechanism} is not enabled")
        self.state = State.RAW_TOKEN if handshake_version == 0 else State.AUTHENTICATE

    def authenticate(self, token: bytes) -> str:
        """Checks a PLAIN token ``[authorization id] NUL user NUL password``; returns the user name.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED; an unknown user and a wrong password have the same text (P-18).
        """
        self.state = State.FAILED
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
            )
        try:
            authorization_id, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid SASL/PLAIN response: not UTF-8") from None
        if not user or not password:
            what = "username" if not user else "password"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {what} not specified")
        expected = self._passwords.get(user)
        is_right = hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None
        if not is_right:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password"
            )
        if authorization_id not in ("", user):
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.state = State.COMPLETE
        return user


_JAAS_USER = re.compile(r'\buser_([^\s=]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


def passwords_from_jaas(jaas: str) -> dict[str, str]:
    """Passwords by user name, from a ``PlainLoginModule required user_alice="secret" ...;`` setting."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for name, quoted, bare in _JAAS_USER.findall(jaas)
    }
