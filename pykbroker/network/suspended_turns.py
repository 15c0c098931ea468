"""Turns of connections that wait for a `Completion` without a task, and those of them that may continue."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pykbroker.completion import Completion
    from pykbroker.network.connection import SocketConnection

DEADLINES_MIN = 1_000
"""Number of deadlines in the heap above which those of turns that no longer wait are removed, once they are more than
half."""


class SuspendedTurn:
    """A turn of a connection that continues after a `Completion` or at its deadline.

    Attributes:
        completion: what it waits for; only until it is taken.
        is_waiting: False as soon as it may continue or was closed.
    """

    __slots__ = ("_connection", "_coroutine", "_turns", "completion", "is_waiting")

    def __init__(
        self,
        turns: SuspendedTurns,
        connection: SocketConnection,
        coroutine: Coroutine[Any, Any, bool],
        completion: Completion,
    ) -> None:
        self._turns = turns
        self._coroutine: Coroutine[Any, Any, bool] | None = coroutine
        self._connection = connection
        self.completion = completion
        self.is_waiting = True

    def may_continue(self) -> None:
        """Notes that the wait is over, once."""
        if self.is_waiting:
            self.is_waiting = False
            self._turns.on_ready(self)

    def take(self) -> tuple[SocketConnection, Completion, Coroutine[Any, Any, bool]] | None:
        """Connection, completion and coroutine, for the one that continues it; None if the turn was taken before."""
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is None:
            return None
        self.is_waiting = False
        self._turns.count -= 1
        connection, completion = self._connection, self.completion
        connection.suspended = None
        # The deadline of this turn, which may be weeks away, must not keep the connection's buffers in memory.
        del self._connection, self.completion
        return connection, completion, coroutine

    def close(self) -> None:
        """Ends the turn where it waits. Its `finally` blocks run."""
        taken = self.take()
        if taken is not None:
            taken[2].close()


class SuspendedTurns:
    """All suspended turns of a `ConnectionLoop`.

    Attributes:
        ready: turns that may continue, in the order in which they were completed; also those that were closed since.
        count: turns that were not continued or closed yet.

    Args:
        on_first_ready: called when a turn may continue and no other one could before.
    """

    __slots__ = ("_deadlines", "_number", "_on_first_ready", "count", "ready")

    def __init__(self, on_first_ready: Callable[[], None]) -> None:
        self.ready: deque[SuspendedTurn] = deque()
        self.count = 0
        # A heap of (deadline, number, turn). The number keeps turns with equal deadlines in their order of arrival.
        self._deadlines: list[tuple[float, int, SuspendedTurn]] = []
        self._number = 0
        self._on_first_ready = on_first_ready

    def add(self, connection: SocketConnection, coroutine: Coroutine[Any, Any, bool], completion: Completion) -> None:
        """Keeps a turn, which has just yielded a completion that is not complete."""
        turn = connection.suspended = SuspendedTurn(self, connection, coroutine, completion)
        completion.when_complete = turn.may_continue
        self.count += 1
        if completion.deadline < math.inf:
            if len(self._deadlines) > max(DEADLINES_MIN, 2 * self.count):
                self._deadlines = [entry for entry in self._deadlines if entry[2].is_waiting]
                heapq.heapify(self._deadlines)
            self._number += 1
            heapq.heappush(self._deadlines, (completion.deadline, self._number, turn))

    def on_ready(self, turn: SuspendedTurn) -> None:
        """Notes that a turn may continue."""
        self.ready.append(turn)
        if len(self.ready) == 1:
            self._on_first_ready()

    def next_deadline(self) -> float:
        """Time on trio's clock at which `expire` has to be called next; infinite for none."""
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].is_waiting:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else math.inf

    def expire(self, now: float) -> None:
        """Lets the turns continue whose deadlines have passed."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            heapq.heappop(deadlines)[2].may_continue()
