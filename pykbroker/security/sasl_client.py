"""SASL login of a node at another node's SASL listener, before anything else is sent over the connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.node_client import session_ends
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.framing import FrameReader
from pykbroker.protocol.headers import read_response_header, request_header
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker.security.kerberos import ContextFailed
from pykbroker.security.plain import PLAIN
from pykbroker.security.sasl_mechanism import InvalidCredentials
from pykbroker.wall_clock import SystemWallClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pykbroker.config.values import NodeLogin
    from pykbroker.controller.node_client import OpenStream
    from pykbroker.protocol.fields import Message
    from pykbroker.run_in_thread import RunInThread
    from pykbroker.security.kerberos_client import KerberosLogins
    from pykbroker.security.oauth_login import TokenSource

VERSION = 1
CLIENT_ID = "node-login"
RESPONSE_SIZE_MAX = 1 << 16
NONCE_BYTES = 18
_CLOCK = SystemWallClock()
SESSION_PART = 0.85
"""Part of a session's lifetime after which the next request goes over a new connection with a new login."""


class LoginFailed(OSError):
    """The other node has refused the login; the text is the other node's."""


def with_login(
    open_stream: OpenStream,
    login: NodeLogin,
    secrets: Callable[[int], bytes] = os.urandom,
    now_ms: Callable[[], int] = _CLOCK.now_ms,
    run_in_thread: RunInThread = trio.to_thread.run_sync,
) -> OpenStream:
    """Function that connects by `open_stream` and logs in. It raises LoginFailed, an OSError, if the login fails.

    Args:
        login: mechanism, user and password.
        secrets: random bytes.
        now_ms: the time of day.
        run_in_thread: runs blocking work in a thread.
    """
    name = login.options.get("username") or login.mechanism
    tokens: TokenSource | None = None
    kerberos: KerberosLogins | None = None
    if login.mechanism == "GSSAPI":
        from pykbroker.security.kerberos_client import KerberosLogins

        kerberos = KerberosLogins(login, run_in_thread)
        name = login.options["principal"]
    if login.mechanism == "OAUTHBEARER":
        from pykbroker.security.oauth_login import TokenSource

        tokens = TokenSource(login, now_ms, run_in_thread)

    async def open_and_log_in(host: str, port: int) -> trio.abc.Stream:
        stream = await open_stream(host, port)
        try:
            exchanges = _Exchanges(stream, login.mechanism)
            if kerberos is not None:
                lifetime_ms = await exchanges.log_in_by_kerberos(kerberos, host)
            else:
                lifetime_ms = await exchanges.log_in(login, secrets, tokens, run_in_thread)
        except (ProtocolError, InvalidCredentials, ContextFailed, trio.BrokenResourceError) as error:
            await trio.aclose_forcefully(stream)
            raise LoginFailed(f"logging in as {name} failed: {error}") from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        if lifetime_ms:
            session_ends[stream] = trio.current_time() + lifetime_ms / 1000 * SESSION_PART
        return stream

    return open_and_log_in


class _Exchanges:
    """Requests and responses of one login."""

    def __init__(self, stream: trio.abc.Stream, mechanism: str) -> None:
        self._stream = stream
        self._mechanism = mechanism
        self._number = 0
        self._lifetime_ms = 0

    async def log_in(
        self,
        login: NodeLogin,
        secrets: Callable[[int], bytes],
        tokens: TokenSource | None,
        run_in_thread: RunInThread,
    ) -> int:
        """Logs in; returns the lifetime of the session in ms, 0 if it has no end."""
        await self._choose()
        if self._mechanism == PLAIN:
            user, password = login.options["username"], login.options["password"]
            await self._token(b"\0".join((b"", user.encode(), password.encode())))
        elif self._mechanism == "OAUTHBEARER":
            assert tokens is not None
            answer = await self._token(await tokens.first_message())
            if answer:
                raise LoginFailed(f"the token was refused: {answer.decode(errors='replace')}")
        else:
            from pykbroker.security.scram import TOKEN_AUTH, ScramLogin

            options = login.options
            is_token = options.get(TOKEN_AUTH, "").lower() == "true"
            nonce = secrets(NONCE_BYTES).hex()
            scram = ScramLogin(self._mechanism, options["username"], options["password"], nonce, is_token=is_token)
            answer = await self._token(scram.first())
            # The server says how many times a hash is computed.
            final = await run_in_thread(lambda: scram.final(answer))
            scram.check(await self._token(final))
        return self._lifetime_ms

    async def log_in_by_kerberos(self, kerberos: KerberosLogins, host: str) -> int:
        """Logs in at a host; returns the lifetime of the session in ms, 0 if it has no end."""
        await self._choose()
        login = await kerberos.new(host)
        answer = b""
        while not login.is_done:
            answer = await self._token(await kerberos.evaluate(login, answer))
        return self._lifetime_ms

    async def _choose(self) -> None:
        chosen = await self._exchange(SaslHandshakeRequest(mechanism=self._mechanism), SaslHandshakeResponse)
        if chosen.error_code != ErrorCode.NONE:
            offered = ", ".join(chosen.mechanisms)
            raise LoginFailed(f"{self._mechanism} is not one of the SASL mechanisms that the node offers: {offered}")

    async def _token(self, token: bytes) -> bytes:
        answer = await self._exchange(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code != ErrorCode.NONE:
            raise LoginFailed(answer.error_message or answered_error(answer.error_code).name)
        self._lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)

    async def _exchange(self, message: Message, response: type[Message]) -> Any:
        """Sends a request in version 1, whose header has no tagged fields; returns the response."""
        self._number += 1
        data = request_header(message.KEY, VERSION, self._number, CLIENT_ID, False) + encode(message, VERSION)
        await self._stream.send_all(len(data).to_bytes(4, "big") + data)
        frames = FrameReader(RESPONSE_SIZE_MAX)
        while (frame := frames.next_frame()) is None:
            room = frames.buffer()
            received = await self._stream.receive_some(len(room))
            if not received:
                raise trio.BrokenResourceError("the connection was closed")
            room[: len(received)] = received
            frames.received(len(received))
        correlation_id, position = read_response_header(frame, False)
        if correlation_id != self._number:
            raise ProtocolError(f"the response is to request {correlation_id}, not {self._number}")
        return decode_from(response, VERSION, frame, position)[0]
