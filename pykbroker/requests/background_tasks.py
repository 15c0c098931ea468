"""Work that a request begins and that goes on when the request is answered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.completion import Completion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks in the nursery of `run`, which must be running."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the tasks; runs until it is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def start(self, work: Callable[..., Awaitable[object]], *arguments: Any, wait_s: float) -> None:
        """Starts `work(*arguments)` as a task. Returns at its end, or after `wait_s` seconds while it goes on.

        An exception of the work is logged; the caller does not get it.
        """
        assert self._nursery is not None, "no request is served before the tasks run"
        ended = Completion()
        self._nursery.start_soon(_run_task, ended, work, arguments)
        await ended.wait(trio.current_time() + wait_s)


async def _run_task(ended: Completion, work: Callable[..., Awaitable[object]], arguments: tuple[Any, ...]) -> None:
    try:
        await work(*arguments)
    except Exception:
        log.exception("a background task of a request failed with an unexpected error")
    finally:
        ended.complete()
