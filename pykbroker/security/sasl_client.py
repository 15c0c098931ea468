"""SASL/PLAIN login of a node at another node's SASL listener, before anything else is sent over the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.framing import FrameReader
from pykbroker.protocol.headers import read_response_header, request_header
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker.security.sasl import PLAIN

if TYPE_CHECKING:
    from typing import Any

    from pykbroker.controller.node_client import OpenStream
    from pykbroker.protocol.fields import Message

VERSION = 1
CLIENT_ID = "node-login"
RESPONSE_SIZE_MAX = 1 << 16


class LoginRefused(OSError):
    """The other node has refused the login; the text is the other node's."""


def with_login(open_stream: OpenStream, user: str, password: str) -> OpenStream:
    """Function that connects by `open_stream` and logs in. It raises LoginRefused, an OSError, if the login fails."""

    async def open_and_log_in(host: str, port: int) -> trio.abc.Stream:
        stream = await open_stream(host, port)
        try:
            await _log_in(stream, user, password)
        except (ProtocolError, trio.BrokenResourceError) as error:
            await trio.aclose_forcefully(stream)
            raise LoginRefused(f"logging in as {user} failed: {error}") from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    return open_and_log_in


async def _log_in(stream: trio.abc.Stream, user: str, password: str) -> None:
    chosen = await _exchange(stream, SaslHandshakeRequest(mechanism=PLAIN), SaslHandshakeResponse, 1)
    if chosen.error_code != ErrorCode.NONE:
        raise LoginRefused(f"{PLAIN} is not among the mechanisms there: {', '.join(chosen.mechanisms)}")
    token = b"\0".join((b"", user.encode(), password.encode()))
    answer = await _exchange(stream, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
    if answer.error_code != ErrorCode.NONE:
        raise LoginRefused(answer.error_message or ErrorCode(answer.error_code).name)


async def _exchange(stream: trio.abc.Stream, message: Message, response: type[Message], number: int) -> Any:
    """Sends a request in version 1, whose header has no tagged fields; returns the response."""
    data = request_header(message.KEY, VERSION, number, CLIENT_ID, False) + encode(message, VERSION)
    await stream.send_all(len(data).to_bytes(4, "big") + data)
    frames = FrameReader(RESPONSE_SIZE_MAX)
    while (frame := frames.next_frame()) is None:
        room = frames.buffer()
        received = await stream.receive_some(len(room))
        if not received:
            raise trio.BrokenResourceError("the connection was closed")
        room[: len(received)] = received
        frames.received(len(received))
    correlation_id, position = read_response_header(frame, False)
    if correlation_id != number:
        raise ProtocolError(f"request {correlation_id} is answered, not {number}")
    return decode_from(response, VERSION, frame, position)[0]
