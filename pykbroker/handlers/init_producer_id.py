"""InitProducerId (key 22): an id and epoch for an idempotent or a transactional producer (KIP-98).

Versions 0-5, and 6 with `unstable.api.versions.enable` (P-440). v2 flexible; v3 the producer's current id and epoch
(KIP-360); v4 PRODUCER_FENCED; v5 TRANSACTION_ABORTABLE (KIP-890); v6 two-phase commit (KIP-939, P-441). Without a
transactional id every request gets a new id at epoch 0 (P-127), from blocks of 1,000 (P-59). With one the transaction
coordinator decides (P-128, P-129); below v4 a fenced producer gets INVALID_PRODUCER_EPOCH (P-130). Needs WRITE on the
transactional id, and for a two-phase commit TWO_PHASE_COMMIT; without one IDEMPOTENT_WRITE on the cluster, or WRITE on
any topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, TWO_PHASE_COMMIT, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.init_producer_id import InitProducerIdResponse
from pykbroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pykbroker.requests.fenced_producer import error_for_producer

if TYPE_CHECKING:
    from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
    from pykbroker.requests.context import BrokerContext


async def handle_init_producer_id(context: BrokerContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Returns a new producer id or epoch."""
    if request.transactional_id is None:
        if not _may_be_idempotent(context):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not _may_use(context, request.transactional_id, two_phase_commit=request.enable2_pc):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(context, request, request.transactional_id)
    return InitProducerIdResponse(producer_id=await context.services.producer_ids.next(), producer_epoch=0)


def _may_be_idempotent(context: BrokerContext) -> bool:
    authorizer = context.services.authorizer
    if authorizer is None or context.authorize_cluster(IDEMPOTENT_WRITE):
        return True
    return authorizer.allows_any(context.connection.principal, context.connection.client_host, WRITE, TOPIC)


def _may_use(context: BrokerContext, transactional_id: str, *, two_phase_commit: bool) -> bool:
    if not context.authorize(WRITE, TRANSACTIONAL_ID, transactional_id):
        return False
    return not two_phase_commit or context.authorize(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)


async def _transactional(
    context: BrokerContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    expected = (request.producer_id, request.producer_epoch)
    error, producer_id, producer_epoch = await context.services.transactions.init_producer_id(
        transactional_id,
        request.transaction_timeout_ms,
        None if expected == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) else expected,
        two_phase_commit=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
    )
    return InitProducerIdResponse(
        error_code=error_for_producer(context, error), producer_id=producer_id, producer_epoch=producer_epoch
    )
