"""Hostile clients of a listener with SASL: logins that are broken or out of order, and what follows a login."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.errors import EncodeError
from pykbroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker.requests.api_table import APIS, FLEXIBLE_FROM
from pykbroker.security.scram import ScramLogin
from tests.fuzz.client import RESET
from tests.fuzz.frames import GARBAGE, request_type
from tests.fuzz.mutation import mutated
from tests.support.message_strategies import random_message

TIMEOUT_S = 5.0
USERS = {"fuzz-user": "fuzz-password", "another": "another-password"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
MODULES = "org.apache.kafka.common.security"
SCRAM_MODULE = f"{MODULES}.scram.ScramLoginModule required;"
SETTINGS = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_fuzz-user="{USERS["fuzz-user"]}";'
    ),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "60000",
    "delegation.token.secret.key": "secret-of-the-fuzz",
    # Otherwise each refused login would take a tenth of a second.
    "connection.failed.authentication.delay.ms": "0",
}
"""Settings of a target whose listener with SASL has every mechanism; OAUTHBEARER takes unsigned tokens."""

TOKEN_APIS = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
Step = bytes | str
"""A frame, or a login in the form of `Login.log_in`: a login's frames depend on nonces and times."""
Report = Callable[[str, str, list[Step]], None]
HISTORY = 200
"""Connections whose steps are kept, for what the broker logs of them."""


class Refused(Exception):
    """The broker refused a login, by an error or by the end of the connection."""


