"""A connection over a stream of trio, with a task of its own: the network of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from pykbroker.network.connection import REQUESTS_PER_TURN, TURN_S, Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.network.request_memory import RequestMemory
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo


class StreamConnection(Connection):
    """One connection; `run` serves it.

    If the stream has a method `send_at_once`, which sends all bytes without waiting, or returns False and sends none,
    replies of one chunk need no coroutine.
    """

    __slots__ = ("_send_at_once", "_stream")

    def __init__(
        self,
        services: NodeServices,
        connected: trio.abc.Stream,
        info: ConnectionInfo,
        frame_size_max: int,
        memory: RequestMemory,
        on_end: Callable[[Connection], None],
    ) -> None:
        super().__init__(services, connected, info, frame_size_max, memory, on_end)
        self._stream = connected
        self._send_at_once: Callable[[Any], bool] | None = getattr(connected, "send_at_once", None)
        self.served_by = trio.CancelScope()

    async def run(self) -> None:
        """Serves the connection until it ends, and closes the stream."""
        assert self.served_by is not None
        try:
            with self.served_by:
                await self._serve()
        except Exception as error:
            self.end(error)
        finally:
            self.end()
            await trio.aclose_forcefully(self._stream)

    def _sends_at_once(self, chunks: list[Any]) -> bool:
        return self._send_at_once is not None and self._send_at_once(chunks[0])

    async def _serve(self) -> None:
        reader, count = self._reader, 0
        while True:
            frame = reader.next_frame()
            if frame is None:
                await self._reserve()
                room = reader.buffer()
                received = await self._stream.receive_some(len(room))
                if not received:
                    return
                room[: len(received)] = received
                reader.received(len(received))
                self.last_used = trio.current_time()
                count = 0
                continue
            await self._serve_frame(frame, may_be_unfinished=False)
            count += 1
            if count >= REQUESTS_PER_TURN or trio.current_time() - self.last_used > TURN_S:
                count = 0
                await trio.lowlevel.checkpoint()
                self.last_used = trio.current_time()
