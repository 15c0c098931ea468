"""Server side of SASL on one connection, as a state machine without I/O: the order of requests, and the session.

Order of requests on a SASL listener (P-13): ApiVersions (at most one success), SaslHandshake, then tokens, then any
request. After a handshake v1 the tokens are in SaslAuthenticate requests, after a handshake v0 they are frames without
a header (P-14). Another request in place of SaslAuthenticate gets ILLEGAL_SASL_STATE; other requests out of order get
no response, and the connection is closed.

A session that ends (KIP-368, P-17) can be prolonged: a SaslHandshake on it begins another login of the same principal
by the same mechanism. The first other request after its end closes the connection.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.java_order import copied_table_size, hash_order
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykbroker.security.sasl_mechanism import Exchange, Mechanism

REAUTH_INTERVAL_MIN_S = 1.0
"""Shortest time in seconds between the beginnings of two re-authentications of a connection, as in Kafka."""


class State(enum.Enum):
    """State of the exchange: the request that the client must send next."""

    VERSIONS_OR_HANDSHAKE = enum.auto()
    HANDSHAKE = enum.auto()
    AUTHENTICATE = enum.auto()
    RAW_TOKEN = enum.auto()
    COMPLETE = enum.auto()
    NO_PRINCIPAL = enum.auto()
    REAUTH_HANDSHAKE = enum.auto()
    REAUTH_BAD_MECHANISM = enum.auto()
    FAILED = enum.auto()


_ALLOWED = {
    State.VERSIONS_OR_HANDSHAKE: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.HANDSHAKE: (ApiKey.SASL_HANDSHAKE,),
    State.AUTHENTICATE: (ApiKey.SASL_AUTHENTICATE,),
}


class SaslSession:
    """SASL on one connection.

    Args:
        mechanisms: mechanisms of the listener, by name.
        receive_size_max: largest frame before authentication, in bytes (`sasl.server.max.receive.size`).
        now_s: a clock in seconds that does not jump, for the end of sessions.

    Attributes:
        mechanisms: names of the offered mechanisms, in the order of Kafka's responses.
        mechanism: name of the chosen one.
        result: result of the last complete login; None before.
        is_again: True while a client that is logged in logs in again.
    """

    def __init__(self, mechanisms: Mapping[str, Mechanism], receive_size_max: int, now_s: Callable[[], float]) -> None:
        self._offered = mechanisms
        self._receive_size_max = receive_size_max
        self._now_s = now_s
        self._exchange: Exchange | None = None
        self._ends_at_s: float | None = None
        self._reauth_began_at_s: float | None = None
        self._refusal = ""
        self.state = State.VERSIONS_OR_HANDSHAKE
        # Kafka lists them in the order of a HashSet.
        self.mechanisms = hash_order(mechanisms, copied_table_size(len(mechanisms)))
        self.mechanism = ""
        self.result: Authenticated | None = None
        self.is_again = False

    @property
    def is_over(self) -> bool:
        """True once the first login has succeeded or failed; after a failure the connection is about to be closed."""
        return self.is_again or self.state in (State.COMPLETE, State.NO_PRINCIPAL, State.FAILED)

    @property
    def allows_requests(self) -> bool:
        """True if other requests than those of a login are allowed: the client has a session that has not ended."""
        return self.state is State.COMPLETE and (self._ends_at_s is None or self._now_s() <= self._ends_at_s)

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
        if self.state is State.COMPLETE:
            if self._ends_at_s is not None:
                self._check_session(api_key, self._ends_at_s)
            return
        if api_key in _ALLOWED.get(self.state, ()):
            return
        if self.state in (State.REAUTH_BAD_MECHANISM, State.NO_PRINCIPAL):
            self.state = State.FAILED
            raise CloseConnection(self._refusal)
        name = next((key.name for key in ApiKey if key == api_key), None)
        if self.state is State.AUTHENTICATE and name is not None:
            self.state = State.FAILED
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, f"Unexpected Kafka request of type {name} during SASL authentication."
            )
        raise CloseConnection(f"API key {api_key} was sent before authentication ({self.state.name})")

    def _check_session(self, api_key: int, ends_at_s: float) -> None:
        """Begins another login if this is its handshake; refuses other requests after the end of the session."""
        now_s = self._now_s()
        if api_key == ApiKey.SASL_HANDSHAKE:
            began = self._reauth_began_at_s
            if began is None or now_s - began >= REAUTH_INTERVAL_MIN_S:
                self._reauth_began_at_s = now_s
                self.is_again = True
                self.state = State.REAUTH_HANDSHAKE
                return
        if now_s > ends_at_s:
            self.state = State.FAILED
            raise CloseConnection("its session is over, and the client has not logged in again")

    def versions_were_sent(self) -> None:
        """Notes a successful ApiVersions: a second one before authentication is not allowed (P-13)."""
        if self.state is State.VERSIONS_OR_HANDSHAKE:
            self.state = State.HANDSHAKE

    def choose(self, mechanism: str, handshake_version: int) -> None:
        """Sets the mechanism that the client has chosen.

        Raises:
            KafkaError: UNSUPPORTED_SASL_MECHANISM; the connection must be closed after the response (P-15).
            CloseConnection: the same on a connection that is logged in, where Kafka sends no response.
        """
        offered = self._offered.get(mechanism)
        if offered is None:
            self.state = State.FAILED
            if self.is_again:
                raise CloseConnection(f"Unsupported SASL mechanism {mechanism}")
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {mechanism} is not enabled")
        if self.is_again and mechanism != self.mechanism:
            # Accepted, and refused at the next request, as in Kafka.
            self._refusal = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self.mechanism}'"
            )
            self.state = State.REAUTH_BAD_MECHANISM
            return
        self.mechanism = mechanism
        self._exchange = offered.make()
        self.state = State.RAW_TOKEN if handshake_version == 0 else State.AUTHENTICATE

    async def prepare(self, token: bytes) -> None:
        """Waits for what the chosen mechanism needs to evaluate a token; called before `authenticate`."""
        prepare = self._offered[self.mechanism].prepare
        if prepare is not None:
            assert self._exchange is not None
            await prepare(self._exchange, token)

    def authenticate(self, token: bytes) -> bytes:
        """The answer to a token of the chosen mechanism.

        If the login is complete with it, `result` is set, and `complete` must be called before the answer is sent.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED. Its text for the client does not depend on the reason where that
                would tell which users exist (P-18).
        """
        exchange, waiting_state = self._exchange, self.state
        assert exchange is not None
        self.state = State.FAILED
        try:
            answer = exchange.evaluate(token)
        except LoginRefused as refused:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused)) from None
        except InvalidCredentials as invalid:
            again = "re-authentication" if self.is_again else "authentication"
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self.mechanism}",
            ) from invalid
        self.state = waiting_state
        self.result = exchange.result
        return answer

    @property
    def is_authenticated(self) -> bool:
        """True if the last token has completed the login, and `complete` was not called yet."""
        return self._exchange is not None and self._exchange.result is not None

    def complete(self, old_principal: str, principal: str, now_ms: int, refusal: str = "") -> int:
        """Ends the login; returns the lifetime of the session in ms, 0 if it has no end.

        Args:
            old_principal: the connection's principal before this login.
            principal: the principal now.
            now_ms: the time of day.
            refusal: the reason why the client has no principal; "" if it has one. Kafka notices this at the first
                request after the login, and at another login of the connection with the login itself.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED: another login of the connection has another principal.
            CloseConnection: another login of the connection has none.
        """
        assert self.result is not None
        if self.is_again and refusal:
            self.state = State.FAILED
            raise CloseConnection(refusal)
        if self.is_again and principal != old_principal:
            self.state = State.FAILED
            names = [name.replace(":", ".", 1) for name in (old_principal, principal)]
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Cannot change principals during re-authentication from {names[0]}: {names[1]}",
            )
        lifetimes_ms = []
        if self.result.credential_ends_ms is not None:
            lifetimes_ms.append(self.result.credential_ends_ms - now_ms)
        if self._offered[self.mechanism].max_reauth_ms > 0:
            lifetimes_ms.append(self._offered[self.mechanism].max_reauth_ms)
        lifetime_ms = max(0, min(lifetimes_ms, default=0))
        self._ends_at_s = self._now_s() + lifetime_ms / 1000 if lifetimes_ms else None
        self._exchange = None
        self.is_again = False
        self._refusal = refusal
        self.state = State.NO_PRINCIPAL if refusal else State.COMPLETE
        return lifetime_ms
