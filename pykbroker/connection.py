"""One client: frames in, one request at a time, replies out in order (P-8)."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import trio

from pykbroker.dispatch import dispatch
from pykbroker.errors import CloseConnection
from pykbroker.protocol.errors import EncodeError, ProtocolError
from pykbroker.protocol.framing import FrameReader
from pykbroker.reply import send_chunks

if TYPE_CHECKING:
    from pykbroker.request_context import ConnectionInfo, Services

log = logging.getLogger(__name__)

REQUESTS_PER_TURN = 8
"""Requests of one connection served before other tasks get their turn. Waiting for the socket yields by itself; this
is for a client that always has the next request ready."""


class Connection:
    """Serves one accepted socket until either side closes.

    `run` ends by itself when the client goes, breaks the protocol or sends what must close the connection; `close`
    ends it from outside. `last_used` is the time of trio's clock at the last request, for idle expiry (P-11).
    """

    __slots__ = ("_frame_size_max", "_scope", "_services", "_socket", "info", "last_used")

    def __init__(self, services: Services, connected: socket.socket, info: ConnectionInfo, frame_size_max: int) -> None:
        self._services = services
        self._socket = connected
        self._frame_size_max = frame_size_max
        self._scope = trio.CancelScope()
        self.info = info
        self.last_used = trio.current_time()

    async def run(self) -> None:
        """Serves the connection and closes its socket."""
        try:
            with self._scope:
                await self._serve()
        except (OSError, trio.TooSlowError) as error:
            log.debug("connection from %s is gone: %s", self._client, error)
        except EncodeError:
            log.exception("closing the connection from %s: a response of ours does not fit its version", self._client)
        except (CloseConnection, ProtocolError) as error:
            log.warning("closing the connection from %s: %s", self._client, error)
        except Exception:
            log.exception("closing the connection from %s after an error of ours", self._client)
        finally:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def close(self) -> None:
        """Ends `run` at its next wait."""
        self._scope.cancel()

    @property
    def _client(self) -> str:
        return f"{self.info.client_host}:{self.info.client_port}"

    async def _serve(self) -> None:
        services, connected, info = self._services, self._socket, self.info
        limit = self._frame_size_max
        reader = FrameReader(limit if info.sasl is None else info.sasl.frame_size_max(limit))
        turns = 0
        while True:
            frame = reader.next_frame()
            if frame is None:
                if await self._receive(reader):
                    turns = 0
                if reader.received_nothing:
                    return
                continue
            self.last_used = trio.current_time()
            chunks = await dispatch(services, info, frame)
            if info.sasl is not None:
                reader.frame_size_max = info.sasl.frame_size_max(limit)
            if chunks is not None:
                await send_chunks(connected, chunks)
            if info.close_reason is not None:
                raise CloseConnection(info.close_reason)
            turns += 1
            if turns >= REQUESTS_PER_TURN:
                turns = 0
                await trio.lowlevel.checkpoint()

    async def _receive(self, reader: FrameReader) -> bool:
        """Receives what is there; says whether it had to wait for it."""
        buffer = reader.buffer()
        waited = False
        while True:
            try:
                reader.received(self._socket.recv_into(buffer))
            except BlockingIOError:
                waited = True
                await trio.lowlevel.wait_readable(self._socket)
                continue
            return waited
