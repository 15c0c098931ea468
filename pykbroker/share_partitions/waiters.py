"""ShareFetch requests that wait for a share partition: for new records of the log, or for records that are released.

Records can go to one member only, so the waiting requests are woken one after another, in the order of their arrival,
and the next one only if there is something left to acquire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Self

from pykbroker.completion import Completion


class FetchWaiter:
    """One ShareFetch request. A context manager: the end of the block removes all its registrations."""

    __slots__ = ("_completion", "_is_woken", "_registered_with")

    def __init__(self) -> None:
        self._registered_with: list[ShareWaiters] = []
        # None while it does not wait.
        self._completion: Completion | None = None
        self._is_woken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for waiters in self._registered_with:
            waiters.discard(self)

    def register(self, waiters: ShareWaiters) -> None:
        """Registers with a share partition, which wakes the request from now on."""
        waiters.add(self)
        self._registered_with.append(waiters)

    def wake(self) -> None:
        """Ends the wait; while the request does not wait, makes its next wait end at once."""
        self._is_woken = True
        if self._completion is not None:
            self._completion.complete()

    async def wait(self, deadline: float) -> None:
        """Passes the turn on to the next requests, then waits to be woken until the deadline on trio's clock."""
        for waiters in self._registered_with:
            waiters.pass_on(self)
        if not self._is_woken:
            self._completion = Completion()
            await self._completion.wait(deadline)
        self._is_woken = False


class ShareWaiters:
    """The waiting requests of one share partition.

    Args:
        has_records: returns True if there are records to acquire.
        on_use: called with True when the first request waits, and with False when none waits any more.
    """

    __slots__ = ("_current", "_has_records", "_on_use", "_turn", "_waiters")

    def __init__(self, has_records: Callable[[], bool], on_use: Callable[[bool], None]) -> None:
        self._has_records = has_records
        self._on_use = on_use
        self._waiters: dict[FetchWaiter, None] = {}
        # Waiting requests that were not woken since the last change.
        self._turn: deque[FetchWaiter] = deque()
        self._current: FetchWaiter | None = None

    def add(self, waiter: FetchWaiter) -> None:
        if not self._waiters:
            self._on_use(True)
        self._waiters[waiter] = None

    def discard(self, waiter: FetchWaiter) -> None:
        """Removes a request, and wakes the next one if the removed one had the turn."""
        if waiter not in self._waiters:
            return
        del self._waiters[waiter]
        self.pass_on(waiter)
        if not self._waiters:
            self._on_use(False)

    def notify(self) -> None:
        """Wakes the first request, after a change that may have made records acquirable."""
        if self._waiters:
            self._turn = deque(waiter for waiter in self._waiters if waiter is not self._current)
            if self._current is None:
                self._wake_next()

    def wake_all(self) -> None:
        """Wakes every request: the share partition has ended."""
        self._turn.clear()
        self._current = None
        for waiter in list(self._waiters):
            waiter.wake()

    def pass_on(self, waiter: FetchWaiter) -> None:
        """Notes that a request has had its turn, and wakes the next one."""
        if self._current is waiter:
            self._current = None
            self._wake_next()

    def _wake_next(self) -> None:
        while self._turn:
            if not self._has_records():
                self._turn.clear()
                return
            waiter = self._turn.popleft()
            if waiter in self._waiters:
                self._current = waiter
                waiter.wake()
                return
