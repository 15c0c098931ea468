"""Async tests run in trio under a clock that jumps over every sleep."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import trio
import trio.testing


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test; the clock stands still while anything can run and then jumps to the next deadline."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def main() -> None:
        await pyfuncitem.obj(**arguments)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return True
