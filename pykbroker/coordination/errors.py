"""CoordinatorError: the reason why a coordinator did not carry out a request."""

from __future__ import annotations

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode


class CoordinatorError(KafkaError):
    """A request to a coordinator that is not here (P-90), or whose records are not stored in time (P-115)."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code, error_code.name)
