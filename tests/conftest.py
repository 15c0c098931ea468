"""Async tests run in trio under a clock that jumps over every sleep; Hypothesis does not judge the machine's speed."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings

# A busy machine is not a fault of the code. In CI the examples are always the same, elsewhere new ones are tried.
settings.register_profile(
    "pykbroker",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("pykbroker")


@pytest.fixture(scope="session", autouse=True)
def _no_sockets_left_behind() -> Iterator[None]:
    from tests.support.kafka_python import close_refused_sockets

    with pytest.MonkeyPatch.context() as patch:
        close_refused_sockets(patch)
        yield


@pytest.fixture(autouse=True)
def _no_log_handlers_left_behind() -> Iterator[None]:
    """`pykbroker start` in this process logs to the standard error of its test, which is closed afterwards."""
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)


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


@pytest.fixture
def collect_client_sockets() -> Iterator[None]:
    """Sockets that kafka-python leaves to the garbage collector are collected with the test that used it.

    Otherwise the collector meets them in whatever test runs next, which then fails for their ResourceWarning.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
