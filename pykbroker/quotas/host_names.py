"""Addresses of host names in limits. They are resolved in threads, as the system's resolver may block for seconds."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


def literal_address(text: str) -> str | None:
    """An address in the form that sockets have it; None for a host name."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


class HostNames:
    """Resolves host names one after another, with trio's resolver, in threads that a stop does not wait for."""

    __slots__ = ("_is_busy", "_nursery", "_wanted")

    def __init__(self) -> None:
        self._wanted: list[tuple[str, Callable[[str | None], None]]] = []
        self._nursery: trio.Nursery | None = None
        self._is_busy = False

    def begin(self, nursery: trio.Nursery) -> None:
        """Begins to resolve, in tasks of the nursery."""
        self._nursery = nursery
        self._start()

    def resolve(self, name: str, use: Callable[[str | None], None]) -> None:
        """Resolves a name, after `begin`; calls `use` with its address, or with None if it has none."""
        self._wanted.append((name, use))
        self._start()

    def _start(self) -> None:
        if self._nursery is not None and self._wanted and not self._is_busy:
            self._is_busy = True
            self._nursery.start_soon(self._resolve_wanted)

    async def _resolve_wanted(self) -> None:
        while self._wanted:
            name, use = self._wanted.pop(0)
            address = await _address_of(name)
            if address is None:
                log.error("the quota of the address %s has no effect: its host name cannot be resolved", name)
            use(address)
        self._is_busy = False


async def _address_of(name: str) -> str | None:
    """The first address of a name, as in Kafka, whose Java prefers IPv4."""
    try:
        found = await trio.socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: not a possible host name
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
