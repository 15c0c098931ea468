"""The loop that serves the connections of a listener: one task waits for all of them and serves those that are ready.

A request whose handler need not wait is served inside the loop: received, handled and answered without a switch of
tasks. A handler that awaits a `Completion` (a fetch at the end of a log, acks=all, a join) is suspended without a task;
the loop continues it in the turn in which another request has completed it, or at its deadline. So is a reply whose
client does not read, until its socket takes bytes again. When a handler waits for anything else, its task stays with
the request and another task continues the loop. An idle connection has no task.

A connection is served by the loop, or is suspended, or is with the task that waits for its request: one of the three at
a time. This keeps the order of its requests (P-8).
"""

from __future__ import annotations

import time
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.completion import Completion, suspend_in_this_task, wait_in_this_task
from pykbroker.network.held_replies import READY_MIN, HeldReplies
from pykbroker.network.poller import make_poller
from pykbroker.network.reply import Writable
from pykbroker.network.short_waits import ShortWaits
from pykbroker.network.suspended_turns import SuspendedTurns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from pykbroker.network.connection import SocketConnection
    from pykbroker.network.poller import Poller

TURN_S = 0.001
"""Seconds for which connections are served before other tasks of the process get their turn."""

SPARE_TASKS_MAX = 16
"""Tasks that are kept for the next request that waits."""


