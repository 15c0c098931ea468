"""A run whose input fails is given up with all that was seen, whatever the time limit of a stall is."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jobs
import pytest
from pipeline.job_process import IDLE, waits_for_input
from pipeline.progress import Batch
from pipeline.runner import Run
from pipeline.settings import RunSettings
from pipeline.threads import WatchedThread
from processes import ManagedProcess, ProcessFailedError

JOB = """
print("running stream", flush=True)
import time
time.sleep(600)
"""


class SilentScreen:
    """A screen that shows nothing."""

    def say(self, text: str) -> None: ...

    def show(self, total: int, fed: int, lags: dict[str, int]) -> None: ...


class Input(WatchedThread):
    """A feeder, or what goes on beside it, as far as a run looks at it."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.count = 40
        self.reach = 1.0
        self.acknowledged: Counter[str] = Counter()

    def work(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("who", ["the feeder", "the pipeline beside it"])
def test_the_failure_of_the_input_ends_a_run(who: str, tmp_path: Path) -> None:
    screen: Any = SilentScreen()
    settings = RunSettings(tmp_path, [], tmp_path, bootstrap_servers="localhost:9", size=48)
    run: Any = Run(jobs.load("metrics"), settings, screen)
    run._systems.folder.mkdir()
    run._job = ManagedProcess("the Spark job", [sys.executable, "-c", JOB], tmp_path / "job.log")
    failed, well = Input(ValueError("timed out")), Input()
    feeder, beside = (failed, well) if who == "the feeder" else (well, failed)
    try:
        with pytest.raises(
            ProcessFailedError, match=r"input of stage stream \(40 of 100 records fed\) failed: timed out"
        ):
            run._follow("stream", feeder, beside, 100, 0)
    finally:
        run._job.kill()


STARTED_AGAIN = f"""
print("running stream", flush=True)
print({IDLE!r}, flush=True)
import time
time.sleep(600)
"""


def test_a_job_that_has_nothing_to_do_after_a_kill_is_live(tmp_path: Path) -> None:
    screen: Any = SilentScreen()
    settings = RunSettings(tmp_path, [], tmp_path, bootstrap_servers="localhost:9", size=48, chaos=1)
    run: Any = Run(jobs.load("metrics"), settings, screen)
    run._job = ManagedProcess("the Spark job", [sys.executable, "-c", STARTED_AGAIN], tmp_path / "job.log")
    deadline = time.monotonic() + 30
    try:
        while IDLE not in run._job.lines() and time.monotonic() < deadline:
            run._job.require_running()
        run._look(None, 0)
        # At the first start the input waits for the first trigger.
        assert not run._is_live
        run._history.add_batch(Batch("rollups", 0, 0.0, 5, {"in": 5}, 100, None, 0))
        run._lines_seen = 0
        run._look(None, 0)
        assert run._is_live
    finally:
        run._job.kill()


class Status:
    """A query in one state."""

    def __init__(self, message: str, is_active: bool = False, is_available: bool = False) -> None:
        self.status = {"message": message, "isTriggerActive": is_active, "isDataAvailable": is_available}


@pytest.mark.parametrize(
    ("query", "waits"),
    [
        (Status("Waiting for data to arrive"), True),
        (Status("Waiting for data to arrive", is_available=True), False),
        (Status("Initializing sources"), False),
        (Status("Processing new data", is_active=True, is_available=True), False),
    ],
)
def test_a_query_waits_when_it_has_looked_and_found_nothing(query: Any, waits: bool) -> None:
    assert waits_for_input(query) == waits
