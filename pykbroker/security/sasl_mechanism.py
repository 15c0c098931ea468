"""Interface of a SASL mechanism on the server's side: one exchange of tokens, without I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from pykbroker.named_tuple import NamedTuple


class LoginRefused(Exception):
    """The login failed; the client gets this text (Kafka's SaslAuthenticationException)."""


class InvalidCredentials(Exception):
    """The login failed; the client gets a text that names only the mechanism (Kafka's SaslException).

    The text is for the log of the server.
    """


class Authenticated(NamedTuple):
    """The result of a successful exchange.

    Attributes:
        user: name of the user, without the type of the principal.
        credential_ends_ms: time of day at which the credential ends, in ms; None if it does not end.
        is_token: True for a login by delegation token (KIP-48).
        extensions: validated SASL extensions, for a principal builder.
        authorization_id: the full name of the client where `user` is made of it by rules (GSSAPI); "" otherwise.
        refusal: the reason why the client has no principal, although its login succeeds. Its next request ends the
            connection (P-321).
    """

    user: str
    credential_ends_ms: int | None = None
    is_token: bool = False
    extensions: Mapping[str, str] = {}
    authorization_id: str = ""
    refusal: str = ""


class Exchange(Protocol):
    """Server's side of one login.

    `result` is None until the exchange is complete.
    """

    @property
    def result(self) -> Authenticated | None: ...

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a token of the client.

        Raises:
            LoginRefused, InvalidCredentials: the login failed.
        """
        ...


class Mechanism(NamedTuple):
    """A mechanism that a listener offers.

    Attributes:
        make: makes the exchange of one login.
        max_reauth_ms: longest session in ms after which the client must log in again; 0 for no limit
            (`connections.max.reauth.ms`, KIP-368).
        prepare: awaited with the exchange and each token, before the token is evaluated; None if there is nothing to
            wait for.
    """

    make: Callable[[], Exchange]
    max_reauth_ms: int = 0
    prepare: Callable[[Exchange, bytes], Awaitable[None]] | None = None
