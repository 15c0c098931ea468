"""The states of a transaction, and the fields that a record has for a transactional id."""

from __future__ import annotations

from enum import IntEnum

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1
NO_TIMEOUT_MS = 2**31 - 1
"""Timeout of a transaction of a two-phase commit: it is never aborted because of its age (KIP-939)."""

LAST_EPOCH = 32767
"""The largest epoch, never given to a producer, so that every producer can be fenced."""


class TransactionState(IntEnum):
    """States with their numbers in the log.

    PREPARE_EPOCH_FENCE is never written: an ongoing transaction is fenced and moved to PREPARE_ABORT in one step.
    DEAD is the state of an id that expires: its tombstone is being written.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name in DescribeTransactions and ListTransactions, such as ``PrepareCommit``."""
        return _TITLES[self]


_TITLES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}

STATES_BY_TITLE = {title: state for state, title in _TITLES.items()}

ENDED = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
"""States without an open transaction: one may begin, the id may expire."""

ENDING = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""States of a transaction whose decision is durable; its markers are being written."""


class ProducerIdentity(NamedTuple):
    """The producer of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class LoggedState(NamedTuple):
    """Value of a record of `__transaction_state`; `last_producer_epoch` is kept in memory alone, as in Kafka.

    Attributes:
        previous_producer_id: producer id before this record; a producer whose epochs ran out may still send it.
        next_producer_id: producer id after the transaction's end, because the epochs run out; -1 for none.
        last_producer_epoch: epoch of the producer before, with which it may retry a request whose response was lost.
        timeout_ms: the transaction is aborted when it takes longer.
        partitions: partitions of the transaction; once it is decided, those that still need a marker.
        start_ms: time at which the first partition was added; -1 before.
        client_version: the transaction.version of the client's protocol: 0 or 2.
    """

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    last_update_ms: int = 0
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if the producer cannot have a further epoch under this id."""
        return is_epoch_exhausted(self.producer_epoch)


def is_epoch_exhausted(epoch: int) -> bool:
    """True if this is the last epoch that a producer may have; the one above it is for fencing."""
    return epoch >= LAST_EPOCH - 1
