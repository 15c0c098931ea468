"""Errors of operations on groups of the new protocols."""

from __future__ import annotations

from pykbroker.protocol.error_codes import ErrorCode


class GroupError(Exception):
    """An operation that a group refuses; the response has the code, and the text where it has a field for one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
