"""The server's side of a SASL exchange as a state machine without I/O, with the PLAIN mechanism (RFC 4616).

Order on a SASL listener (P-13): ApiVersions (at most one success), SaslHandshake, then tokens: inside SaslAuthenticate
requests after a handshake v1, as bare size-prefixed frames after a handshake v0 (P-14), then any request. Another
request in the place of SaslAuthenticate is answered ILLEGAL_SASL_STATE; anything else out of order is not answered.
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
"""Kafka's default for the largest frame before authentication (P-7)."""


class State(enum.Enum):
    """Requests that the client may send next."""

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
    """The exchange of one connection.

    Args:
        passwords: user names to passwords.
        receive_size_max: largest frame before authentication (`sasl.server.max.receive.size`).
    """

    def __init__(self, passwords: Mapping[str, str], receive_size_max: int = RECEIVE_SIZE_MAX) -> None:
        self._passwords = passwords
        self._receive_size_max = receive_size_max
        self.state = State.VERSIONS_OR_HANDSHAKE
        self.mechanisms = [PLAIN]

    def frame_size_max(self, authenticated_max: int) -> int:
        """The size limit of the next frame."""
        return authenticated_max if self.state is State.COMPLETE else min(authenticated_max, self._receive_size_max)

    def check_allowed(self, api_key: int) -> None:
        """Refuses what may not be sent yet.

        Raises:
            CloseConnection: naming what was expected.
            KafkaError: ILLEGAL_SASL_STATE, for a request in the place of SaslAuthenticate. This one state of the
                exchange is answered in Kafka; the connection is to be closed after the answer.
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
        """A successful ApiVersions: a second one before authentication is not allowed (P-13)."""
        if self.state is State.VERSIONS_OR_HANDSHAKE:
            self.state = State.HANDSHAKE

    def choose(self, mechanism: str, handshake_version: int) -> None:
        """Takes the client's choice of mechanism.

        Raises:
            KafkaError: UNSUPPORTED_SASL_MECHANISM; the connection is to be closed after the answer (P-15).
        """
        if mechanism not in self.mechanisms:
            self.state = State.FAILED
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {mechanism} is not enabled")
        self.state = State.RAW_TOKEN if handshake_version == 0 else State.AUTHENTICATE

    def authenticate(self, token: bytes) -> str:
        """Checks a PLAIN token ``[authorization id] NUL user NUL password``; gives the user's name.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED; wrong user and wrong password read the same (P-18).
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
    """The users of a ``PlainLoginModule required user_alice="secret" ...;`` setting."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for name, quoted, bare in _JAAS_USER.findall(jaas)
    }
