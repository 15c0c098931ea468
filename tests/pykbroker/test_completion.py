"""Waits for a `Completion` in ordinary tasks, as those of a simulated network."""

from __future__ import annotations

import trio

from pykbroker.completion import Completion


async def test_a_task_sleeps_until_another_completes_its_wait() -> None:
    completion, began = Completion(), trio.current_time()

    async def complete_later() -> None:
        await trio.sleep(3)
        completion.complete()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete_later)
        await completion.wait()
    assert completion.is_complete
    assert trio.current_time() == began + 3


async def test_a_task_sleeps_until_the_deadline() -> None:
    completion, began = Completion(), trio.current_time()
    await completion.wait(began + 5)
    assert not completion.is_complete
    assert trio.current_time() == began + 5
    completion.complete()


async def test_a_wait_for_what_is_complete_ends_at_once() -> None:
    completion, began = Completion(), trio.current_time()
    completion.complete()
    await completion.wait(began + 5)
    assert trio.current_time() == began
