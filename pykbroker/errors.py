"""Exceptions to Kafka's error codes: the only such mapping (design.md 4, principle 9)."""

from __future__ import annotations

from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.errors import RecordError


class CloseConnection(Exception):
    """Ends one connection without an answer; the message says why and goes into the log as one line."""


class KafkaError(Exception):
    """An error code with a message, raised below a handler and turned into its response."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


def error_code_for(error: Exception) -> ErrorCode:
    """The code that a client gets for an exception of the log, the records or the broker.

    Anything else is a broken invariant of ours and is raised again.
    """
    if isinstance(error, KafkaError | LogError | RecordError):
        return ErrorCode(error.error_code)
    raise error


def answered_error(code: int) -> ErrorCode:
    """The error that another broker answered; a newer one may have codes that this one does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
