"""Parts of trio that cost the simulation much, done in less time and with the same effect.

* The clock: virtual time is a number. Trio's MockClock computes it from the real clock at each look.
* Sockets: nothing waits for one, so the system is asked for events only now and then, which Ctrl-C needs.
* Instruments: trio looks several times in each step for somebody who watches, in a class written in Python. There is
  nobody: a dict says so.
* Cancel scopes: a request has some five of them, and each enters two context managers that are made of generators.

A run has the same events with and without this module (`test_quick_trio.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from unittest.mock import patch

import trio
import trio.testing
from trio._core import _run

STEPS_PER_POLL = 1000
"""Steps of trio's loop between two looks at the system's events."""


def jumping_clock(now: Callable[[], float], jump: Callable[[], None]) -> trio.abc.Clock:
    """A clock that shows `now`, in seconds. `jump` is called when no task can run: it lets the next event happen."""
    clock: Any = trio.testing.MockClock(autojump_threshold=0)
    start_clock = clock.start_clock

    def start() -> None:
        runner: Any = _run.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _SeldomPolled(runner)
        assert not any(runner.instruments.values())
        runner.instruments = {}
        start_clock()

    def sleep_time(deadline: float) -> float:
        return 0 if deadline <= now() else math.inf

    clock.start_clock, clock.current_time = start, now
    clock.deadline_to_sleep_time, clock._autojump = sleep_time, jump
    made: trio.abc.Clock = clock
    return made


class _SeldomPolled:
    """Trio's epoll, whose events come with a delay of some steps until the main task has ended."""

    def __init__(self, runner: Any) -> None:
        self._real = runner.io_manager
        self._runner = runner
        self._steps = 0

    def get_events(self, timeout: float) -> Any:
        """The events there are now. `timeout` is 0: no step waits, the clock jumps instead."""
        assert timeout == 0
        self._steps += 1
        # An event ends trio's own tasks after the main task.
        is_due = self._steps % STEPS_PER_POLL == 0 or self._runner.main_task_outcome is not None
        return self._real.get_events(0) if is_due else ()

    def process_events(self, events: Any) -> None:
        if events:
            self._real.process_events(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _DeadlineChange:
    """Surrounds a change of a cancel scope's state, and then registers the deadline that is in force."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        scope = self._scope
        registered = scope._registered_deadline
        is_inactive = scope._cancel_status is None or scope._cancel_called
        deadline = math.inf if is_inactive else scope._deadline
        if deadline != registered:
            scope._registered_deadline = deadline
            deadlines = _run.GLOBAL_RUN_CONTEXT.runner.deadlines
            if registered != math.inf:
                deadlines.remove(registered, scope)
            if deadline != math.inf:
                deadlines.add(deadline, scope)


class _FailAfter:
    """`trio.fail_after`."""

    __slots__ = ("_scope",)

    def __init__(self, seconds: float) -> None:
        self._scope = trio.CancelScope(relative_deadline=seconds)

    def __enter__(self) -> trio.CancelScope:
        return self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> bool:
        is_swallowed = self._scope.__exit__(kind, error, place)
        if self._scope.cancelled_caught:
            raise trio.TooSlowError
        return is_swallowed


_exit = trio.CancelScope.__exit__


def _quick_exit(scope: Any, kind: Any, error: Any, place: Any) -> bool:
    """`CancelScope.__exit__`, shorter for the usual end: no exception, and no other scope or task inside."""
    task: Any = _run.GLOBAL_RUN_CONTEXT.task
    status = scope._cancel_status
    if error is not None or task._cancel_status is not status or len(status._tasks) != 1 or status._children:
        return _exit(scope, kind, error, place)
    parent = status._parent
    task._cancel_status = parent
    parent._tasks.add(task)
    parent._children.remove(status)
    if parent.effectively_cancelled:
        task._attempt_delivery_of_any_pending_cancel()
    scope._cancel_status = None
    deadline = scope._registered_deadline
    if deadline != math.inf:
        scope._registered_deadline = math.inf
        _run.GLOBAL_RUN_CONTEXT.runner.deadlines.remove(deadline, scope)
    return True


def _deadline_change(scope: trio.CancelScope) -> _DeadlineChange:
    return _DeadlineChange(scope)


@contextmanager
def quick_scopes() -> Iterator[None]:
    """Within this block, cancel scopes and `trio.fail_after` do without generators."""
    with (
        patch.object(trio.CancelScope, "_might_change_registered_deadline", _deadline_change),
        patch.object(trio.CancelScope, "__exit__", _quick_exit),
        patch.object(trio, "fail_after", _FailAfter),
    ):
        yield
