"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664).

Versions 0-2. v1 filter by duration (KIP-994); v2 filter by a regular expression for the id (KIP-1152). A transaction
must pass all filters. Ids without DESCRIBE are left out.
"""

from __future__ import annotations

from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.re2_pattern import InvalidPattern, compile_pattern
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE, TRANSACTIONAL_ID
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.transactions.administration import list_transactions
from pykbroker.transactions.shard import TransactionFilter


async def handle_list_transactions(
    context: BrokerContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Lists transactions that pass the filters; unknown state names are listed in the response."""
    text = request.transactional_id_pattern
    states, producer_ids = dict.fromkeys(request.state_filters), frozenset(request.producer_id_filters)
    try:
        matches_id = compile_pattern(text) if text else None
    except InvalidPattern:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION) from None
    wanted = TransactionFilter(states, producer_ids, request.duration_filter, matches_id)
    found = await list_transactions(context.services.transactions, wanted)
    ids = (transaction.transactional_id for transaction in found)
    hidden = await context.refused_in_turns(DESCRIBE, TRANSACTIONAL_ID, ids)
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states,
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.current.producer_id,
                transaction_state=transaction.current.state.title,
            )
            async for transaction in EachInTurns(found)
            if transaction.transactional_id not in hidden
        ],
    )
