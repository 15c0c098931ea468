"""The end of a streaming job: told by a signal, or by a query that has failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from queries import StopFlag, require_no_failure


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_the_end(number: signal.Signals) -> None:
    stop = StopFlag()
    assert not stop.is_set
    os.kill(os.getpid(), number)
    assert stop.is_set


class Query:
    """A streaming query as far as its failure goes."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return self._failure


def test_the_failure_of_a_query_is_raised() -> None:
    queries: list[Any] = [Query(None), Query(ValueError("no such topic"))]
    require_no_failure(queries[:1])
    with pytest.raises(ValueError, match="no such topic"):
        require_no_failure(queries)
