"""Requests and timeouts as events, which a shard applies to a transaction."""

from __future__ import annotations

from pykbroker.controller.metadata.features import TV_0, TV_2
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.transaction import Outcome, Transaction


class InitializeProducer:
    """InitProducerId as an event: a fresh epoch, or the end of the ongoing transaction.

    Args:
        timeout_ms: of the producer's transactions.
        expected: producer id and epoch in the request; None if it has none.
        level: the finalized transaction.version.

    Attributes:
        is_fencing: True if the event has aborted an ongoing transaction; the client then has to retry (P-128).
    """

    __slots__ = ("_expected", "_level", "_timeout_ms", "is_fencing")

    def __init__(self, timeout_ms: int, expected: tuple[int, int] | None, level: int) -> None:
        self._timeout_ms = timeout_ms
        self._expected = expected
        self._level = level
        self.is_fencing = False

    def apply(self, transaction: Transaction, now_ms: int, fresh_id: int | None) -> Outcome:
        """Initializes the id, or aborts its transaction."""
        self.is_fencing = transaction.may_be_fenced_by(self._expected)
        if self.is_fencing:
            return transaction.fence_and_abort(self._level, now_ms, fresh_id)
        return transaction.initialize(self._timeout_ms, self._expected, now_ms, fresh_id)


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn of one transaction as an event; `level` is the finalized transaction.version."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int
    level: int

    def apply(self, transaction: Transaction, now_ms: int, fresh_id: int | None) -> Outcome:
        """Adds the partitions."""
        outcome = transaction.add(self.producer_id, self.producer_epoch, self.partitions, self.client_version, now_ms)
        return _storable(transaction, outcome, self.client_version, self.level)


class EndTransaction(NamedTuple):
    """EndTxn as an event; `level` is the finalized transaction.version."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    level: int

    def apply(self, transaction: Transaction, now_ms: int, fresh_id: int | None) -> Outcome:
        """Decides the transaction."""
        outcome = transaction.end(
            self.producer_id, self.producer_epoch, self.is_commit, self.client_version, now_ms, fresh_id
        )
        return _storable(transaction, outcome, self.client_version, self.level)


def _storable(transaction: Transaction, outcome: Outcome, client_version: int, level: int) -> Outcome:
    """The outcome, or UNSUPPORTED_VERSION if records of this level cannot hold the client's version (P-433).

    In Kafka the transactional id then stays busy until the broker's next start.
    """
    if outcome.state is None or client_version < TV_2 or level != TV_0:
        return outcome
    transaction.fail()
    return Outcome(ErrorCode.UNSUPPORTED_VERSION)


class AbortLate(NamedTuple):
    """Abort of a transaction that had timed out at `late_ms`; `level` is the finalized transaction.version."""

    late_ms: int
    level: int

    def apply(self, transaction: Transaction, now_ms: int, fresh_id: int | None) -> Outcome:
        """Aborts the transaction, unless it ended and the next one began while a producer id was allocated."""
        if transaction.has_timed_out(self.late_ms):
            return transaction.fence_and_abort(self.level, now_ms, fresh_id)
        return Outcome(ErrorCode.INVALID_TXN_STATE)
