"""One connection of a client: serves its requests one after another and sends the replies in the same order (P-8).

Produce requests with acks=all are an exception: the next one begins while the previous one waits for followers. So the
five requests of a producer are replicated together. Apache Kafka begins the next request after the previous reply.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

import trio

from pykbroker.errors import CloseConnection
from pykbroker.network.dispatch import UnfinishedReply, dispatch
from pykbroker.network.reply import SEND_TIMEOUT_S, Connected, send_chunks
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.errors import FrameTooLarge, ProtocolError
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT, FrameReader

if TYPE_CHECKING:
    from pykbroker.network.request_memory import RequestMemory
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo

log = logging.getLogger(__name__)

REQUESTS_PER_TURN = 8
TURN_S = 0.01
"""Requests of one connection, and seconds spent on them, before other tasks get their turn. A wait for the socket
yields anyway; these limits are for clients whose next request is always there already."""

UNFINISHED_MAX = 16
"""Most produce requests of one connection that wait for followers at a time; a producer sends five by default."""


class Connection:
    """Serves one accepted socket or stream until either side closes.

    `run` returns when the client disconnects, breaks the protocol or sends a request that must close the connection;
    `close` ends it from outside. `last_used` is the time, in seconds of trio's clock, at which bytes were last
    received; idle connections expire by it (P-11), but not while `is_sending`, because sending has its own time limit.
    """

    __slots__ = (
        "_close_reason",
        "_connected",
        "_memory",
        "_reader",
        "_scope",
        "_services",
        "info",
        "is_sending",
        "last_used",
    )

    def __init__(
        self,
        services: NodeServices,
        connected: Connected,
        info: ConnectionInfo,
        frame_size_max: int,
        memory: RequestMemory,
    ) -> None:
        self._services = services
        self._connected = connected
        self._reader = FrameReader(frame_size_max)
        self._memory = memory
        self._scope = trio.CancelScope()
        self._close_reason: str | None = None
        self.info = info
        self.is_sending = False
        self.last_used = trio.current_time()

    async def run(self) -> None:
        """Serves the connection and closes it."""
        try:
            with self._scope:
                await self._serve()
            if self._close_reason is not None:
                log.warning("closing the connection from %s: %s", self._client, self._close_reason)
        except trio.TooSlowError:
            log.warning("closing the connection from %s: it reads no reply for %.0f s", self._client, SEND_TIMEOUT_S)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("connection from %s is gone: %s", self._client, error)
        except FrameTooLarge as error:
            log.warning("closing the connection from %s: %s%s", self._client, error, recognized_protocol(self._reader))
        except (CloseConnection, ProtocolError) as error:
            log.warning("closing the connection from %s: %s", self._client, error)
        except Exception:
            log.exception("closing the connection from %s after an error of ours", self._client)
        finally:
            self._memory.release(self)
            if self.info.when_closed is not None:
                self.info.when_closed()
            if isinstance(self._connected, socket.socket):
                trio.lowlevel.notify_closing(self._connected)
                self._connected.close()
            else:
                await trio.aclose_forcefully(self._connected)

    def close(self, reason: str | None = None) -> None:
        """Ends `run` at its next wait; the reason, if any, is logged."""
        self._close_reason = reason
        self._scope.cancel()

    def shrink(self) -> None:
        """Releases the receive buffer of an idle connection, except for its smallest size."""
        self._reader.shrink()

    @property
    def _client(self) -> str:
        return f"{self.info.client_host}:{self.info.client_port}"

    async def _serve(self) -> None:
        services, connected, info, reader = self._services, self._connected, self.info, self._reader
        limit = reader.frame_size_max
        if info.sasl is not None:
            reader.frame_size_max = info.sasl.frame_size_max(limit)
        turns = 0
        # Replies that wait for other brokers, in order; a producer's next requests begin meanwhile.
        unfinished: deque[UnfinishedReply] = deque()
        may_be_unfinished = isinstance(connected, socket.socket)
        while True:
            frame = reader.next_frame()
            if unfinished and (frame is None or len(unfinished) == UNFINISHED_MAX or not _is_produce(frame)):
                if frame is not None or not self._receive_now(reader):
                    await self._finish(unfinished, all_of_them=frame is not None)
                if frame is None:
                    continue
            if frame is None:
                if reader.announced > BUFFER_SIZE_KEPT and (size := reader.size_to_grow_to):
                    await self._memory.reserve(self, size)
                if await self._receive(reader):
                    turns = 0
                if reader.received_nothing:
                    return
                continue
            chunks = await dispatch(services, info, frame, may_be_unfinished=may_be_unfinished)
            if isinstance(chunks, UnfinishedReply):
                unfinished.append(chunks)
                chunks = None
            elif unfinished:
                await self._finish(unfinished, all_of_them=True)
            if info.sasl is not None:
                reader.frame_size_max = info.sasl.frame_size_max(limit)
            if chunks is not None:
                self.is_sending = True
                await send_chunks(connected, chunks, self._memory)
                self.is_sending = False
            if info.close_reason is not None:
                raise CloseConnection(info.close_reason)
            if reader.announced > BUFFER_SIZE_KEPT:
                reader.announced = 0
                self._memory.release(self)
            turns += 1
            # `last_used` is the beginning of this turn: the last receive, or the last time that this task yielded.
            if turns >= REQUESTS_PER_TURN or trio.current_time() - self.last_used > TURN_S:
                turns = 0
                await trio.lowlevel.checkpoint()
                self.last_used = trio.current_time()

    async def _finish(self, unfinished: deque[UnfinishedReply], *, all_of_them: bool) -> None:
        """Waits for the oldest unfinished reply and sends it, or does so for all of them in order."""
        while unfinished:
            chunks = await unfinished.popleft().finish()
            self.is_sending = True
            await send_chunks(self._connected, chunks, self._memory)
            self.is_sending = False
            self.last_used = trio.current_time()
            if not all_of_them:
                return

    def _receive_now(self, reader: FrameReader) -> bool:
        """Receives bytes without waiting; True if there were any. Large frames are left to `_receive`."""
        assert isinstance(self._connected, socket.socket)
        if reader.announced > BUFFER_SIZE_KEPT:
            return False
        try:
            count = self._connected.recv_into(reader.buffer())
        except BlockingIOError:
            return False
        if count == 0:
            # The next receive finds the end of the stream again, after all replies were sent.
            return False
        reader.received(count)
        return True

    async def _receive(self, reader: FrameReader) -> bool:
        """Receives bytes, or the end of the stream; True if it had to wait for them."""
        connected, waited = self._connected, False
        if not isinstance(connected, socket.socket):
            await self._receive_from(connected, reader)
            return True
        while True:
            try:
                reader.received(connected.recv_into(reader.buffer()))
            except BlockingIOError:
                waited = True
                await trio.lowlevel.wait_readable(connected)
                continue
            self.last_used = trio.current_time()
            return waited

    async def _receive_from(self, stream: trio.abc.Stream, reader: FrameReader) -> None:
        room = reader.buffer()
        received = await stream.receive_some(len(room))
        room[: len(received)] = received
        reader.received(len(received))
        self.last_used = trio.current_time()


def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == ApiKey.PRODUCE


_OTHER_PROTOCOLS = (
    (b"\x16\x03", "TLS; this listener has no encryption: clients need security.protocol=PLAINTEXT or SASL_PLAINTEXT"),
    (b"SSH-", "SSH"),
    (b"PRI * HTTP/2", "HTTP/2; this port speaks Kafka's protocol alone"),
    *(
        (method + b" ", "HTTP; this port speaks Kafka's protocol alone")
        for method in (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"CONNECT", b"TRACE", b"PATCH")
    ),
)


def recognized_protocol(reader: FrameReader) -> str:
    """Text for the log that names the protocol whose first bytes were read as a frame size; "" for an unknown one."""
    first = reader.first_bytes
    return next((f" (looks like {name})" for start, name in _OTHER_PROTOCOLS if first.startswith(start)), "")
