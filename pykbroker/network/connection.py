"""One connection of a client: serves its requests one after another and sends the replies in the same order (P-8).

Produce requests with acks=all are an exception: the next one begins while the previous one waits for followers. So the
five requests of a producer are replicated together. Apache Kafka begins the next request after the previous reply.

`SocketConnection` is served in turns by a `ConnectionLoop`. `stream_connection` has the other kind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import trio

from pykbroker.completion import Completion
from pykbroker.errors import CloseConnection
from pykbroker.network.dispatch import dispatch
from pykbroker.network.other_protocols import recognized_protocol
from pykbroker.network.reply import SEND_TIMEOUT_S, Connected, send_chunks
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.errors import FrameTooLarge, ProtocolError
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.network.request_memory import RequestMemory
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo, UnfinishedReply

log = logging.getLogger(__name__)

REQUESTS_PER_TURN = 8
TURN_S = 0.01
"""Requests of one connection, and seconds spent on them, before other connections are served."""

UNFINISHED_MAX = 16
"""Largest number of produce requests of one connection that wait for followers; a producer sends five by default."""


SENT_WITHOUT_COROUTINE_MAX = 1 << 14
"""Bytes of a reply up to which it is sent without a coroutine; longer ones may have to wait for the client."""


class Connection:
    """The part of a connection that does not depend on its transport.

    It ends when the client disconnects, breaks the protocol or sends a request that must close the connection; `close`
    ends it from outside.

    Attributes:
        last_used: time, in seconds of trio's clock, at which bytes were last received. Idle connections expire by it
            (P-11), but not while `is_sending`, because sending has its own time limit.
        served_by: cancel scope of the task that waits for a request of this connection; None while no task does.

    Args:
        services: services of the handlers.
        connected: the transport.
        info: the client.
        frame_size_max: largest frame in bytes, `socket.request.max.bytes`.
        memory: the memory that large requests of all connections share.
        on_end: called once, when the connection has ended.
    """

    __slots__ = (
        "_close_reason",
        "_connected",
        "_frame_size_max",
        "_memory",
        "_on_end",
        "_reader",
        "_services",
        "_unfinished",
        "has_ended",
        "info",
        "is_sending",
        "last_used",
        "served_by",
    )

    # The function that sends a reply; `TlsConnection` has a method in its place.
    _send_chunks = staticmethod(send_chunks)

    def __init__(
        self,
        services: NodeServices,
        connected: Connected,
        info: ConnectionInfo,
        frame_size_max: int,
        memory: RequestMemory,
        on_end: Callable[[Connection], None],
    ) -> None:
        self._services = services
        self._connected = connected
        self._frame_size_max = frame_size_max
        self._memory = memory
        self._on_end = on_end
        limit = frame_size_max if info.sasl is None else info.sasl.frame_size_max(frame_size_max)
        self._reader = FrameReader(limit)
        self.served_by: trio.CancelScope | None = None
        self._close_reason: str | None = None
        # Replies that wait for other brokers, in order; a producer's next requests begin meanwhile.
        self._unfinished: deque[UnfinishedReply] = deque()
        self.info = info
        self.is_sending = False
        self.has_ended = False
        self.last_used = trio.current_time()

    @property
    def is_authenticated(self) -> bool:
        """True once the client has authenticated, and on a listener without SASL.

        True also while the response to a failed login is sent.
        """
        return self.info.sasl is None or self.info.sasl.is_over

    def lateness(self, now: float) -> str | None:
        """Reason to close a connection that takes too long to authenticate; None if it is in time.

        Args:
            now: the time on trio's clock.
        """
        return None

    def close(self, reason: str | None = None) -> None:
        """Ends the connection, at the next wait of the task that serves it; the reason, if any, is logged."""
        self._close_reason = reason
        if self.served_by is not None:
            self.served_by.cancel()
        else:
            self.end()

    def shrink(self) -> None:
        """Releases the receive buffer of an idle connection, except for its smallest size."""
        self._reader.shrink()

    def end(self, error: Exception | None = None) -> None:
        """Closes the transport, once, and logs why: an error, or the reason given to `close`."""
        if self.has_ended:
            return
        self.has_ended = True
        self._log_end(error)
        self._memory.release(self)
        self.info.call_when_closed()
        self._on_end(self)

    def _log_end(self, error: Exception | None) -> None:
        client = f"{self.info.client_host}:{self.info.client_port}"
        if error is None:
            if self._close_reason is not None:
                log.warning("closing the connection from %s: %s", client, self._close_reason)
        elif isinstance(error, trio.TooSlowError):
            log.warning("closing the connection from %s: it reads no reply for %.0f s", client, SEND_TIMEOUT_S)
        elif isinstance(error, (OSError, trio.BrokenResourceError, trio.ClosedResourceError)):
            log.debug("connection from %s is gone: %s", client, error)
        elif isinstance(error, FrameTooLarge):
            log.warning("closing the connection from %s: %s%s", client, error, recognized_protocol(self._reader))
        elif isinstance(error, (CloseConnection, ProtocolError)):
            log.warning("closing the connection from %s: %s", client, error)
        else:
            log.error("closing the connection from %s after an internal error", client, exc_info=error)

    async def _serve_frame(self, frame: memoryview, *, may_be_unfinished: bool) -> None:
        """Serves one request and sends its reply, or notes the reply as unfinished."""
        info = self.info
        repeated = info.repeated_produce
        reply: list[Any] | UnfinishedReply | None = None if repeated is None else repeated.serve(info, frame)
        if reply is None:
            reply = await dispatch(self._services, info, frame, may_be_unfinished=may_be_unfinished)
        chunks: list[Any] | None = None
        if reply is None or isinstance(reply, list):
            chunks = reply
            if self._unfinished:
                await self._send_unfinished(all_of_them=True)
        elif may_be_unfinished:
            self._unfinished.append(reply)
        else:
            chunks = await reply.finish()
        if info.sasl is not None:
            self._reader.frame_size_max = info.sasl.frame_size_max(self._frame_size_max)
        try:
            is_sent = chunks is None or (len(chunks) == 1 and info.timed is None and self._sends_at_once(chunks))
        finally:
            # The follow-up runs even if the client is gone, and before a wait for the socket to take the reply.
            if info.follow_up is not None:
                info.run_follow_up()
        if not is_sent:
            assert chunks is not None
            self.is_sending = True
            if info.timed is None:
                await self._send_chunks(self._connected, chunks, self._memory)
            else:
                await self._send_timed(chunks)
            self.is_sending = False
        if info.close_reason is not None:
            raise CloseConnection(info.close_reason)
        if self._reader.announced > BUFFER_SIZE_KEPT:
            self._reader.announced = 0
            self._memory.release(self)
        if info.muted_until:
            await self._stay_muted()

    def _sends_at_once(self, chunks: list[Any]) -> bool:
        """Sends the only chunk of a reply without waiting; False if bytes are left, for `_send_chunks` of `chunks`.

        Nearly every small reply fits into the socket, and needs no coroutine.
        """
        raise NotImplementedError

    async def _send_timed(self, chunks: list[Any]) -> None:
        """Sends a reply, and counts the time for the quota of its client."""
        timer, self.info.timed = self.info.timed, None
        assert timer is not None, "the caller has checked it"
        await timer.timed(self._send_chunks(self._connected, chunks, self._memory))
        timer.count_rest()

    async def _stay_muted(self) -> None:
        """Waits until the throttle time of the client is over; its next requests are not read meanwhile (KIP-219)."""
        until, self.info.muted_until = self.info.muted_until, 0.0
        if until > trio.current_time():
            await Completion().wait(until)

    async def _send_unfinished(self, *, all_of_them: bool) -> None:
        """Waits for the oldest unfinished reply and sends it, or all of them one after another."""
        while self._unfinished:
            chunks = await self._unfinished.popleft().finish()
            self.is_sending = True
            await self._send_chunks(self._connected, chunks, self._memory)
            self.is_sending = False
            self.last_used = trio.current_time()
            if not all_of_them:
                return

    async def _reserve(self) -> None:
        """Waits for memory if the frame that is being received is large."""
        reader = self._reader
        if reader.announced > BUFFER_SIZE_KEPT and (size := reader.size_to_grow_to):
            await self._memory.reserve(self, size)


class Suspended(Protocol):
    """A turn of a connection that waits without a task."""

    @property
    def completion(self) -> Completion:
        """The end of its wait."""

    def close(self) -> None:
        """Ends the turn where it waits."""


class Held(Protocol):
    """The replies that a loop holds back; True if there are any."""

    @property
    def is_open(self) -> bool:
        """True while the connection that is served now may leave its reply here."""

    def __bool__(self) -> bool: ...

    def add(self, connection: SocketConnection, reply: bytes | bytearray) -> None:
        """Holds a reply; its connection sends nothing else and is not served before `send`."""

    def send(self) -> None:
        """Sends all replies, in order."""


class SocketConnection(Connection):
    """A connection over a non-blocking socket, which a `ConnectionLoop` serves in turns.

    Attributes:
        suspended: the turn that waits without a task; None if no turn does.
        held: the replies that its loop holds back; None before it is added to one.
    """

    __slots__ = ("_now", "_socket", "held", "suspended")

    def __init__(
        self,
        services: NodeServices,
        connected: socket.socket,
        info: ConnectionInfo,
        frame_size_max: int,
        memory: RequestMemory,
        on_end: Callable[[Connection], None],
    ) -> None:
        super().__init__(services, connected, info, frame_size_max, memory, on_end)
        self._socket = connected
        self._now = 0.0
        self.suspended: Suspended | None = None
        self.held: Held | None = None

    def fileno(self) -> int:
        """Descriptor of the socket; -1 when the connection has ended."""
        return self._socket.fileno()

    def end(self, error: Exception | None = None) -> None:
        if self.held and not self.has_ended:
            self.held.send()
        # The connection has ended already if its own reply was among them and could not be sent.
        if not self.has_ended:
            super().end(error)
            if self.suspended is not None:
                self.suspended.close()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def turn(self, now: float) -> bool:
        """Receives what has arrived and serves whole requests, up to a limit; ends the connection after an error.

        Args:
            now: the time on trio's clock, which the loop reads once for many connections.

        Returns:
            True if requests are left that were received already. False if more bytes are needed, or if the connection
            has ended.
        """
        self._now = now
        try:
            return await self._serve_turn()
        except Exception as error:
            self.end(error)
            return False

    def continue_at(self, now: float) -> None:
        """Tells the suspended turn the time at which it continues."""
        self._now = now

    async def _serve_turn(self) -> bool:
        reader, unfinished = self._reader, self._unfinished
        count = 0
        if not unfinished and reader.is_empty:
            # Nearly always one whole request has arrived, and nothing behind it.
            if not self._receive(self._now if self.served_by is None else trio.current_time()):
                return False
            count = 1
            frame = reader.next_frame()
            if frame is not None:
                await self._serve_frame(frame, may_be_unfinished=True)
                if reader.is_drained and not unfinished:
                    return False
        return await self._serve_several(count)

    async def _serve_several(self, count: int) -> bool:
        """Serves further requests of a turn, which has served or received `count`; sends replies that are finished."""
        reader, unfinished = self._reader, self._unfinished
        ends = time.perf_counter() + TURN_S
        while True:
            frame = reader.next_frame()
            if unfinished and (frame is None or len(unfinished) == UNFINISHED_MAX or not _is_produce(frame)):
                if frame is not None:
                    await self._send_unfinished(all_of_them=True)
                elif not self._receive_small():
                    await self._send_unfinished(all_of_them=False)
                if frame is None:
                    continue
            if frame is None:
                # The last receive did not fill the buffer: nothing more has arrived.
                if count and not reader.is_full:
                    return False
                if reader.announced > BUFFER_SIZE_KEPT:
                    await self._reserve()
                # `_now` is the time at the beginning of the turn: too old for a task that has waited since.
                if not self._receive(self._now if self.served_by is None else trio.current_time()):
                    return False
            else:
                await self._serve_frame(frame, may_be_unfinished=True)
            count += 1
            if count > REQUESTS_PER_TURN or time.perf_counter() > ends:
                if not unfinished:
                    return True
                await trio.lowlevel.checkpoint()
                count, ends = 0, time.perf_counter() + TURN_S

    def _sends_at_once(self, chunks: list[Any]) -> bool:
        data = chunks[0]
        if len(data) > SENT_WITHOUT_COROUTINE_MAX:
            return False
        held = self.held
        if held is not None and held.is_open and self._ends_turn:
            held.add(self, data)
            return True
        sent = self.send_now(data)
        if sent == len(data):
            return True
        if sent:
            chunks[0] = memoryview(data)[sent:]
        return False

    @property
    def _ends_turn(self) -> bool:
        """True if the turn ends with the reply that is to be sent now, and no work follows that may take long."""
        info = self.info
        is_last = self._reader.is_drained and info.follow_up is None
        return is_last and not info.muted_until and info.close_reason is None

    def send_now(self, data: bytes | bytearray) -> int:
        """Sends as many bytes as the socket takes now; returns their number. Raises OSError."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def send_rest(self, rest: memoryview) -> bool:
        """Sends the rest of a reply of a turn that is over; then the loop may give the next turn, as after `turn`."""
        self.is_sending = True
        try:
            await self._send_chunks(self._connected, [rest], self._memory)
        except Exception as error:
            self.end(error)
            return False
        self.is_sending = False
        return True

    def _receive(self, now: float) -> bool:
        """Receives bytes without waiting; False if there were none. Ends the connection at the end of the stream."""
        try:
            count = self._socket.recv_into(self._reader.buffer())
        except BlockingIOError:
            return False
        if count == 0:
            self.end()
            return False
        self._reader.received(count)
        self.last_used = now
        return True

    def _receive_small(self) -> bool:
        """Receives bytes while replies are unfinished. Large frames and the end of the stream are left for later."""
        if self._reader.announced > BUFFER_SIZE_KEPT:
            return False
        try:
            count = self._socket.recv_into(self._reader.buffer())
        except BlockingIOError:
            return False
        if count == 0:
            return False
        self._reader.received(count)
        return True


def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == ApiKey.PRODUCE
