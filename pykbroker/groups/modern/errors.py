"""Errors of operations on modern groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.groups.classic.members import Waiter
    from pykbroker.protocol.fields import Message


class GroupError(Exception):
    """An operation that a group refuses; the response has the code, and the text where it has a field for one.

    Attributes:
        replies: responses to parked requests of others, which the operation has ended nevertheless.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.replies: Sequence[tuple[Waiter, Message]] = ()