def unsigned_token(user: str, **claims: object) -> str:
    """A token of the unsecured kind."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 600, **claims})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


class Login:
    """A connection to the listener with SASL, from which every message can be sent in any order.

    Attributes:
        port: the local port.
        frames: all frames that were sent.
        sent: the same, with whole logins as texts.
    """

    def __init__(self, address: tuple[str, int], timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.port: int = self.socket.getsockname()[1]
        self.frames: list[bytes] = []
        self.sent: list[Step] = []
        self._address = address

    def send(self, frame: bytes) -> None:
        """Sends a frame with its size."""
        self.frames.append(frame)
        self.sent.append(frame)
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes:
        """A frame. Raises Refused at the end of the connection."""
        data = bytearray()
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            try:
                piece = self.socket.recv(1 << 16)
            except ConnectionError as error:
                raise Refused(str(error)) from None
            if not piece:
                raise Refused("the connection was closed")
            data += piece
        return bytes(data[4:])

    def exchange(self, frame: bytes) -> bytes:
        """Sends a frame and reads one."""
        self.send(frame)
        return self.receive()

    def choose(self, mechanism: str) -> None:
        """SaslHandshake. Raises Refused."""
        if self.exchange(handshake(mechanism))[4:6] != b"\0\0":
            raise Refused(f"no mechanism {mechanism}")

    def token(self, token: bytes) -> SaslAuthenticateResponse:
        """SaslAuthenticate. Raises Refused."""
        reply = self.exchange(authenticate(token))
        answer = decode(SaslAuthenticateResponse, 1, reply[4:])
        if answer.error_code:
            raise Refused(answer.error_message or "")
        return answer

    def scram(self, mechanism: str, user: str, password: str, *, is_token: bool = False) -> None:
        """A whole login by SCRAM. Raises Refused."""
        login = ScramLogin(mechanism, user, password, "nonce-of-the-client", is_token=is_token)
        before = len(self.sent)
        try:
            self.choose(mechanism)
            final = login.final(bytes(self.token(login.first()).auth_bytes))
            login.check(bytes(self.token(final).auth_bytes))
        finally:
            self.sent[before:] = [f"{mechanism} {user} {password}"]

    def log_in(self, text: str) -> None:
        """Logs in as the text says. Raises Refused.

        The texts: ``SCRAM-SHA-256 user password``, ``OAUTHBEARER user``, and ``token right`` or ``token wrong`` for a
        login by a delegation token of the first user, which is made for it.
        """
        kind, *words = text.split(" ")
        if kind == "OAUTHBEARER":
            answer = self.oauth(unsigned_token(words[0]))
            self.sent[-2:] = [text]
            if answer:
                raise Refused(answer.decode(errors="replace"))
        elif kind == "token":
            self._log_in_by_token(is_right=words[0] == "right")
            self.sent[-1] = text
        else:
            self.scram(kind, words[0], words[1])

    def _log_in_by_token(self, *, is_right: bool) -> None:
        owner = Login(self._address)
        try:
            owner.scram("SCRAM-SHA-256", *next(iter(USERS.items())))
            create = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
            reply = owner.exchange(request(ApiKey.CREATE_DELEGATION_TOKEN, 1, encode(create, 1)))
            made = decode(CreateDelegationTokenResponse, 1, reply[4:])
        finally:
            owner.close()
        password = b64encode(bytes(made.hmac)).decode()
        self.scram("SCRAM-SHA-512", made.token_id, password if is_right else password[::-1], is_token=True)

    def oauth(self, token: str) -> bytes:
        """The first message of OAUTHBEARER; returns the answer, which is empty after a success. Raises Refused."""
        self.choose("OAUTHBEARER")
        return bytes(self.token(f"n,,\x01auth=Bearer {token}\x01\x01".encode()).auth_bytes)

    def is_served(self) -> bool:
        """True if a request other than those of a login is answered, with more than an error."""
        try:
            reply = self.exchange(METADATA)
        except Refused:
            return False
        # Correlation id and throttle time, then the number of brokers.
        return int.from_bytes(reply[8:12], "big") > 0

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()


def request(key: int, version: int, body: bytes) -> bytes:
    """A frame with a header of version 1 or 2."""
    flexible = b"\0" if version >= FLEXIBLE_FROM.get(key, 1 << 15) else b""
    return struct.pack(">hhih", key, version, 1, 4) + b"fuzz" + flexible + body


def handshake(mechanism: str, version: int = 1) -> bytes:
    """SaslHandshake."""
    return request(ApiKey.SASL_HANDSHAKE, version, encode(SaslHandshakeRequest(mechanism=mechanism), version))


def authenticate(token: bytes) -> bytes:
    """SaslAuthenticate."""
    return request(ApiKey.SASL_AUTHENTICATE, 1, encode(SaslAuthenticateRequest(auth_bytes=token), 1))


METADATA = request(ApiKey.METADATA, 4, struct.pack(">i", 0) + b"\0")
API_VERSIONS = request(ApiKey.API_VERSIONS, 0, b"")


class SaslFuzz:
    """Sends hostile connections one after another.

    Args:
        address: of the listener with SASL, of a target with `SETTINGS` and `USERS`.
        generator: the source of chance.
        report: called with kind, text and the frames of a connection for each finding.
    """

    def __init__(self, address: tuple[str, int], generator: random.Random, report: Report) -> None:
        self._address = address
        self._generator = generator
        self._report = report
        self._kinds = (
            self._noise,
            self._any_order,
            self._mutated_scram,
            self._mutated_oauth,
            self._raw_tokens,
            self._good_logins,
            self._delegation_tokens,
            self._another_login,
        )
        self.connections = 0
        # By the local port of a connection.
        self.history: dict[int, list[Step]] = {}

    def run(self, count: int) -> None:
        """So many connections, of kinds by chance."""
        for _ in range(count):
            self.connections += 1
            login = Login(self._address)
            self.history.pop(login.port, None)
            self.history[login.port] = login.sent
            if len(self.history) > HISTORY:
                del self.history[next(iter(self.history))]
            try:
                with suppress(Refused, TimeoutError, ConnectionError):
                    self._generator.choice(self._kinds)(login)
            finally:
                if self._generator.random() < 0.3:
                    login.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                login.close()

    def _must_be_refused(self, login: Login, what: str) -> None:
        if login.is_served():
            self._report("login", f"a client is served after {what}", login.sent)

    def _noise(self, login: Login) -> None:
        login.socket.settimeout(0.05)
        login.socket.sendall(self._generator.choice(GARBAGE))
        with suppress(TimeoutError):
            login.receive()

    def _any_order(self, login: Login) -> None:
        """Requests of logins in any order, none of which is a login."""
        choose = self._generator.choice
        login.socket.settimeout(0.1)
        for _ in range(self._generator.randint(1, 8)):
            kind = self._generator.randrange(5)
            if kind == 0:
                login.exchange(API_VERSIONS)
            elif kind == 1:
                login.exchange(handshake(choose((*MECHANISMS, "", "plain", "GSSAPI", "x" * 300))))
            elif kind == 2:
                login.exchange(authenticate(self._bad_token()))
            elif kind == 3:
                login.exchange(mutated(choose((handshake("PLAIN"), authenticate(b"x"))), self._generator))
            else:
                self._must_be_refused(login, "requests in any order")
        self._must_be_refused(login, "requests in any order")

    def _bad_token(self) -> bytes:
        choose, generator = self._generator.choice, self._generator
        return bytes(
            choose(
                (
                    b"",
                    b"\x01",
                    b"n,,n=fuzz-user,r=abc",
                    b"n,,n=fuzz-user,r=" + b"a" * generator.choice((1, 1000, 200_000)),
                    b"n,,n=" + b"=2C" * generator.choice((1, 100_000)) + b",r=a,tokenauth=true",
                    b"c=biws,r=abc,p=AAAA",
                    b"n,,\x01auth=Bearer " + b"." * generator.choice((2, 200_000)) + b"\x01\x01",
                    b"n,,\x01" + b"a=b\x01" * generator.choice((1, 50_000)) + b"\x01",
                    b"\0fuzz-user\0wrong",
                    b"\0" * generator.choice((1, 3, 100_000)),
                    generator.randbytes(generator.randrange(300)),
                )
            )
        )

    def _mutated_scram(self, login: Login) -> None:
        """A login of which one message has changed bytes, or a proof of another length."""
        mechanism = self._generator.choice(SCRAM)
        client = ScramLogin(mechanism, "fuzz-user", USERS["fuzz-user"], "nonce")
        login.choose(mechanism)
        first = client.first()
        if self._generator.random() < 0.4:
            login.token(mutated(first, self._generator))
            self._must_be_refused(login, "the first message alone")
            return
        final = client.final(bytes(login.token(first).auth_bytes))
        head, _, proof = final.partition(b",p=")
        size = self._generator.choice((0, 1, 31, 33, 63, 65, 200_000))
        broken = self._generator.choice(
            (head + b",p=" + b64encode(bytes(size)), head, final + b"A", final[:-4], head + b",p=" + proof[::-1])
        )
        with suppress(Refused):
            login.token(broken)
        self._must_be_refused(login, f"the final message {broken[:200]!r}")

    def _mutated_oauth(self, login: Login) -> None:
        """Tokens that are no good: each gets the JSON answer, or an error."""
        good = unsigned_token("fuzz-user")
        token = self._generator.choice(
            (
                mutated(good.encode(), self._generator).decode("latin-1"),
                good[:-1],
                good.replace(".", ".."),
                unsigned_token("fuzz-user", exp=1),
                unsigned_token("fuzz-user", exp="never"),
                unsigned_token("fuzz-user", exp=10**400),
                unsigned_token("fuzz-user", sub=None),
                unsigned_token("fuzz-user", iat={"a": [1]}),
                urlsafe_b64encode(b"[" * 5_000).decode() + ".e30.",
                urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.",
                "e30." + urlsafe_b64encode(b'{"a":' * 50_000).decode() + ".",
            )
        )
        login.oauth(token)

    def _raw_tokens(self, login: Login) -> None:
        """Tokens as frames without headers, after a handshake of version 0."""
        login.exchange(handshake(self._generator.choice(MECHANISMS), 0))
        for _ in range(self._generator.randint(1, 3)):
            login.exchange(self._bad_token())
        self._must_be_refused(login, "raw tokens")

    def _good_logins(self, login: Login) -> None:
        """A right login is served whatever happens beside it."""
        kind = self._generator.choice(("scram", "oauth", "plain"))
        if kind == "scram":
            login.scram(self._generator.choice(SCRAM), "fuzz-user", USERS["fuzz-user"])
        elif kind == "oauth":
            login.log_in("OAUTHBEARER fuzz-user")
        else:
            login.choose("PLAIN")
            login.token(b"\0fuzz-user\0" + USERS["fuzz-user"].encode())
        if not login.is_served():
            self._report("login", f"a client is not served after a login by {kind}", login.sent)

    def _delegation_tokens(self, login: Login) -> None:
        """Requests about delegation tokens with whatever is in them, and a login by a token, right and wrong."""
        login.scram("SCRAM-SHA-256", "fuzz-user", USERS["fuzz-user"])
        for _ in range(self._generator.randint(0, 5)):
            key = self._generator.choice(TOKEN_APIS)
            api = APIS[key]
            version = self._generator.randint(api.lowest, api.highest)
            with suppress(EncodeError):
                body = encode(random_message(request_type(key), version, self._generator), version)
                frame = request(key, version, body)
                login.exchange(frame if self._generator.random() < 0.6 else mutated(frame, self._generator))
        by_token = Login(self._address)
        try:
            wrong = self._generator.random() < 0.5
            by_token.log_in("token wrong" if wrong else "token right")
            if wrong:
                self._report("login", "a client is logged in by a wrong delegation token", by_token.sent)
        finally:
            by_token.close()

    def _another_login(self, login: Login) -> None:
        """A re-authentication of another user, or with a wrong password, ends the connection."""
        login.scram("SCRAM-SHA-512", "fuzz-user", USERS["fuzz-user"])
        user, password = self._generator.choice((("another", USERS["another"]), ("fuzz-user", "wrong")))
        with suppress(Refused):
            login.scram("SCRAM-SHA-512", user, password)
        self._must_be_refused(login, f"a login as {user} with {password} on a connection of fuzz-user")
