"""Operations on large groups, prepared in turns with other requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.controller.turns import in_turns

if TYPE_CHECKING:
    from pykbroker.coordination.runtime import CoordinatorRuntime, Write
    from pykbroker.groups.modern_writes import FollowUp, Heartbeat
    from pykbroker.groups.result import GroupResult
    from pykbroker.groups.shard import GroupShard


class LargeWrites:
    """The operations that are being prepared, those on one group one after the other.

    If two were prepared at once, the first to end would change the group, and the other one begin again.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._runtime = runtime
        self._turns: dict[str, trio.Semaphore] = {}

    async def begin_write(self, operation: Heartbeat | FollowUp, request: Any, *client: Any) -> Write[GroupResult]:
        """Prepares an operation in turns with other requests, and begins to write its records.

        Args:
            operation: the operation.
            request: the request, which was checked; it has a group id.
            client: arguments that describe the client.

        Raises:
            CoordinatorError: this broker does not coordinate the group.
        """
        group_id = request.group_id
        async with self._turn_of(group_id):
            _, shard = self._runtime.find(group_id)
            prepared = await in_turns(operation.prepare(shard, self._runtime.now_ms, request, *client))
            return self._runtime.begin_write(group_id, operation.carry_out, request, *client, prepared)

    @asynccontextmanager
    async def _turn_of(self, group_id: str) -> AsyncIterator[None]:
        turn = self._turns.get(group_id)
        if turn is None:
            turn = self._turns[group_id] = trio.Semaphore(1)
        async with turn:
            try:
                yield
            finally:
                if not turn.statistics().tasks_waiting:
                    del self._turns[group_id]
