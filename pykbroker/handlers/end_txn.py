"""EndTxn (key 26): commits or aborts a transaction.

Versions 0-5. v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 producer id and epoch for the next
transaction (KIP-890): only clients of transaction.version 2 send it. The response is sent once the decision is durable
(P-132), the markers are written after it. Needs WRITE on the transactional id.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import TV_0, TV_2
from pykbroker.protocol.acl_codes import TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.fenced_producer import error_for_producer

EPOCH_BUMP_VERSION = 5


async def handle_end_txn(context: BrokerContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commits or aborts the transaction (P-132, P-134, P-136)."""
    context.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    error, producer_id, producer_epoch = await context.services.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        client_version=TV_2 if context.api_version >= EPOCH_BUMP_VERSION else TV_0,
        after_reply=context.connection.after_reply,
    )
    return EndTxnResponse(
        error_code=error_for_producer(context, error), producer_id=producer_id, producer_epoch=producer_epoch
    )
