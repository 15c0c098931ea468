"""Replies that a connection loop holds back for a moment, to send them one after the other.

A reply to a client on the same machine wakes its process, which often takes the processor from the broker before the
next request is served: with 1,000 clients in one process every second reply did so, and the broker waited for its
processor a third of the time. Replies that follow each other directly find the client awake. So while many connections
are ready, the small replies of a turn of the loop are sent at its end. Nothing is held while the loop waits for
anything: a reply is late by a turn at most, or by the request that ends the turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.network.connection import SocketConnection

READY_MIN: Final = 16
"""Connections that must be ready beside the one that is answered. The broker has enough to do with them until the
clients that are answered together send their next requests."""


class HeldReplies:
    """The replies that one loop holds back; True if there are any.

    Args:
        on_unsent: called with a connection and the bytes of its reply that its socket has not taken.

    Attributes:
        is_open: True while the connection that is served now may leave its reply here.
    """

    __slots__ = ("_on_unsent", "_replies", "is_open")

    def __init__(self, on_unsent: Callable[[SocketConnection, memoryview], None]) -> None:
        self._on_unsent = on_unsent
        self._replies: list[tuple[SocketConnection, bytes | bytearray]] = []
        self.is_open = False

    def __bool__(self) -> bool:
        return bool(self._replies)

    def add(self, connection: SocketConnection, reply: bytes | bytearray) -> None:
        """Holds a reply; its connection sends nothing else and is not served before `send`."""
        self._replies.append((connection, reply))

    def send(self) -> None:
        """Sends all replies, in order. A connection that is gone ends."""
        replies, self._replies = self._replies, []
        for connection, reply in replies:
            try:
                sent = connection.send_now(reply)
            except OSError as error:
                connection.end(error)
                continue
            if sent < len(reply):
                self._on_unsent(connection, memoryview(reply)[sent:])
