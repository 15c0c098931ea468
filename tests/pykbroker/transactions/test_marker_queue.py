"""The markers that wait for one other broker."""

from __future__ import annotations

from pykbroker.transactions.marker_queue import (
    MARKERS_PER_REQUEST,
    CompletingTransaction,
    MarkerQueue,
    Progress,
    markers_request,
)
from pykbroker.transactions.states import LoggedState, TransactionState
from pykbroker.transactions.transaction import Transaction


def completing(transactional_id: str, producer_id: int, count: int) -> CompletingTransaction:
    """A transaction that is committed and has so many partitions."""
    partitions = frozenset(("t", number) for number in range(count))
    state = LoggedState(producer_id, producer_epoch=0, state=TransactionState.PREPARE_COMMIT, partitions=partitions)
    return CompletingTransaction((0, transactional_id), Transaction(transactional_id, state), 1)


def put_all(queue: MarkerQueue, transaction: CompletingTransaction) -> None:
    for partition in transaction.to_do():
        transaction.in_flight.add(partition)
        queue.put(transaction, partition)


def test_a_request_has_no_more_markers_than_the_limit() -> None:
    """A transaction with more of them is in several requests, and the last one has room for another transaction."""
    queue = MarkerQueue()
    large, small = completing("large", 1, 2 * MARKERS_PER_REQUEST + 5), completing("small", 2, 3)
    put_all(queue, large)
    put_all(queue, small)
    batches = [queue.take(), queue.take(), queue.take()]
    assert queue.take() == []
    sizes = [[(found.key[1], len(partitions)) for found, partitions in batch] for batch in batches]
    limit = MARKERS_PER_REQUEST
    assert sizes == [[("large", limit)], [("large", limit)], [("large", 5), ("small", 3)]]
    asked = [
        number
        for batch in batches
        for marker in markers_request(batch).markers
        if marker.producer_id == 1
        for topic in marker.topics
        for number in topic.partition_indexes
    ]
    assert asked == list(range(2 * limit + 5))


def test_the_rest_of_a_transaction_that_is_over_is_dropped() -> None:
    queue = MarkerQueue()
    large = completing("large", 1, MARKERS_PER_REQUEST + 5)
    put_all(queue, large)
    assert len(queue.take()[0][1]) == MARKERS_PER_REQUEST
    large.is_over = True
    assert queue.take() == []


def test_markers_that_are_to_be_written() -> None:
    """Neither those in flight nor those that are there; one that has failed is written again."""
    transaction = completing("t", 1, 3)
    first, second, third = transaction.to_do()
    transaction.in_flight.update((first, second))
    assert transaction.to_do() == [third]
    assert transaction.has_to_do
    transaction.in_flight.add(third)
    assert not transaction.has_to_do
    transaction.answered(first, Progress.WRITTEN)
    assert not transaction.has_to_do
    transaction.answered(second, Progress.RETRY)
    assert transaction.has_to_do
    assert transaction.to_do() == [second]
