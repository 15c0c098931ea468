"""Server side of SASL/OAUTHBEARER (RFC 7628, KIP-255), as a state machine without I/O.

A refused token is not an error yet: the server answers with a JSON text, the client sends one byte 0x01, and then the
login fails with that text as the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pykbroker.errors import CloseConnection
from pykbroker.named_tuple import NamedTuple
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused

DUMMY_RESPONSE = b"\x01"

_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_INITIAL = re.compile(rf"n,(?:a=(?P<authorization_id>{_SASL_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+={_VALUE}\x01)*)\x01")
_AUTH = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class ValidToken(NamedTuple):
    """A token that was accepted: the name of its user, and the time of day at which it expires, in ms."""

    user: str
    expires_ms: int


class InvalidToken(Exception):
    """A token that is refused. The text is for the log.

    Attributes:
        missing_scope: the scope that a client needs, as Kafka writes it, if that is the reason.
    """

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope


class InitialResponse(NamedTuple):
    """The client's first message."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]


def parse_initial_response(message: bytes) -> InitialResponse:
    """Parses the client's first message.

    Raises:
        InvalidCredentials: it is malformed.
        CloseConnection: it has another scheme than Bearer.
    """
    found = _INITIAL.fullmatch(message.decode(errors="replace"))
    if found is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = pairs.pop("auth", None)
    if auth is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: 'auth' not specified")
    credentials = _AUTH.fullmatch(auth)
    if credentials is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if credentials["scheme"].lower() != "bearer":
        # Kafka fails here by an exception of its own, and closes the connection without an answer.
        raise CloseConnection("Invalid scheme in OAUTHBEARER client first message")
    return InitialResponse(credentials["token"], found["authorization_id"] or "", pairs)


def initial_response(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """The client's first message with a token."""
    pairs = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
    return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()


class OAuthExchange:
    """One login.

    Args:
        validate: checks a token; raises InvalidToken.
        log_refusal: gets the reason why a token is refused.
    """

    def __init__(self, validate: Callable[[str], ValidToken], log_refusal: Callable[[str], None]) -> None:
        self._validate = validate
        self._log_refusal = log_refusal
        self._error = ""
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Checks the client's first message; after a refused token fails the login.

        Raises:
            LoginRefused: a refused token, or another authorization id than the token's user.
            InvalidCredentials: a malformed message.
        CloseConnection: another scheme than Bearer.
        """
        if token == DUMMY_RESPONSE and self._error:
            raise LoginRefused(self._error)
        self._error = ""
        response = parse_initial_response(token)
        try:
            valid = self._validate(response.token)
        except InvalidToken as refused:
            self._log_refusal(str(refused))
            scope = refused.missing_scope
            self._error = (
                '{"status":"invalid_token"}'
                if scope is None
                else f'{{"status":"insufficient_scope", "scope":"{scope}"}}'
            )
            return self._error.encode()
        if response.authorization_id not in ("", valid.user):
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({response.authorization_id}) that is "
                f"different from the token's principal name ({valid.user})"
            )
        self.result = Authenticated(valid.user, valid.expires_ms, extensions=response.extensions)
        return b""


def missing_scope(required: Sequence[str], given: Sequence[str]) -> str | None:
    """The required scope as Kafka writes it if not all of it is given, else None."""
    return None if set(required) <= set(given) else f"[{', '.join(required)}]"
