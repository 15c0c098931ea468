"""Exceptions of requests and their Kafka error codes. No other module maps exceptions to codes."""

from __future__ import annotations

from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_codes import answered_error as answered_error
from pykbroker.protocol.records.errors import RecordError


class CloseConnection(Exception):
    """Closes one connection without a response; the message has the reason for the log, in one line."""


class KafkaError(Exception):
    """An error code with a message, raised by a handler or below it and turned into the error response of the request.

    A message of None is null in the response.
    """

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


class CoordinatorError(KafkaError):
    """A request to a coordinator that is not here (P-90), or whose records are not stored in time (P-115)."""


def error_code_for(error: Exception) -> ErrorCode:
    """The code that a client gets for an exception of the log, the records or the broker.

    Any other exception is a defect of this software and is raised again.
    """
    if isinstance(error, KafkaError | LogError | RecordError):
        return ErrorCode(error.error_code)
    raise error