class ConnectionLoop:
    """Serves connections over sockets. Usage: `run` in a task, `add` at any time meanwhile."""

    def __init__(self) -> None:
        self._poller: Poller[SocketConnection] = make_poller()
        # Connections with bytes to read, and those that were served in this round and have requests left.
        self._ready: deque[SocketConnection] = deque()
        self._again: list[SocketConnection] = []
        self._suspended = SuspendedTurns(self._end_sleep)
        self._held = HeldReplies(self._send_rest)
        self._short_waits = ShortWaits()
        # Scope of the task that waits for the poller, while turns are suspended.
        self._sleep: trio.CancelScope | None = None
        self._spare = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None

    def add(self, connection: SocketConnection) -> None:
        """Watches a connection and serves its requests."""
        connection.held = self._held
        self._poller.add(connection.fileno(), connection)

    def remove(self, connection: SocketConnection) -> None:
        """Stops watching a connection, if it is watched; call it before its socket is closed."""
        descriptor = connection.fileno()
        if descriptor in self._poller:
            self._poller.remove(descriptor)

    async def run(self) -> None:
        """Serves until it is cancelled. Connections that no task serves are left open then."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._run_loop)
        finally:
            trio.lowlevel.notify_closing(self._poller.fileno())
            self._poller.close()

    async def _run_loop(self) -> None:
        """Runs the loop until a request waits, serves that request to its end, and runs the loop when asked again."""
        with trio.CancelScope() as scope:
            while True:
                suspend_in_this_task()
                try:
                    waiting = await self._serve_until_one_waits()
                finally:
                    wait_in_this_task()
                await self._finish_waiting(waiting, scope)
                if len(self._spare) >= SPARE_TASKS_MAX:
                    return
                await self._spare.park()

    async def _finish_waiting(self, waiting: WaitingTurn, scope: trio.CancelScope) -> None:
        """Serves a connection whose turn has to wait, until the poller can watch it again, while others are served."""
        connection = waiting.connection
        self.remove(connection)
        self._continue_in_another_task()
        connection.served_by = scope
        await self._serve_to_the_end(connection, waiting.rest())

    def _send_rest(self, connection: SocketConnection, rest: memoryview) -> None:
        """Has a task send the rest of a reply that was held; the connection is not served meanwhile."""
        self.remove(connection)
        connection.served_by = trio.CancelScope()
        assert self._nursery is not None
        self._nursery.start_soon(self._finish_reply, connection, rest, connection.served_by)

    async def _finish_reply(self, connection: SocketConnection, rest: memoryview, scope: trio.CancelScope) -> None:
        with scope:
            await self._serve_to_the_end(connection, connection.send_rest(rest))

    async def _serve_to_the_end(self, connection: SocketConnection, first: Awaitable[bool]) -> None:
        """Awaits a turn of a connection and gives it further ones, until nothing is left and the poller watches it."""
        try:
            has_more = await first
            while has_more:
                await trio.lowlevel.checkpoint()
                has_more = await connection.turn(trio.current_time())
            connection.served_by = None
        finally:
            if connection.served_by is not None:
                connection.end()
        if not connection.has_ended:
            self.add(connection)

    def _continue_in_another_task(self) -> None:
        if self._spare:
            self._spare.unpark()
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._run_loop)

    async def _serve_until_one_waits(self) -> WaitingTurn:
        """Serves the connections that are ready, in turns, until one has to wait."""
        poller, ready, again, suspended = self._poller, self._ready, self._again, self._suspended
        short_waits, held = self._short_waits, self._held
        now, turn_ends = trio.current_time(), time.perf_counter() + TURN_S
        while True:
            while ready or suspended.ready:
                # Suspended turns that may continue come first.
                if suspended.ready:
                    waiting = self._continue_suspended(now)
                else:
                    connection = ready.popleft()
                    held.is_open = len(ready) >= READY_MIN
                    waiting = self._serve(connection, now)
                    held.is_open = False
                is_over = time.perf_counter() > turn_ends
                if held and (is_over or waiting is not None or len(ready) < READY_MIN):
                    held.send()
                if waiting is not None:
                    return waiting
                if is_over and (ready or suspended.ready):
                    await trio.lowlevel.checkpoint()
                    now, turn_ends = trio.current_time(), time.perf_counter() + TURN_S
            ready.extend(poller.poll())
            if again:
                # Connections that were not served in this round come first.
                found = set(ready)
                ready.extend(connection for connection in again if connection not in found)
                again.clear()
            if suspended.count:
                suspended.expire(now)
            if not ready and not suspended.ready and not short_waits.poll(self._find_ready):
                began = time.perf_counter()
                await self._wait_until_ready()
                short_waits.slept(time.perf_counter() - began)
                now, turn_ends = trio.current_time(), time.perf_counter() + TURN_S
            elif time.perf_counter() > turn_ends:
                await trio.lowlevel.checkpoint()
                now, turn_ends = trio.current_time(), time.perf_counter() + TURN_S

    def _find_ready(self) -> bool:
        """Polls once without waiting; True if a connection has something to read."""
        self._ready.extend(self._poller.poll())
        return bool(self._ready)

    async def _wait_until_ready(self) -> None:
        """Waits until a connection has something to read or a suspended turn may continue."""
        if not self._suspended.count:
            await trio.lowlevel.wait_readable(self._poller.fileno())
            return
        with trio.CancelScope(deadline=self._suspended.next_deadline()) as self._sleep:
            await trio.lowlevel.wait_readable(self._poller.fileno())
        self._sleep = None

    def _end_sleep(self) -> None:
        """Ends the wait for the poller: another task has completed the wait of a suspended turn."""
        if self._sleep is not None:
            self._sleep.cancel()

    def _serve(self, connection: SocketConnection, now: float) -> WaitingTurn | None:
        """Gives a connection a turn; returns the turn if a task has to wait for it."""
        if connection.has_ended or connection.served_by is not None:
            return None
        suspended = connection.suspended
        if suspended is not None:
            if isinstance(suspended.completion, Writable):
                suspended.completion.complete()
            else:
                # The next request, or the end of the stream, is not read while this request waits.
                self.remove(connection)
            return None
        return self._advance_turn(connection, connection.turn(now))

    def _continue_suspended(self, now: float) -> WaitingTurn | None:
        """Continues the suspended turn that is ready first; returns it if a task has to wait for it now."""
        taken = self._suspended.ready.popleft().take()
        if taken is None:
            return None
        connection, completion, coroutine = taken
        if isinstance(completion, Writable):
            self._poller.watch_bytes(connection.fileno())
        elif connection.fileno() not in self._poller:
            self.add(connection)
        connection.continue_at(now)
        return self._advance_turn(connection, coroutine)

    def _advance_turn(self, connection: SocketConnection, turn: Coroutine[Any, Any, bool]) -> WaitingTurn | None:
        try:
            trap = turn.send(None)
        except StopIteration as done:
            if done.value:
                self._again.append(connection)
            return None
        if isinstance(trap, Completion):
            self._suspended.add(connection, turn, trap)
            if isinstance(trap, Writable):
                self._poller.watch_room(connection.fileno())
            return None
        return WaitingTurn(connection, turn, trap)


class WaitingTurn:
    """A turn of a connection that has begun and has to wait.

    Args:
        connection: the connection.
        turn: the suspended coroutine.
        trap: what it has yielded to trio, and trio has not received yet.
    """

    __slots__ = ("_trap", "_turn", "connection")

    def __init__(self, connection: SocketConnection, turn: Coroutine[Any, Any, bool], trap: Any) -> None:
        self.connection = connection
        self._turn = turn
        self._trap = trap

    @types.coroutine
    def rest(self) -> Generator[Any, Any, bool]:
        """Waits for the end of the turn; must be awaited by the task that began it. Returns what the turn returns."""
        while True:
            received = yield self._trap
            try:
                self._trap = self._turn.send(received)
            except StopIteration as done:
                return bool(done.value)
