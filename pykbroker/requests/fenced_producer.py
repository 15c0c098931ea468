"""The error of a fenced producer, by the version of its request (KIP-588)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext

_PRODUCER_FENCED_VERSIONS = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""First version of each request whose clients know PRODUCER_FENCED."""


def error_for_producer(context: BrokerContext, error: ErrorCode) -> ErrorCode:
    """The transaction coordinator's error, with INVALID_PRODUCER_EPOCH for PRODUCER_FENCED in old versions (P-130)."""
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < _PRODUCER_FENCED_VERSIONS[context.api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
