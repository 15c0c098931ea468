"""Interface of the bound socket that a listener accepts from: a real socket, or one of the simulation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from pykbroker.config.listener_addresses import ListenerAddress


class ListeningSocket(Protocol):
    """The part of a bound, non-blocking socket from which `Listener` accepts.

    An implementation other than `socket.socket` accepts `trio.abc.Stream`s and has a method `wait_readable`, which
    returns when `accept` may succeed.
    """

    def listen(self, backlog: int, /) -> None: ...

    def accept(self) -> tuple[Any, Any]:
        """(connection, address of the client as (host, port, ...)). Raises BlockingIOError when none waits."""

    def getsockname(self) -> Any:
        """(host, port, ...)."""

    def close(self) -> None: ...


BoundListener: TypeAlias = tuple[ListenerAddress, Sequence[ListeningSocket]]
"""A configured listener with its bound sockets: one for each address of its host."""


def bound_ports(bound: Iterable[BoundListener]) -> dict[str, int]:
    """The port of each listener, by name."""
    return {address.name: sockets[0].getsockname()[1] for address, sockets in bound}
