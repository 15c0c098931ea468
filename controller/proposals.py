"""What a controller node has under way: commands that wait for their outcome, and images that are not committed yet."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple

import trio

from pykbroker.controller.metadata.commands import Command, CommandRefused
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.raft.roles import NEVER_MS
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode

TIMEOUT_MIN_MS = 100
"""A command gets at least this long: clients send a timeout of 0 and still want to hear how it went."""


ROUND_SIZE_MAX = 256
"""So many commands at most go into one write: those who came first need not wait for the thousandth."""


class Proposal:
    """A command on its way. `end_offset` is where the log must be applied to before the outcome may be told."""

    __slots__ = ("command", "done", "end_offset", "failure", "result")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.done = trio.Event()
        self.end_offset = -1
        self.result: Any = None
        self.failure: Exception | None = None

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.done.set()


class Uncommitted(NamedTuple):
    """An image that becomes true when the log is committed up to `end_offset`."""

    base_offset: int
    end_offset: int
    image: ClusterImage


class Linger:
    """For how long commands are gathered that are then written together (`controller.quorum.append.linger.ms`).

    `until_ms`: the end of it, NEVER_MS while nothing waits; to be set to that when what waited is written.
    """

    __slots__ = ("_linger_ms", "until_ms")

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self.until_ms = NEVER_MS

    def is_waiting(self, queue: Sized, is_planning: bool, now_ms: int) -> bool:
        """Whether the commands in the queue are to wait for more; the time runs from the first call."""
        if not self._linger_ms or not is_planning or len(queue) >= ROUND_SIZE_MAX:
            return False
        if self.until_ms == NEVER_MS:
            self.until_ms = now_ms + self._linger_ms
        return now_ms < self.until_ms


def not_written(error: StorageError) -> CommandRefused:
    return CommandRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def stopping() -> CommandRefused:
    return CommandRefused(ErrorCode.NOT_CONTROLLER, "The controller is stopping.")


def not_leader() -> CommandRefused:
    return CommandRefused(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
