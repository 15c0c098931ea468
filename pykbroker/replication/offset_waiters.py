"""Waits of Fetch and DeleteRecords for a partition: for new bytes to read, or for another change.

A request registers one `OffsetWaiter` at all partitions that it looks at. `OffsetWaiters.notify` is called with the
number of bytes that became readable; nothing polls. A request that lets other tasks run between two partitions
registers at each one when it reads it, so that no notification between the read and the wait is lost.
"""

from __future__ import annotations

from typing import Self

from pykbroker.completion import Completion

ALL = 1 << 62
"""More bytes than any request waits for: wakes every waiter, for changes other than new bytes."""


class OffsetWaiter:
    """One request, woken when `bytes_wanted` more bytes have become readable where it is registered.

    A context manager: the end of the block removes all its registrations.
    """

    __slots__ = ("_completion", "_registered_with", "bytes_wanted")

    def __init__(self, bytes_wanted: int) -> None:
        self.bytes_wanted = bytes_wanted
        # None while nothing waits.
        self._completion: Completion | None = None
        self._registered_with: list[OffsetWaiters] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for waiters in self._registered_with:
            waiters.discard(self)

    def register(self, waiters: OffsetWaiters) -> None:
        """Counts the bytes of a partition from now on."""
        waiters.add(self)
        self._registered_with.append(waiters)

    def add(self, size_bytes: int) -> None:
        """Counts bytes; ends the wait when there are enough."""
        self.bytes_wanted -= size_bytes
        if self.bytes_wanted <= 0 and self._completion is not None:
            self._completion.complete()

    async def wait(self, deadline: float) -> None:
        """Waits for the bytes that are still missing, until the deadline on trio's clock."""
        if self.bytes_wanted <= 0:
            return
        self._completion = Completion()
        await self._completion.wait(deadline)


class OffsetWaiters(dict[OffsetWaiter, None]):
    """The waiters of one partition for one kind of progress, in order of arrival.

    A set would not do: the order in which they are woken must not depend on addresses. A dict itself, and not an object
    that has one, because each append asks two of them if they are empty.
    """

    __slots__ = ()

    def notify(self, size_bytes: int) -> None:
        """Counts bytes that became readable; `ALL` wakes every waiter, as for a deleted partition."""
        if self:
            for waiter in list(self):
                waiter.add(size_bytes)

    def add(self, waiter: OffsetWaiter) -> None:
        self[waiter] = None

    def discard(self, waiter: OffsetWaiter) -> None:
        """Removes a waiter."""
        self.pop(waiter, None)
