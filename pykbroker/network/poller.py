"""Readiness of many sockets behind one file descriptor, for which a single task can wait.

A task for each connection costs a switch of tasks and a registration of trio for every request. With a poller one task
waits for all connections and then serves every one that has bytes to read.
"""

from __future__ import annotations

import select
import selectors
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
EVENTS_MAX = 256
"""Largest number of sockets that one `poll` returns."""


class Poller(Protocol[T]):
    """Sockets that are watched for bytes to read, each with an object that `poll` returns for it.

    A socket is returned by every `poll` as long as it has bytes, the end of its stream or an error to read. A socket
    that is watched for room to write is returned as long as it takes bytes or has an error.
    """

    def fileno(self) -> int:
        """Descriptor that is readable while `poll` would return something."""

    def __contains__(self, descriptor: int) -> bool:
        """True if a socket is watched."""

    def add(self, descriptor: int, watched: T) -> None:
        """Watches a socket that is not watched."""

    def remove(self, descriptor: int) -> None:
        """Stops watching a socket that is watched; call it before the socket is closed."""

    def watch_room(self, descriptor: int) -> None:
        """Watches a socket that is watched for room to write in place of bytes to read."""

    def watch_bytes(self, descriptor: int) -> None:
        """Watches a socket for bytes to read again, as after `add`."""

    def poll(self) -> Iterable[T]:
        """Objects of the sockets that are ready now, at most `EVENTS_MAX`. Does not wait."""

    def close(self) -> None:
        """Stops watching all sockets."""


class EpollPoller(Generic[T]):
    """Linux's epoll."""

    __slots__ = ("_epoll", "_watched")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, T] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._watched

    def add(self, descriptor: int, watched: T) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)
        self._watched[descriptor] = watched

    def remove(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)

    def watch_room(self, descriptor: int) -> None:
        self._epoll.modify(descriptor, select.EPOLLOUT)

    def watch_bytes(self, descriptor: int) -> None:
        self._epoll.modify(descriptor, select.EPOLLIN)

    def poll(self) -> list[T]:
        watched = self._watched
        return [watched[descriptor] for descriptor, _ in self._epoll.poll(0, EVENTS_MAX)]

    def close(self) -> None:
        self._watched.clear()
        self._epoll.close()


class SelectorPoller(Generic[T]):
    """The best selector of the system that has a descriptor of its own: kqueue on macOS and the BSDs."""

    __slots__ = ("_selector",)

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        return self._selector.fileno()

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in (self._selector.get_map() or ())

    def add(self, descriptor: int, watched: T) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, watched)

    def remove(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def watch_room(self, descriptor: int) -> None:
        self._selector.modify(descriptor, selectors.EVENT_WRITE, self._selector.get_key(descriptor).data)

    def watch_bytes(self, descriptor: int) -> None:
        self._selector.modify(descriptor, selectors.EVENT_READ, self._selector.get_key(descriptor).data)

    def poll(self) -> list[T]:
        return [key.data for key, _ in self._selector.select(0)]

    def close(self) -> None:
        self._selector.close()


def make_poller() -> Poller[T]:
    """A poller for this system."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()
