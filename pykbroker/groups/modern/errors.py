"""Errors of operations on modern groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.groups.classic.members import Waiter
    from pykbroker.protocol.fields import Message


class GroupError(KafkaError):
    """An operation that a group refuses.

    Attributes:
        replies: responses to parked requests of others, which the operation has ended nevertheless.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.replies: Sequence[tuple[Waiter, Message]] = ()
