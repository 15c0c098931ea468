"""Sends what gathers for one other broker: all that is there in one request, and one request at a time.

What comes while a request is under way goes into the next one, so that a busy broker needs fewer requests, not more.
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

    async def request(self, message: Any, timeout_ms: int) -> Any:
        """Sends a request and returns the response; raises NodeUnreachable or ProtocolError."""

    async def close(self) -> None:
        """Closes it; the next request opens another."""


Connect = Callable[[int], NodeConnection]
"""Gives a connection to a broker; raises NodeUnreachable if its address is unknown."""

Batch = TypeVar("Batch")


class BrokerSender(Generic[Batch]):
    """The task that sends to one broker.

    Args:
        connect: as `Connect`, for this broker.
        take: what goes into the next request; something false if there is nothing.
        exchange: makes one request and takes its answer; raises NodeUnreachable or ProtocolError.
        failed: told of a batch whose request has failed, and why.
        ended: told that nothing has come for a while and the task ends.
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
        """Something is to be sent."""
        self._wake.set()

    def abandon_attempt(self) -> None:
        """Nothing is to be expected of the broker: the request that is under way fails."""
        self._attempt.cancel()

    async def run(self) -> None:
        """Sends until nothing comes for a while."""
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
        """Gives the connection if it can be used again."""
        try:
            with trio.CancelScope() as self._attempt:
                if connection is None:
                    connection = self._connect()
                await self._exchange(connection, batch)
                return connection
        except (NodeUnreachable, ProtocolError) as error:
            self._failed(batch, str(error))
            return None
        self._failed(batch, "the broker is not there any more")
        return None
