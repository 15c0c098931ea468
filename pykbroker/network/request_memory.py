"""A bound for what large requests hold in memory while they are received, over all connections; and replies likewise.

Kafka's `queued.max.request.bytes` stops reading from sockets while requests of so many bytes are in the broker; its
default is no bound, and a few dozen clients can then fill any heap. Here the default is a quarter of the machine's
memory. Frames up to `BUFFER_SIZE_KEPT` are not counted: what they hold is bounded by the number of connections.

A frame reserves its whole size when its first bytes are there, so whoever holds a reservation can finish: there is no
deadlock. Whoever holds one for long while others wait is disconnected: a client that sends a byte a second must not
keep the others out.

A reply is in memory until its client has read it, but for records, which stay in their files. Many clients that ask
for much metadata and read nothing are cut off when their replies reach the same bound.
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

PATIENCE_S = 10.0
"""Seconds that a request may hold its memory while others wait for memory; then its connection may be closed."""

SHARE_OF_MEMORY = 4


def limit_bytes(config: BrokerConfig) -> int:
    """The bound that applies: as configured, else a share of the machine's memory, never less than one frame."""
    if config.sockets.queued_max_request_bytes > 0:
        return config.sockets.queued_max_request_bytes
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(config.sockets.request_max_bytes, machine // SHARE_OF_MEMORY)


class Holder(Protocol):
    """A connection that has reserved memory, and is closed when it holds it for too long while others wait."""

    def close(self, reason: str) -> None: ...


class RequestMemory:
    """Reservations of connections for the one large frame that each may be receiving or working on."""

    __slots__ = ("_freed", "_held", "limit_bytes", "reply_bytes", "reserved_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self.reply_bytes = 0
        # In the order of their reservations, with the time of each.
        self._held: dict[Holder, tuple[int, float]] = {}
        self._freed = trio.Event()

    async def reserve(self, connection: Holder, size_bytes: int) -> None:
        """Waits until there is memory; as in Kafka the last frame that is let in may pass the limit."""
        if connection in self._held:
            return
        while self.reserved_bytes >= self.limit_bytes:
            with trio.move_on_after(PATIENCE_S):
                await self._freed.wait()
                continue
            self._close_slowest()
        self.reserved_bytes += size_bytes
        self._held[connection] = size_bytes, trio.current_time()

    def release(self, connection: Holder) -> None:
        """The frame is done with; nothing happens if there was no reservation."""
        held = self._held.pop(connection, None)
        if held is not None:
            self.reserved_bytes -= held[0]
            self._freed.set()
            self._freed = trio.Event()

    @contextmanager
    def reply_waiting(self, size_bytes: int) -> Iterator[None]:
        """While so many bytes of a reply wait for their client.

        Raises:
            CloseConnection: too many are waiting already.
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
        if seconds >= PATIENCE_S:
            connection.close(
                f"its request of {size_bytes} bytes is in the way of others since {seconds:.0f} s "
                f"(queued.max.request.bytes={self.limit_bytes})"
            )
