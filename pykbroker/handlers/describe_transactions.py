"""DescribeTransactions (key 65), version 0 (KIP-664): state, timeout, start, producer and partitions of transactions.

Needs DESCRIBE on the transactional id; partitions of topics without DESCRIBE are left out.
"""

from __future__ import annotations

from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import CoordinatorError
from pykbroker.protocol.acl_codes import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.transactions.administration import describe_transaction


async def handle_describe_transactions(
    context: BrokerContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describes each transactional id independently of the others."""
    ids = EachInTurns(request.transactional_ids)
    states = [await _describe(context, transactional_id) async for transactional_id in ids]
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(context: BrokerContext, transactional_id: str) -> TransactionState:
    if not context.authorize(DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TransactionState(transactional_id=transactional_id, error_code=error)
    try:
        transaction = describe_transaction(context.services.transactions, transactional_id)
    except CoordinatorError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.error_code)
    current = transaction.current
    # The state is that of one moment; a transaction may have thousands of partitions.
    state = TransactionState(
        transactional_id=transactional_id,
        transaction_state=current.state.title,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.start_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
    )
    partitions = sorted(transaction.partitions)
    topics: dict[str, list[int]] = {}
    async for topic, number in EachInTurns(partitions):
        topics.setdefault(topic, []).append(number)
    hidden = await context.refused_in_turns(DESCRIBE, TOPIC, topics)
    state.topics = [
        TopicData(topic=name, partitions=numbers)
        async for name, numbers in EachInTurns(topics.items())
        if name not in hidden
    ]
    return state
