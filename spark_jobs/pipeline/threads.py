"""Threads of a run that keep what made them fail, so that the one who watches can raise it."""

from __future__ import annotations

import threading
from abc import abstractmethod


class WatchedThread(threading.Thread):
    """A daemon thread; subclasses say in `work` what it does.

    Attributes:
        failure: what ended it before its work was done; None as long as nothing has.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.failure: Exception | None = None

    @abstractmethod
    def work(self) -> None:
        """Do all of the work; what it raises ends the thread and becomes `failure`."""

    def run(self) -> None:
        """Do the work and keep its failure."""
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def require_no_failure(self) -> None:
        """Raise what made it fail, if something has."""
        if self.failure is not None:
            raise self.failure
