"""A run on the quicker parts of trio is the run on trio's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from tests.simulation import timeline
from tests.simulation.scenario import run_seed


def plain_clock(now: Callable[[], float], jump: Callable[[], None]) -> trio.abc.Clock:
    clock: Any = trio.testing.MockClock(autojump_threshold=0)

    def jump_to_now() -> None:
        jump()
        clock._virtual_base = now()

    clock._autojump = jump_to_now
    made: trio.abc.Clock = clock
    return made


@pytest.mark.parametrize("seed", ["one-3", "three-kill-2"])
def test_a_seed_has_the_same_events_on_plain_trio(seed: str) -> None:
    quick = run_seed(seed)
    with (
        patch.object(timeline, "jumping_clock", plain_clock),
        patch.object(timeline, "quick_scopes", nullcontext),
    ):
        plain = run_seed(seed)
    assert quick.events > 100
    assert quick == plain


async def fail_in_scope() -> None:
    with trio.fail_after(1):
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError


def test_scopes_that_are_cancelled_are_as_in_trio() -> None:
    seen: list[str] = []

    async def main() -> None:
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await trio.sleep(2)
        with trio.fail_after(1) as scope:
            await trio.sleep(0.5)
        assert not scope.cancelled_caught
        with pytest.raises(ZeroDivisionError):
            await fail_in_scope()
        with trio.move_on_after(5) as outer:
            with trio.CancelScope():
                await trio.sleep(0.25)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
        assert outer.cancelled_caught
        assert trio.current_effective_deadline() == float("inf")
        seen.append(f"{trio.current_time():.2f}")

    timeline.Timeline("scopes").run(main)
    assert seen == ["6.50"]
