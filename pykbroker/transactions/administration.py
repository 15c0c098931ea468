"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import trio

from pykbroker.errors import CoordinatorError
from pykbroker.java_order import eager_table_size, slot
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.transactions.coordinator import TransactionCoordinator
    from pykbroker.transactions.shard import TransactionFilter
    from pykbroker.transactions.transaction import Transaction

LISTED_PER_TURN = 1_000
"""Transactions that ListTransactions examines before it yields to other requests."""
MATCHED_PER_TURN = 10_000
"""Characters of their ids after which it yields, too: a pattern may cost some microseconds for each."""


def describe_transaction(coordinator: TransactionCoordinator, transactional_id: str) -> Transaction:
    """The newest transaction of a transactional id.

    Raises:
        CoordinatorError: this broker does not coordinate it, or there is none.
    """
    if not transactional_id:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST)
    _, shard = coordinator.runtime.find(transactional_id)
    found = shard.transactions.get(transactional_id)
    if found is None:
        raise CoordinatorError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return found


async def list_transactions(coordinator: TransactionCoordinator, wanted: TransactionFilter) -> list[Transaction]:
    """The transactions of this broker, in the order of Kafka's hash tables (P-615).

    Raises:
        CoordinatorError: some are still being loaded.
    """
    runtime = coordinator.runtime
    if runtime.is_loading:
        raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = runtime.now_ms()
    found: list[Transaction] = []
    everything = [[*shard.transactions.values()] for _, shard in sorted(runtime.shards.items())]
    count = size = 0
    for transactions in everything:
        table_size = eager_table_size(len(transactions))
        of_shard: list[tuple[int, Transaction]] = []
        for transaction in transactions:
            if wanted.matches(transaction, now_ms):
                of_shard.append((slot(transaction.transactional_id, table_size), transaction))
            count, size = count + 1, size + len(transaction.transactional_id)
            if count == LISTED_PER_TURN or size >= MATCHED_PER_TURN:
                count = size = 0
                await trio.lowlevel.checkpoint()
        of_shard.sort(key=itemgetter(0))
        found += [transaction for _, transaction in of_shard]
    return found
