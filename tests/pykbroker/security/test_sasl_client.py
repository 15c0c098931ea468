"""Logins of a node at another one: what it sends, and servers that refuse, hang up or talk nonsense."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.values import NodeLogin
from pykbroker.controller.node_client import session_ends
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykbroker.security import kerberos_client
from pykbroker.security.kerberos import ContextFailed
from pykbroker.security.sasl_client import LoginFailed, with_login
from tests.support.in_place import run_in_place

PLAIN = NodeLogin("PLAIN", {"username": "node", "password": "secret"}, {})
OAUTH = NodeLogin("OAUTHBEARER", {"unsecuredLoginStringClaim_sub": "node"}, {})
KERBEROS = NodeLogin("GSSAPI", {"principal": "node/host@R"}, {"sasl.kerberos.service.name": "kafka"})
CHOSEN = SaslHandshakeResponse(mechanisms=["PLAIN"])


class Server:
    """The other node: answers each request with the next of its responses, and hangs up after them."""

    def __init__(self, *responses: Any, shift: int = 0) -> None:
        self._responses = responses
        self._shift = shift
        self.received: list[bytes] = []
        self.stream: Any = None

    async def log_in(self, login: NodeLogin) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        self.stream = ours

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            return ours

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, theirs)
            opened: trio.abc.Stream | None = None
            error: Exception | None = None
            try:
                opened = await with_login(open_stream, login, run_in_thread=run_in_place)("host", 9093)
            except OSError as refused:
                error = refused
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error
        assert opened is not None
        return opened

    async def _serve(self, stream: trio.abc.Stream) -> None:
        for number, response in enumerate(self._responses, start=1):
            self.received.append(bytes(await stream.receive_some(65536)))
            data = (number + self._shift).to_bytes(4, "big") + encode(response, 1)
            await stream.send_all(len(data).to_bytes(4, "big") + data)
        await stream.receive_some(65536)
        await stream.aclose()


async def test_a_login() -> None:
    server = Server(CHOSEN, SaslAuthenticateResponse())
    await server.log_in(PLAIN)
    assert server.received[0].endswith(b"\0\5PLAIN")
    assert server.received[1].endswith(b"\0node\0secret")


@pytest.mark.parametrize(
    ("login", "responses", "words"),
    [
        (
            PLAIN,
            [SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI", "X"])],
            "PLAIN is not one of the SASL mechanisms that the node offers: GSSAPI, X",
        ),
        (
            PLAIN,
            [CHOSEN, SaslAuthenticateResponse(error_code=58, error_message="Authentication failed")],
            "Authentication failed",
        ),
        (PLAIN, [CHOSEN, SaslAuthenticateResponse(error_code=58)], "SASL_AUTHENTICATION_FAILED"),
        (
            OAUTH,
            [CHOSEN, SaslAuthenticateResponse(auth_bytes=b'{"status":"x"}')],
            'the token was refused: {"status":"x"}',
        ),
        (PLAIN, [CHOSEN], "logging in as node failed: the connection was closed"),
    ],
)
async def test_logins_that_fail(login: NodeLogin, responses: list[Any], words: str) -> None:
    """The error has the other node's text, or says what it did."""
    server = Server(*responses)
    with pytest.raises(LoginFailed) as refused:
        await server.log_in(login)
    assert words in str(refused.value)
    with pytest.raises(trio.ClosedResourceError):
        await server.stream.send_all(b"x")


async def test_an_answer_to_another_request() -> None:
    with pytest.raises(LoginFailed, match="logging in as node failed: the response is to request 3, not 1"):
        await Server(CHOSEN, shift=2).log_in(PLAIN)


class Initiator:
    """The library's security contexts, of which no second token is accepted."""

    def __init__(self, principal: str, key_table: str) -> None:
        assert (principal, key_table) == ("node/host@R", "")
        self.is_established = False

    def new_context(self, service: str, host: str) -> Initiator:
        assert (service, host) == ("kafka", "host")
        return self

    def step(self, token: bytes) -> bytes:
        if token:
            raise ContextFailed("the ticket has expired")
        return b"ticket"


async def test_a_kerberos_login_that_the_library_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-320: the node's name in the error is its principal."""
    initiator = Initiator("node/host@R", "")
    monkeypatch.setattr(kerberos_client, "_machine_contexts", lambda principal, table: initiator.new_context)
    server = Server(CHOSEN, SaslAuthenticateResponse(auth_bytes=b"proof"))
    with pytest.raises(LoginFailed, match="logging in as node/host@R failed: the ticket has expired"):
        await server.log_in(KERBEROS)
    assert server.received[1].endswith(b"ticket")


class Answered(Initiator):
    """A security context that the second token establishes, and that wraps nothing."""

    def step(self, token: bytes) -> bytes:
        self.is_established = bool(token)
        return b"ticket"

    def wrap(self, message: bytes) -> bytes:
        return message

    def unwrap(self, token: bytes) -> bytes:
        return token


async def test_a_kerberos_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-320: two tokens of the library, then the choice of no security layer; the session lasts as the server says."""
    initiator = Answered("node/host@R", "")
    monkeypatch.setattr(kerberos_client, "_machine_contexts", lambda principal, table: initiator.new_context)
    answers = [SaslAuthenticateResponse(auth_bytes=data) for data in (b"proof", b"\x01\x00\x10\x00")]
    server = Server(CHOSEN, *answers, SaslAuthenticateResponse(session_lifetime_ms=10_000))
    stream = await server.log_in(KERBEROS)
    assert server.received[3].endswith(b"node/host@R")
    assert stream in session_ends
