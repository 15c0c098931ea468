"""What a controller node has under way: commands that wait for their outcome, and images that are not committed yet."""

from __future__ import annotations

from typing import Any, NamedTuple

import trio

from pykbroker.controller.metadata.commands import Command, CommandRefused
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode

TIMEOUT_MIN_MS = 100
"""A command gets at least this long: clients send a timeout of 0 and still want to hear how it went."""


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


def not_written(error: StorageError) -> CommandRefused:
    return CommandRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def stopping() -> CommandRefused:
    return CommandRefused(ErrorCode.NOT_CONTROLLER, "The controller is stopping.")


def not_leader() -> CommandRefused:
    return CommandRefused(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
