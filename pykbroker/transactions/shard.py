"""The transactional ids of one partition of `__transaction_state`: replay, time, and what the tools ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from pykbroker.transactions.id_pattern import IdPattern
from pykbroker.transactions.states import STATES_BY_TITLE, LoggedState, TransactionState
from pykbroker.transactions.transaction import Transaction

TOMBSTONE_BYTES = 32
"""At most what a tombstone takes beside its transactional id."""

TOMBSTONES_BATCH_BYTES = 100_000
"""Expiry may end very many ids at once, more than one batch may hold."""


class TransactionFilter(NamedTuple):
    """Which transactions ListTransactions wants; empty collections, -1 and None mean all.

    Attributes:
        states: names of states; one that does not exist matches nothing.
        duration_ms: for longer than this.
        pattern: what the whole transactional id must match.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    pattern: IdPattern | None = None

    @property
    def unknown_states(self) -> list[str]:
        """Names that are no state's."""
        return [name for name in self.states if name not in STATES_BY_TITLE]

    def matches(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether a transaction is to be listed."""
        now = transaction.now
        return (
            not (self.producer_ids and now.producer_id not in self.producer_ids)
            and not (self.states and now.state.title not in self.states)
            and not (self.duration_ms >= 0 and now_ms - now.start_ms <= self.duration_ms)
            and (self.pattern is None or self.pattern.matches(transaction.transactional_id))
        )


class Shard:
    """All that one partition of `__transaction_state` holds, in memory.

    Attributes:
        coordinator_epoch: the leader epoch under which the partition was taken up; goes into markers (P-133).
        transactions: by transactional id.
    """

    def __init__(self, coordinator_epoch: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}

    def replay(self, transactional_id: str, state: LoggedState | None) -> None:
        """Takes over a record; None forgets the id."""
        if state is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = Transaction(transactional_id, state)

    def loaded(self, now_ms: int) -> list[str]:
        """After the replay: the ids whose transactions are decided and wait for their markers (P-142)."""
        return [
            transaction.transactional_id for transaction in self.transactions.values() if transaction.resume(now_ms)
        ]

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A new id, not in the log before its first InitProducerId is."""
        state = LoggedState(producer_id, timeout_ms=timeout_ms, last_update_ms=now_ms)
        return self.transactions.setdefault(transactional_id, Transaction(transactional_id, state))

    def timed_out(self, now_ms: int) -> list[Transaction]:
        """What is to be aborted (P-140)."""
        return [transaction for transaction in self.transactions.values() if transaction.has_timed_out(now_ms)]

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Their tombstones are in the log."""
        for transactional_id in transactional_ids:
            del self.transactions[transactional_id]

    def expired(self, now_ms: int, expiration_ms: int) -> Iterator[list[Transaction]]:
        """What gets a tombstone, as many at a time as may be in one batch (P-56)."""
        group: list[Transaction] = []
        size = 0
        for transaction in list(self.transactions.values()):
            if transaction.has_expired(now_ms, expiration_ms):
                size += TOMBSTONE_BYTES + len(transaction.transactional_id.encode(errors="surrogatepass"))
                if group and size > TOMBSTONES_BATCH_BYTES:
                    yield group
                    group, size = [], 0
                group.append(transaction)
        if group:
            yield group

    @property
    def has_ongoing(self) -> bool:
        """Whether time may end a transaction here."""
        return any(transaction.now.state is TransactionState.ONGOING for transaction in self.transactions.values())
