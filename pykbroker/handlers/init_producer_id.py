"""InitProducerId (key 22): an id and epoch for an idempotent producer (KIP-98).

Versions 0-5. v2 flexible; v3 the producer's present id and epoch (KIP-360); v4 PRODUCER_FENCED; v5
TRANSACTION_ABORTABLE (KIP-890). v6 (two-phase commit) is not stable in Kafka. Without a transactional id every call
gives a fresh id at epoch 0 (P-127), from blocks of 1,000 (P-59). Transactions do not exist here yet: a transactional
id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes for final, so that
`initTransactions` fails at once instead of trying again until its timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
    from pykbroker.request_context import RequestContext

NO_PRODUCER_ID = -1
NO_EPOCH = -1


async def handle_init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new producer id, or why not."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return _failure(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        if not request.transactional_id:
            return _failure(ErrorCode.INVALID_REQUEST)
        if not 0 < request.transaction_timeout_ms <= context.services.config.transaction_max_timeout_ms:
            return _failure(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return _failure(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await context.services.producer_ids.next()
    except CommandRefused as refused:
        # Without a block in time the client shall try again, as with a coordinator that is not ready.
        is_late = refused.error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
        return _failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_late else refused.error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failure(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
