"""Sends batches to one other broker: one request at a time, each with everything that is waiting.

What is added while a request is in flight goes into the next one, so that a busy broker needs fewer requests, not more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.protocol.errors import ProtocolError

IDLE_SECONDS = 60.0
"""Time, in seconds, after which a connection to another broker that has nothing to send is closed."""


class NodeConnection(Protocol):
    """A connection to another broker."""

    async def request(self, message: Any, timeout_ms: int, *, is_long: bool = False) -> Any:
        """Sends a request and returns the response.

        A long request, about thousands of topics, is encoded in turns with other tasks.

        Raises:
            NodeUnreachable, ProtocolError: the request failed.
        """

    async def close(self) -> None:
        """Closes the connection; the next request opens another."""


Connect = Callable[[int], NodeConnection]
"""Returns a connection to the broker with this id; raises NodeUnreachable if its address is unknown."""

Batch = TypeVar("Batch")


class BrokerSender(Generic[Batch]):
    """The task that sends to one broker.

    Args:
        connect: as `Connect`, for this broker.
        take: returns the batch for the next request; a false value if there is nothing to send.
        exchange: sends one request and handles its response; raises NodeUnreachable or ProtocolError.
        failed: called with a batch whose request has failed, and the error's text.
        ended: called when the task ends, which it does after `IDLE_SECONDS` without a batch.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], NodeConnection],
        take: Callable[[], Batch],
        exchange: Callable[[NodeConnection, Batch], Awaitable[None]],
        failed: Callable[[Batch, str], None],
        ended: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._take = take
        self._exchange = exchange
        self._failed = failed
        self._ended = ended
        self._wake = trio.Event()
        self._attempt = trio.CancelScope()

    def wake(self) -> None:
        """Makes `run` call `take` again, because there is something to send."""
        self._wake.set()

    def abandon_attempt(self) -> None:
        """Cancels the request in flight, which fails, as the broker will not respond."""
        self._attempt.cancel()

    async def run(self) -> None:
        """Sends until there has been no batch for `IDLE_SECONDS`."""
        connection: NodeConnection | None = None
        try:
            while True:
                self._wake = trio.Event()
                batch = self._take()
                if batch:
                    connection = await self._send(batch, connection)
                    continue
                with trio.move_on_after(IDLE_SECONDS):
                    await self._wake.wait()
                if not self._wake.is_set():
                    break
        finally:
            self._ended()
            if connection is not None:
                await connection.close()

    async def _send(self, batch: Batch, connection: NodeConnection | None) -> NodeConnection | None:
        """Sends one batch; returns the connection if it can be used again, None if the request failed."""
        try:
            with trio.CancelScope() as self._attempt:
                if connection is None:
                    connection = self._connect()
                await self._exchange(connection, batch)
                return connection
        except (NodeUnreachable, ProtocolError) as error:
            self._failed(batch, str(error))
            return None
        self._failed(batch, "the broker is no longer live")
        return None
