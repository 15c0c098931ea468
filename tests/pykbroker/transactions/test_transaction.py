"""One transaction where it waits for its log or its markers; everything else Kafka itself tells in test_as_kafka."""

from __future__ import annotations

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.transactions.events import AbortLate
from pykbroker.transactions.states import LAST_EPOCH, LoggedState, TransactionState
from pykbroker.transactions.transaction import Outcome, Transaction

P = 7
NOW_MS = 1_000
T0, T1 = ("t", 0), ("t", 1)


def stored(transaction: Transaction, outcome: Outcome) -> Outcome:
    assert outcome.state is not None
    transaction.on_stored(NOW_MS)
    return outcome


def producer(epoch: int = -1) -> Transaction:
    """After InitProducerId, with epoch + 1."""
    transaction = Transaction("x", LoggedState(P, producer_epoch=epoch))
    stored(transaction, transaction.initialize(60_000, None, NOW_MS))
    return transaction


def ongoing(epoch: int = 0, client_version: int = 0) -> Transaction:
    transaction = producer(epoch - 1)
    stored(transaction, transaction.add(P, epoch, frozenset({T0, T1}), client_version, NOW_MS))
    return transaction


def ending(*, is_commit: bool = True, client_version: int = 0) -> Transaction:
    transaction = ongoing(0, client_version)
    stored(transaction, transaction.end(P, 0, is_commit, client_version, NOW_MS))
    return transaction


@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_while_a_transaction_ends_everybody_waits_p_128_p_132(client_version: int, is_commit: bool) -> None:
    """P-128, P-132: whoever comes tries again; with a wrong producer id as well, but for an old client's EndTxn."""
    transaction = ending(is_commit=is_commit, client_version=client_version)
    epoch = transaction.current.producer_epoch
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.initialize(60_000, None, NOW_MS).error is busy
    assert transaction.initialize(60_000, (P, epoch), NOW_MS).error is busy
    for producer_id in (P, P + 1):
        assert transaction.add(producer_id, epoch, frozenset({T0}), client_version, NOW_MS).error is busy
        assert transaction.end(producer_id, epoch, True, 2, NOW_MS).error is busy
    assert transaction.end(P, epoch, True, 0, NOW_MS).error is busy
    assert transaction.end(P, epoch, False, 0, NOW_MS).error is busy
    assert transaction.end(P + 1, epoch, True, 0, NOW_MS).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transaction.end(P, epoch + 1, True, 0, NOW_MS).error is ErrorCode.PRODUCER_FENCED
    assert transaction.verify(P, epoch) is busy
    assert transaction.fence_and_abort(2, NOW_MS).error is busy
    assert not transaction.has_timed_out(NOW_MS + 10**9)
    assert not transaction.may_be_fenced_by(None)


def test_while_a_record_is_being_appended_everybody_waits() -> None:
    """For logs whose appends take their time."""
    transaction = producer()
    begun = transaction.add(P, 0, frozenset({T0}), 0, NOW_MS)
    assert begun.state is not None
    assert transaction.add(P, 0, frozenset({T1}), 0, NOW_MS).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.current.partitions == frozenset()
    transaction.on_stored(NOW_MS)
    assert transaction.current.partitions == {T0}


def test_a_failed_append_leaves_everything_as_it_was() -> None:
    transaction = ongoing()
    before = transaction.current
    assert transaction.end(P, 0, True, 2, NOW_MS).state is not None
    transaction.fail()
    assert (transaction.current, transaction.pending) == (before, None)
    assert transaction.end(P, 0, True, 2, NOW_MS).answer == (P, 1)


def test_partitions_without_a_marker() -> None:
    """The state of the decision's record stays as it is."""
    transaction = ending(client_version=2)
    assert transaction.partitions == {T0, T1}
    transaction.marker_written(T0)
    assert (transaction.partitions, transaction.current.partitions) == ({T1}, {T0, T1})
    transaction.marker_written(T1)
    assert not transaction.partitions
    transaction.on_stored(NOW_MS)
    assert transaction.partitions == frozenset()


@pytest.mark.parametrize("level", [0, 1])
def test_a_fence_that_fails_is_not_raised_again_p_140(level: int) -> None:
    """P-140: the old producer is fenced in memory at once; one epoch is enough for all attempts."""
    transaction = ongoing()
    for _ in range(3):
        outcome = transaction.fence_and_abort(level, NOW_MS)
        assert outcome.state is not None
        assert outcome.state.producer_epoch == 1
        transaction.fail()
        assert transaction.end(P, 0, True, 0, NOW_MS).error is ErrorCode.PRODUCER_FENCED
    stored(transaction, transaction.fence_and_abort(level, NOW_MS))
    for partition in (T0, T1):
        transaction.marker_written(partition)
    transaction.on_stored(NOW_MS)
    assert (transaction.current.state, transaction.current.producer_epoch) == (TransactionState.COMPLETE_ABORT, 1)


def test_a_fence_that_fails_with_epoch_bumps_is_none_p_140() -> None:
    """P-140: under transaction.version 2 the record brings the epoch, so without it the producer goes on."""
    transaction = ongoing(client_version=2)
    assert transaction.fence_and_abort(2, NOW_MS).state is not None
    transaction.fail()
    assert transaction.end(P, 0, True, 2, NOW_MS).state is not None


@pytest.mark.parametrize("level", [0, 2])
def test_the_last_epoch_can_be_fenced_p_129(level: int) -> None:
    """P-129: 32767 is for that; with epoch bumps the next producer id comes at the same time."""
    transaction = ongoing(LAST_EPOCH - 1)
    outcome = transaction.fence_and_abort(level, NOW_MS)
    assert outcome.needs_producer_id is (level == 2)
    if level == 2:
        outcome = transaction.fence_and_abort(level, NOW_MS, fresh_id=P + 1)
    stored(transaction, outcome)
    assert transaction.current.producer_epoch == LAST_EPOCH
    for partition in (T0, T1):
        transaction.marker_written(partition)
    transaction.on_stored(NOW_MS)
    now = transaction.current
    assert (now.producer_id, now.producer_epoch) == ((P + 1, 0) if level == 2 else (P, LAST_EPOCH))
    outcome = transaction.initialize(60_000, None, NOW_MS, fresh_id=None if level == 2 else P + 1)
    assert outcome.answer == ((P + 1, 1) if level == 2 else (P + 1, 0))


def test_replay_of_a_decided_transaction_p_142() -> None:
    """P-142: it is as busy as before, and ends in the same way."""
    transaction = ending(client_version=2)
    again = Transaction("x", transaction.current)
    assert again.resume(NOW_MS)
    assert again.pending == transaction.pending
    assert not Transaction("x", ongoing().current).resume(NOW_MS)


@pytest.mark.parametrize("level", [0, 2])
def test_only_what_goes_on_is_fenced(level: int) -> None:
    assert producer().fence_and_abort(level, NOW_MS).error is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_that_is_not_late_any_more_is_not_aborted() -> None:
    """P-140: the producer has ended it, and begun the next one, while the abort waited for a producer id."""
    transaction = ongoing()
    timed_out_ms = NOW_MS + 60_001
    assert AbortLate(timed_out_ms, 2).apply(transaction, timed_out_ms, None).error is ErrorCode.NONE
    transaction = ongoing()
    outcome = AbortLate(NOW_MS, 2).apply(transaction, timed_out_ms, None)
    assert (outcome.error, outcome.state) == (ErrorCode.INVALID_TXN_STATE, None)
    assert transaction.current.state is TransactionState.ONGOING
