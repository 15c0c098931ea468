"""The bound socket that a listener accepts from, as the simulation implements it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from pykbroker.config.listener_addresses import ListenerAddress


class Listening(Protocol):
    """The part of a bound, non-blocking socket from which `Listener` accepts.

    Whoever is not a `socket.socket` gives a `trio.abc.Stream` for each connection, and has `wait_readable` too, which
    returns when `accept` may succeed.
    """

    def listen(self, backlog: int, /) -> None: ...

    def accept(self) -> tuple[Any, Any]:
        """(connection, address of the client as (host, port, ...)). Raises BlockingIOError when nobody waits."""

    def getsockname(self) -> Any:
        """(host, port, ...)."""

    def close(self) -> None: ...


Bound: TypeAlias = tuple[ListenerAddress, Sequence[Listening]]
"""A listener as configured, with its sockets: one for each address of its host."""
