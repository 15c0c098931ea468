"""A run whose input fails is given up with all that was seen, whatever the time limit of a stall is."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jobs
import pytest
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
