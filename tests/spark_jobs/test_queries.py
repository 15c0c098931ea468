"""The end of a streaming job: told by a signal, or by a query that has failed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from pipeline.job_process import ProgressReporter
from queries import StopFlag, progress_since, require_no_failure


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


class JvmProgress:
    """A progress in the JVM, which counts how often it is asked for anything."""

    calls = 0

    def __init__(self, batch: int, timestamp: str, does_work: bool = True) -> None:
        self._timestamp = timestamp
        self._fields = {
            "name": "counts",
            "timestamp": timestamp,
            "batchId": batch,
            "numInputRows": 1,
            "durationMs": {"addBatch": 5} if does_work else {},
            "sources": [],
        }

    def timestamp(self) -> str:
        JvmProgress.calls += 1
        return self._timestamp

    def json(self) -> str:
        JvmProgress.calls += 1
        return json.dumps(self._fields)


class JvmQuery:
    """A query in the JVM with the progress that it keeps."""

    def __init__(self) -> None:
        self.kept: list[JvmProgress] = []

    def lastProgress(self) -> JvmProgress | None:
        return self.kept[-1] if self.kept else None

    def recentProgress(self) -> list[JvmProgress]:
        return self.kept


class PythonQuery:
    """PySpark's face of it; it has no `recentProgress`, which is slow."""

    name = "counts"

    def __init__(self) -> None:
        self._jsq = JvmQuery()


def batches(found: list[dict[str, Any]]) -> list[int]:
    return [fields["batchId"] for fields in found]


def test_progress_is_asked_for_once() -> None:
    query: Any = PythonQuery()
    assert progress_since(query, None) == []
    query._jsq.kept = [JvmProgress(number, f"t{number}") for number in range(60)]
    assert batches(progress_since(query, None)) == list(range(60))
    assert batches(progress_since(query, "t57")) == [58, 59]
    # One that Spark keeps no longer: all that are kept are newer.
    assert len(progress_since(query, "gone")) == 60
    JvmProgress.calls = 0
    assert progress_since(query, "t59") == []
    assert JvmProgress.calls == 1


def test_a_finished_trigger_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    query: Any = PythonQuery()
    reporter = ProgressReporter()
    idle = [JvmProgress(1, "t1", does_work=False), JvmProgress(1, "t2", does_work=False)]
    for kept in ([JvmProgress(0, "t0")], [JvmProgress(0, "t0"), *idle], [*idle, JvmProgress(1, "t3")]):
        query._jsq.kept = kept
        reporter.report([query])
        reporter.report([query])
    said = capsys.readouterr().out.splitlines()
    assert [json.loads(line.removeprefix("progress "))["number"] for line in said] == [0, 1]
