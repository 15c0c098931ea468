"""Server side of SASL/GSSAPI with Kerberos (RFC 4752, P-320), as a state machine without I/O.

The client's tokens establish a security context. Then the server offers security layers and a buffer size, the client
answers with its choice and an authorization id, and the login is complete. Kafka has no security layers, because it has
TLS: the server offers none, with the buffer size of Java's server, and accepts no other choice.

Tickets, keys and checksums are behind `SecurityContext`.
"""

from __future__ import annotations

import enum
import logging
from typing import Protocol

from pykbroker.errors import CloseConnection
from pykbroker.security.kerberos_names import NoUserName, UserNames
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials

log = logging.getLogger(__name__)

GSSAPI = "GSSAPI"
NO_SECURITY_LAYER = 1
"""Bit of the security layer "none" in offers and choices."""

RECEIVE_BUFFER_SIZE = 1 << 16
"""Size in bytes in the offer of Java's server; it has no effect without a security layer."""

OFFER = bytes([NO_SECURITY_LAYER]) + RECEIVE_BUFFER_SIZE.to_bytes(3, "big")
CHOICE_SIZE_MIN = 4


class ContextFailed(Exception):
    """A token is refused. The text is for the log of the server."""


class SecurityContext(Protocol):
    """The acceptor's side of a GSS-API security context. All methods raise ContextFailed."""

    @property
    def is_established(self) -> bool: ...

    @property
    def client(self) -> str:
        """The principal of the client once the context is established, such as ``alice@REALM``."""
        ...

    def accept(self, token: bytes) -> bytes | None:
        """The token to send to the client; None if there is none."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """A message with a checksum, not encrypted."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The message of a wrapped token."""
        ...


class _Stage(enum.Enum):
    """Kind of the client's next token."""

    CONTEXT = enum.auto()
    EMPTY = enum.auto()
    CHOICE = enum.auto()


class KerberosExchange:
    """One login.

    Args:
        context: a new security context.
        user_names: the rules that make user names of principals.
    """

    def __init__(self, context: SecurityContext, user_names: UserNames) -> None:
        self._context = context
        self._user_names = user_names
        self._stage = _Stage.CONTEXT
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a token of the client.

        Raises:
            InvalidCredentials: the login failed.
            CloseConnection: the client's choice is too short.
        """
        try:
            if self._stage is _Stage.CONTEXT:
                return self._accept(token)
            if self._stage is _Stage.EMPTY:
                return self._offer_security_layers(token)
            return self._complete(self._context.unwrap(token))
        except ContextFailed as failed:
            # Kafka means to end the connection without an answer after a replayed token or a ticket that is not valid
            # yet. It looks for these in a package that Java has closed since 17, so that its stock broker refuses them.
            raise InvalidCredentials(f"GSSAPI: {failed}") from None

    def _accept(self, token: bytes) -> bytes:
        answer = self._context.accept(token)
        if not self._context.is_established:
            return answer or b""
        self._stage = _Stage.EMPTY
        # A client that has not asked for the server's proof gets no token, and so the offer at once.
        return self._offer_security_layers(b"") if answer is None else answer

    def _offer_security_layers(self, token: bytes) -> bytes:
        if token:
            raise InvalidCredentials("GSSAPI: data before the offer of security layers")
        self._stage = _Stage.CHOICE
        return self._context.wrap(OFFER)

    def _complete(self, choice: bytes) -> bytes:
        if len(choice) < CHOICE_SIZE_MIN:
            # Java's server fails here by an exception of its own, and Kafka closes the connection without an answer.
            raise CloseConnection(f"GSSAPI: the client's choice of a security layer has only {len(choice)} bytes")
        if not choice[0] & NO_SECURITY_LAYER:
            raise InvalidCredentials(f"GSSAPI: the client has chosen security layer {choice[0]}, which is not offered")
        client = self._context.client
        authorization_id = choice[CHOICE_SIZE_MIN:].decode(errors="replace") or client
        # Kafka allows every authorization id, and takes the name of the ticket all the same.
        log.info("%s has logged in by GSSAPI, with the authorization id %r", client, authorization_id)
        try:
            self.result = Authenticated(self._user_names.of_principal(client), authorization_id=client)
        except NoUserName as error:
            self.result = Authenticated(client, authorization_id=client, refusal=str(error))
        return b""
