"""The failure of a thread of a run reaches the one who watches it."""

from __future__ import annotations

import pytest
from pipeline.streams import Worker
from pipeline.threads import WatchedThread


class Failing(WatchedThread):
    """A thread that fails at once."""

    def work(self) -> None:
        raise ValueError("no records")


def test_a_failure_is_kept_and_raised_by_the_one_who_watches() -> None:
    thread = Failing()
    thread.require_no_failure()
    thread.start()
    thread.join()
    with pytest.raises(ValueError, match="no records"):
        thread.require_no_failure()


def test_a_worker_finishes_what_there_is_to_do() -> None:
    left = [True] * 5
    worker = Worker(lambda: bool(left) and left.pop())
    worker.start()
    worker.finish()
    assert left == []
    assert worker.failure is None


def test_a_worker_that_failed_says_so_at_its_end() -> None:
    def fail() -> bool:
        raise ValueError("no slot")

    worker = Worker(fail)
    worker.start()
    with pytest.raises(ValueError, match="no slot"):
        worker.finish()
