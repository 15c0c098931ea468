"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides of a login as state machines without I/O.

As in Kafka only the GS2 header ``n`` is accepted (no channel binding), and the extension ``tokenauth=true`` of the
client's first message asks for a login by delegation token (KIP-48): the user name is then a token's id, and the
password its HMAC.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_NUMBERS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Number of a mechanism in requests and metadata records."""

ITERATIONS_MIN = 4096
"""As in controller/metadata/scram.py, whose import would load 11 more modules for a login of the command line."""
SERVER_ITERATIONS_MAX = 1_000_000
"""Largest number of iterations that a client of ours does for a server, as librdkafka's: half a second of a thread.
Kafka's own client has no limit; its servers store at most 16,384."""
TOKEN_AUTH = "tokenauth"  # noqa: S105  the name of an extension
SALT_SIZE = 26
"""Characters of a salt: those of Kafka's tools are numbers of 130 bits in base 36."""
CHANNEL_BINDING = b64encode(b"n,,")

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_SASL_NAME}))?,(?:m={_VALUE},)?"
    rf"n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_SERVER_FINAL = re.compile(rf"e=(?P<error>[\x01-\x2b\x2d-\x3c\x3e-\x7f]+)|v=(?P<signature>{_BASE64}){_EXTENSIONS}")


class ScramCredential(NamedTuple):
    """The proof of a password, without the password (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenCredential(NamedTuple):
    """Credential of a delegation token; `owner` is the name of the user that it logs in."""

    owner: str
    ends_ms: int
    credential: ScramCredential


class ScramCredentials(NamedTuple):
    """The credentials of one mechanism, as they are at the moment of a call.

    Attributes:
        of_user: the credential of a user; None if the user has none.
        of_token: the credential of a delegation token by its id; None if there is no such token.
        decoy: a credential for a user or token that does not exist: the same one for the same name, in a form that
            cannot be distinguished from a real one.
    """

    of_user: Callable[[str], ScramCredential | None]
    of_token: Callable[[str], TokenCredential | None]
    decoy: Callable[[str], ScramCredential]


def salted_password(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations). The password is not prepared (SASLprep), as in Kafka."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def credential_of_salted(hash_name: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", hash_name), iterations)


def credential_of_password(
    hash_name: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    salted = salted_password(hash_name, password.encode(), salt, iterations)
    return credential_of_salted(hash_name, salted, salt, iterations)


def decoy_credential(hash_name: str, secret: bytes, name: str) -> ScramCredential:
    """A credential that no password fits, derived from a secret and a name: its salt is the same at each attempt."""
    seed = hmac.digest(secret, name.encode(), "sha512")
    size = hashlib.new(hash_name).digest_size
    return ScramCredential(
        _salt_text(seed[:SALT_SIZE]), hmac.digest(secret, seed, hash_name)[:size], bytes(size), ITERATIONS_MIN
    )


def random_salt(randbytes: Callable[[int], bytes]) -> bytes:
    """A new salt, in the form of Kafka's tools."""
    return _salt_text(randbytes(SALT_SIZE))


def _salt_text(data: bytes) -> bytes:
    return bytes(b"0123456789abcdefghijklmnopqrstuvwxyz"[byte % 36] for byte in data)


class ScramExchange:
    """Server's side of one login: two tokens of the client, two answers.

    An unknown user is refused at the second token, as a wrong password is, while Kafka refuses at the first (P-18).

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        nonce: the server's part of the nonce.
    """

    def __init__(self, mechanism: str, credentials: ScramCredentials, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._credentials = credentials
        self._server_nonce = nonce
        self._outcome: Authenticated | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._nonce = ""
        self._signed = b""
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """The server's first message for the client's first, and its final message for the final one.

        Raises:
            LoginRefused: another authorization id than the user name.
            InvalidCredentials: malformed message, unknown user, wrong proof.
        """
        # The characters of the messages are ASCII; others become one that matches nothing.
        text = token.decode(errors="replace")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise InvalidCredentials("Invalid SCRAM client first message format")
        user = found["name"].replace("=2C", ",").replace("=3D", "=")
        extensions = dict(part.split("=", 1) for part in found["extensions"].split(",")[1:])
        credential: ScramCredential | None
        if extensions.get(TOKEN_AUTH, "").lower() == "true":
            token = self._credentials.of_token(user)
            credential = None if token is None else token.credential
            outcome = None if token is None else Authenticated(token.owner, token.ends_ms, True)
        else:
            credential = self._credentials.of_user(user)
            outcome = Authenticated(user)
        self._is_known = credential is not None
        self._outcome = outcome
        credential = credential or self._credentials.decoy(user)
        if found["authorization_id"] not in (None, user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise InvalidCredentials(f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN}")
        self._credential = credential
        self._nonce = found["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        bare = f"n={found['name']},r={found['nonce']}{found['extensions']}"
        self._signed = f"{bare},{answer}".encode()
        return answer.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise InvalidCredentials("Invalid SCRAM client final message format")
        if found["nonce"] != self._nonce:
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        channel = b64encode(b64decode(found["channel"])).decode()
        signed = self._signed + f",c={channel},r={self._nonce}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        proof = b64decode(found["proof"])
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=False))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not is_right or not self._is_known or len(proof) != len(signature):
            raise InvalidCredentials("Invalid client credentials")
        self.result = self._outcome
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._hash))


class ScramLogin:
    """Client's side of one login.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        nonce: the client's nonce.
        is_token: True to log in by a delegation token: `user` is its id, `password` its HMAC in base 64.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={name},r={nonce}{f',{TOKEN_AUTH}=true' if is_token else ''}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The final message, after the server's first.

        Raises:
            InvalidCredentials: the server's message is malformed, or asks for too few or too many iterations.
        """
        text = answer.decode(errors="replace")
        found = _SERVER_FIRST.fullmatch(text)
        if found is None:
            raise InvalidCredentials("the server's first message is malformed")
        nonce, iterations = found["nonce"], _iterations(found["iterations"])
        if not nonce.startswith(self._nonce):
            raise InvalidCredentials("the server's nonce does not begin with the client's")
        salted = salted_password(self._hash, self._password.encode(), b64decode(found["salt"]), iterations)
        without_proof = f"c={CHANNEL_BINDING.decode()},r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Checks the server's final message.

        Raises:
            InvalidCredentials: the server does not have the password, or has refused the login.
        """
        found = _SERVER_FINAL.fullmatch(answer.decode(errors="replace"))
        if found is None or found["error"] is not None:
            raise InvalidCredentials("the server's final message is malformed or an error")
        if not hmac.compare_digest(b64decode(found["signature"]), self._signature):
            raise InvalidCredentials("the server's signature is wrong")


def _iterations(text: str) -> int:
    """The iterations in a server's first message.

    Raises:
        InvalidCredentials: they are below the minimum, as in Kafka: with so few the password is found from the proof;
            or above `SERVER_ITERATIONS_MAX`.
    """
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(SERVER_ITERATIONS_MAX)) or int(digits) > SERVER_ITERATIONS_MAX:
        raise InvalidCredentials(f"Requested iterations {digits[:20]} is more than the maximum {SERVER_ITERATIONS_MAX}")
    if int(digits) < ITERATIONS_MIN:
        raise InvalidCredentials(f"Requested iterations {digits} is less than the minimum {ITERATIONS_MIN}")
    return int(digits)
