"""A connection served over a socket pair, with services that a test chooses."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio

from pykbroker.network.connection import SocketConnection
from pykbroker.network.connection_loop import ConnectionLoop
from pykbroker.network.request_memory import RequestMemory
from pykbroker.network.tls_connection import TlsConnection
from pykbroker.protocol.codec import decode, encode
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from pykbroker.security.tls.listener_tls import ListenerTls

FRAME_SIZE_MAX = 1 << 20
MEMORY_MAX = 1 << 30


class Client:
    """The client's end of a socket pair."""

    def __init__(self, stream: trio.abc.Stream, connection: SocketConnection) -> None:
        # A socket's stream, or one of TLS over it.
        self.stream: Any = stream
        self.connection = connection
        self._received = b""

    async def send_frame(self, frame: bytes) -> None:
        await self.stream.send_all(len(frame).to_bytes(4, "big") + frame)

    async def request(self, key: int, version: int, body: bytes, *, correlation_id: int = 7, flexible: bool) -> None:
        """Sends a request with client id ``test``."""
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + b"\0\4test"
        await self.send_frame(header + (b"\0" if flexible else b"") + body)

    async def frame(self) -> bytes | None:
        """The next frame that the broker sends, None when it closes."""
        while True:
            if len(self._received) >= 4:
                size = int.from_bytes(self._received[:4], "big")
                if len(self._received) >= 4 + size:
                    frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
                    return frame
            try:
                received = await self.stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not received:
                return None
            self._received += received

    async def call(self, request: Any, version: int, response_type: type[Any]) -> Any:
        """Sends a message and reads the answer; None when the broker closes instead."""
        flexible = version in request.FLEXIBLE_VERSIONS
        await self.request(request.KEY, version, encode(request, version), flexible=flexible)
        frame = await self.frame()
        if frame is None:
            return None
        has_tags = flexible and request.KEY != 18
        assert frame[:4] == b"\0\0\0\7"
        return decode(response_type, version, frame[5 if has_tags else 4 :])


@asynccontextmanager
async def served(
    services: Any = None,
    *,
    sasl: Any = None,
    memory: RequestMemory | None = None,
    tls: ListenerTls | None = None,
    kind: ListenerKind = ListenerKind.BROKER,
) -> AsyncIterator[Client]:
    """A client whose other end is served until the block ends; with `tls` its stream is not encrypted yet."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    name = "PLAINTEXT" if tls is None else "SSL"
    info = ConnectionInfo(name, ("127.0.0.1", 50000), ("127.0.0.1", 9092), sasl, listener_kind=kind)
    given: Any = services or SimpleNamespace(quotas=QuotaSwitch())
    loop = ConnectionLoop()
    connection: SocketConnection
    shared = (
        given,
        ours,
        info,
        FRAME_SIZE_MAX,
        memory or RequestMemory(MEMORY_MAX),
        lambda ended: loop.remove(connection),
    )
    connection = SocketConnection(*shared) if tls is None else TlsConnection(*shared, tls=tls)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    async with trio.open_nursery() as nursery, stream:
        nursery.start_soon(loop.run)
        loop.add(connection)
        yield Client(stream, connection)
        nursery.cancel_scope.cancel()
    connection.end()
