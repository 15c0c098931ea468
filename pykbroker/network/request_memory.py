"""Limit on the memory of large requests over all connections, and the same limit on replies that wait for clients.

With Kafka's `queued.max.request.bytes` a broker stops reading from sockets while it has requests of that many bytes.
Its default is no limit, so a few dozen clients can fill any heap; here the default is a quarter of the machine's
memory. Frames up to `BUFFER_SIZE_KEPT` are not counted, because the number of connections limits their memory.

A frame reserves its whole size when its first bytes arrive. A connection with a reservation can therefore always finish
its request: there is no deadlock. A connection that keeps its reservation for more than `RESERVATION_TIMEOUT_S` while
others wait is closed: a client that sends a byte a second must not block the others.

A reply stays in memory until its client has read it, except for records, which stay in their files. Clients that ask
for large metadata and do not read it are disconnected when such replies reach the limit.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import trio

from pykbroker.errors import CloseConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykbroker.config.broker_config import BrokerConfig

RESERVATION_TIMEOUT_S = 10.0
"""Seconds that a request may hold its memory while others wait for memory; then its connection may be closed."""

SHARE_OF_MEMORY = 4


def limit_bytes(config: BrokerConfig) -> int:
    """The limit in bytes: `queued.max.request.bytes`, else a share of the machine's memory but at least one frame."""
    if config.sockets.queued_max_request_bytes > 0:
        return config.sockets.queued_max_request_bytes
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(config.sockets.request_max_bytes, machine // SHARE_OF_MEMORY)


class Holder(Protocol):
    """A connection that may be closed when it keeps its reservation for too long while others wait."""

    def close(self, reason: str) -> None: ...


class RequestMemory:
    """Reservations of memory: at most one for each connection, for the large frame that it receives or serves."""

    __slots__ = ("_freed", "_held", "limit_bytes", "reply_bytes", "reserved_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self.reply_bytes = 0
        # Size in bytes and time in seconds of each reservation, oldest first.
        self._held: dict[Holder, tuple[int, float]] = {}
        self._freed = trio.Event()

    async def reserve(self, connection: Holder, size_bytes: int) -> None:
        """Waits until reservations are below the limit, then reserves; as in Kafka the last one may exceed it."""
        if connection in self._held:
            return
        while self.reserved_bytes >= self.limit_bytes:
            with trio.move_on_after(RESERVATION_TIMEOUT_S):
                await self._freed.wait()
                continue
            self._close_slowest()
        self.reserved_bytes += size_bytes
        self._held[connection] = size_bytes, trio.current_time()

    def release(self, connection: Holder) -> None:
        """Releases the connection's reservation, if it has one."""
        held = self._held.pop(connection, None)
        if held is not None:
            self.reserved_bytes -= held[0]
            self._freed.set()
            self._freed = trio.Event()

    @contextmanager
    def reply_waiting(self, size_bytes: int) -> Iterator[None]:
        """Counts bytes of a reply that wait for their client, for the duration of a `with` block.

        Raises:
            CloseConnection: the waiting bytes have reached the limit already.
        """
        if self.reply_bytes >= self.limit_bytes:
            raise CloseConnection(
                f"{self.reply_bytes} bytes of replies wait for clients to read them, and this one does not "
                f"(queued.max.request.bytes={self.limit_bytes})"
            )
        self.reply_bytes += size_bytes
        try:
            yield
        finally:
            self.reply_bytes -= size_bytes

    def _close_slowest(self) -> None:
        connection, (size_bytes, since) = next(iter(self._held.items()))
        seconds = trio.current_time() - since
        if seconds >= RESERVATION_TIMEOUT_S:
            connection.close(
                f"its request of {size_bytes} bytes has kept others waiting for {seconds:.0f} s "
                f"(queued.max.request.bytes={self.limit_bytes})"
            )
