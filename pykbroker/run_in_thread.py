"""The type of the function by which a node runs blocking work in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

R = TypeVar("R")


class RunInThread(Protocol):
    """Runs work in a thread while other tasks go on; returns its result, or raises its exception."""

    def __call__(self, work: Callable[[], R], /) -> Awaitable[R]: ...
