"""The one way to wait for a log: fetches wait for bytes, acks=all waits for the high watermark.

A waiter hangs on the logs it is interested in. Whoever moves a log calls `notify` with the bytes that became
readable; nothing polls. Checking and hanging on happen without an await between them, so no wake-up can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

ALL = 1 << 62
"""More bytes than anyone waits for: wakes whoever waits, for changes other than new bytes."""


class Waiter:
    """Something parked until `bytes_wanted` more bytes have become readable in the logs it hangs on."""

    __slots__ = ("_event", "bytes_wanted")

    def __init__(self, bytes_wanted: int) -> None:
        self.bytes_wanted = bytes_wanted
        self._event = trio.Event()

    def add(self, size_bytes: int) -> None:
        """Counts bytes; wakes when there are enough."""
        self.bytes_wanted -= size_bytes
        if self.bytes_wanted <= 0:
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class OffsetWaiters:
    """Those who wait for one log."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # In order of arrival: who is woken first must not depend on addresses.
        self._waiters: dict[Waiter, None] = {}

    def notify(self, size_bytes: int) -> None:
        """Says that so many bytes more can be read; `ALL` wakes everyone, as for a deleted partition."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.add(size_bytes)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def discard(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def __len__(self) -> int:
        return len(self._waiters)


async def wait_for_bytes(logs: Iterable[OffsetWaiters], bytes_wanted: int, deadline: float) -> None:
    """Waits until the logs together have `bytes_wanted` more bytes, or until the deadline on trio's clock."""
    waiter = Waiter(bytes_wanted)
    hooks = list(logs)
    for waiters in hooks:
        waiters.add(waiter)
    try:
        with trio.move_on_at(deadline):
            await waiter.wait()
    finally:
        for waiters in hooks:
            waiters.discard(waiter)
