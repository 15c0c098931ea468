"""Producers of one partition: epochs, the last five batches of each, open transactions (P-51 to P-58).

Pure: no clock, no disk. A check changes no state; the caller writes the batch and then records it here, so that a
failed write has no effect. Offsets, sequences and epochs of -1 mean none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker.logstore.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from pykbroker.logstore.errors import TransactionCoordinatorFenced as CoordinatorFenced
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, SEQUENCE_MAX

NO_OFFSET: Final = -1
BATCHES_KEPT: Final = 5
ENDED_KEPT: Final = 1000
"""Number of ended transactions from which `ProducerState.has_many_ended` is true."""


class CachedBatch(NamedTuple):
    """One of the last batches of a producer; `timestamp_ms` is the largest timestamp of the batch."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; `last_offset` is the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """Verification with the coordinator, before a transaction's first append, that the partition is part of it (P-135).

    The object itself is the proof (KIP-890): the append must present the object that is stored for its producer. A
    marker that ends the transaction meanwhile removes that object, so that a late answer verifies nothing.

    Batches after `lowest_sequence` are refused while a batch whose verification has failed is to be sent again.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, epoch: int, sequence: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump

    def see(self, epoch: int, sequence: int) -> None:
        """Notes another waiting batch: a lower sequence of the same epoch, or any sequence of a higher epoch."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class ProducerEntry:
    """State of one producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "last_timestamp_ms")

    def __init__(
        self,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset
        # A list takes a fifth of the memory of a deque, whose block has 64 places; there may be very many producers.
        self.batches: list[CachedBatch] = []

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_in_transaction(self, epoch: int) -> bool:
        """True if a transaction of exactly this epoch is open; one of an older epoch may have ended elsewhere."""
        return self.current_txn_first_offset != NO_OFFSET and self.epoch == epoch

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        """The cached batch with exactly this epoch and these sequences (P-51)."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch; the cached batches of another epoch are removed."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


EPOCH_BUMP_TRANSACTION_VERSION = 2
"""The transaction.version from which on every transaction has an epoch of its own (KIP-890)."""


def last_sequence_of(first_sequence: int, offset_delta: int) -> int:
    """Sequence of a batch's last record: wraps from 2147483647 to 0 (P-53)."""
    if first_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (first_sequence + offset_delta) & SEQUENCE_MAX


UNKNOWN_PRODUCER = ProducerEntry()
"""State of a producer of which nothing is known; must not be changed."""


class ProducerState:
    """All producers of one partition.

    `end_offset` is the log offset up to which batches are reflected here.
    """

    __slots__ = ("_open_transactions", "_unreplicated", "_verifications", "end_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # Verification of each producer's first append in a transaction. After a restart it is made again.
        self._verifications: dict[int, Verification] = {}
        self.end_offset = 0
        # First offset -> producer id. Transactions begin at ascending offsets, so insertion order is offset order.
        self._open_transactions: dict[int, int] = {}
        # First offset -> last offset of ended transactions whose marker may still be above the high watermark.
        self._unreplicated: dict[int, int] = {}

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """Begins the verification of a transactional batch; its append takes the result (P-135).

        None if a transaction of this epoch is open here already: it was verified. `first_sequence` is -1 for a
        coordinator's own batches. `supports_epoch_bump`: the client begins every transaction with a new epoch
        (transaction.version 2). Raises InvalidProducerEpoch (P-55).
        """
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(producer_id, entry, epoch)
            if entry.is_in_transaction(epoch):
                return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(now_ms, epoch, first_sequence, supports_epoch_bump)
            self._verifications[producer_id] = verification
        else:
            verification.see(epoch, first_sequence)
        return verification

    def adopt_verifications(self, other: ProducerState) -> None:
        """Takes over the verifications that another log of this partition has begun: this log replaces it."""
        self._verifications = dict(other._verifications)

    def check_verified(self, producer_id: int, epoch: int, verification: Verification | None) -> None:
        """Checks that a transactional batch belongs to a verified transaction (P-135).

        Raises InvalidProducerEpoch (P-55) or InvalidTransactionState (P-138).
        """
        entry = self.producers.get(producer_id)
        if entry is not None:
            if entry.is_in_transaction(epoch):
                return
            self._check_epoch(producer_id, entry, epoch)
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise InvalidTransactionState(f"producer {producer_id}: the batch is not part of an open transaction")

    def check_append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset_delta: int,
        is_transactional: bool,
        verification: Verification | None = None,
        *,
        must_be_verified: bool = False,
    ) -> CachedBatch | None:
        """Checks a client's data batch. Returns the original if it is a duplicate, None if it may be appended.

        With `must_be_verified` a transactional batch needs its `verification`, unless the transaction is open here.
        Raises InvalidProducerEpoch (P-55), OutOfOrderSequence (P-52) or InvalidTransactionState (P-135, P-138).
        """
        entry = self.producers.get(producer_id)
        is_next = False
        if entry is not None and entry.epoch == epoch and entry.batches:
            # `_follows` without the call and the wrap to 0, which is checked below. True for nearly every batch:
            # it follows the last one, so that none of the cached ones is the same.
            is_next = 0 <= entry.batches[-1].last_sequence == first_sequence - 1
        if entry is not None and not is_next:
            duplicate = entry.find_duplicate(epoch, first_sequence, last_sequence_of(first_sequence, offset_delta))
            if duplicate is not None:
                return duplicate
        if is_transactional and must_be_verified:
            self.check_verified(producer_id, epoch, verification)
        if entry is not None and not is_next:
            self._check_epoch(producer_id, entry, epoch)
        if self._verifications:
            self._check_waiting_sequence(producer_id, entry, first_sequence)
        if entry is None:
            # P-54: the producer has expired or is new: any sequence is accepted.
            return None
        if epoch != entry.epoch:
            if first_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence}, not 0"
                    f" (last epoch {entry.epoch})"
                )
        elif not is_next and entry.epoch != NO_PRODUCER_EPOCH and not _follows(entry.last_sequence, first_sequence):
            raise OutOfOrderSequence(
                f"producer {producer_id}, epoch {epoch}: sequence {first_sequence} does not follow"
                f" {entry.last_sequence}"
            )
        if entry.current_txn_first_offset != NO_OFFSET and not is_transactional:
            raise InvalidTransactionState(f"producer {producer_id} has an open transaction but writes outside of it")
        return None

    def _check_waiting_sequence(self, producer_id: int, entry: ProducerEntry | None, first_sequence: int) -> None:
        """Checks the sequence of a producer whose transaction is being verified."""
        waiting = self._verifications.get(producer_id)
        if waiting is None:
            return
        if waiting.supports_epoch_bump and first_sequence != 0 and (entry is None or not entry.batches):
            # P-54: if each transaction has its own epoch, a sequence above 0 means that earlier batches are missing.
            raise OutOfOrderSequence(
                f"producer {producer_id} begins its transaction with sequence {first_sequence}, not 0"
            )
        if first_sequence > waiting.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {producer_id}: sequence {first_sequence} must follow {waiting.lowest_sequence}, which waits"
            )

    def check_coordinator_append(self, producer_id: int, epoch: int) -> None:
        """Checks the epoch of a data batch that a coordinator of this broker writes for a producer, and no sequence."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(producer_id, entry, epoch)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Checks a transaction marker before it is appended (P-133, P-136)."""
        # As in Kafka a producer that is not known has the epochs -1, below which a request may be.
        entry = self.producers.get(producer_id, UNKNOWN_PRODUCER)
        if transaction_version >= EPOCH_BUMP_TRANSACTION_VERSION and epoch == entry.epoch:
            # KAFKA-19999: a marker written again after its transaction ended is a retry, not a zombie.
            if entry.current_txn_first_offset != NO_OFFSET and epoch != 0x7FFF:
                raise InvalidProducerEpoch(f"marker of producer {producer_id} repeats epoch {epoch}")
        else:
            self._check_epoch(producer_id, entry, epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(
                f"marker of producer {producer_id} from coordinator epoch {coordinator_epoch},"
                f" last seen {entry.coordinator_epoch}"
            )

    @staticmethod
    def _check_epoch(producer_id: int, entry: ProducerEntry, epoch: int) -> None:
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id}: epoch {epoch} is older than {entry.epoch}")

    def record_batch(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        """Updates the state by a data batch that was appended."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.set_epoch(epoch)
        # As last_sequence_of(...), without the call.
        last_sequence = NO_SEQUENCE if first_sequence == NO_SEQUENCE else (first_sequence + offset_delta) & SEQUENCE_MAX
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        # As CachedBatch(...), without the call of its Python function.
        batches.append(
            tuple.__new__(
                CachedBatch, (first_sequence, last_sequence, first_offset + offset_delta, offset_delta, timestamp_ms)
            )
        )
        entry.last_timestamp_ms = timestamp_ms
        if is_transactional:
            if entry.current_txn_first_offset == NO_OFFSET:
                entry.current_txn_first_offset = first_offset
                self._open_transactions[first_offset] = producer_id
            if self._verifications:
                self._verifications.pop(producer_id, None)

    def record_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int, is_abort: bool
    ) -> CompletedTransaction | None:
        """Updates the state by a marker that was appended; returns the transaction it has ended, None without one."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        entry.set_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        verification = self._verifications.get(producer_id)
        if verification is not None and not (verification.supports_epoch_bump and verification.epoch == epoch):
            # If each transaction has its own epoch, a verification of the marker's epoch is for the next transaction.
            del self._verifications[producer_id]
        first_offset = entry.current_txn_first_offset
        entry.current_txn_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._open_transactions.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        return CompletedTransaction(producer_id, first_offset, offset, is_abort)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """First offset of the oldest transaction that is still open, else the offset after this one's marker."""
        return min(self._open_transactions, default=completed.last_offset + 1)

    @property
    def first_unstable_offset(self) -> int:
        """First offset of the oldest transaction that is open or ended above the high watermark, -1 if none (P-68)."""
        if not self._open_transactions and not self._unreplicated:
            return NO_OFFSET
        return min((*self._open_transactions, *self._unreplicated))

    @property
    def has_many_ended(self) -> bool:
        """True if so many ended transactions are kept that those with replicated markers should be removed.

        The next reader of committed records removes them, but there may be none.
        """
        return len(self._unreplicated) >= ENDED_KEPT

    def forget_replicated(self, high_watermark: int) -> None:
        """Removes ended transactions whose markers are below the high watermark: they no longer hold back readers."""
        if self._unreplicated:
            self._unreplicated = {f: last for f, last in self._unreplicated.items() if last >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Removes verifications, and producers without an open transaction, that have been idle for too long (P-56)."""
        if self.producers:
            expired = [
                producer_id
                for producer_id, entry in self.producers.items()
                if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp_ms >= expiration_ms
            ]
            for producer_id in expired:
                del self.producers[producer_id]
        if self._verifications:
            self._verifications = {
                producer_id: verification
                for producer_id, verification in self._verifications.items()
                if now_ms - verification.created_ms < expiration_ms
            }

    def load(self, entries: Iterable[tuple[int, ProducerEntry]], end_offset: int) -> None:
        """Replaces everything by the entries of a snapshot taken at `end_offset`."""
        self.producers = dict(entries)
        self.end_offset = end_offset
        self._unreplicated = {}
        open_transactions = sorted(
            (entry.current_txn_first_offset, producer_id)
            for producer_id, entry in self.producers.items()
            if entry.current_txn_first_offset != NO_OFFSET
        )
        self._open_transactions = dict(open_transactions)


def _follows(last_sequence: int, next_sequence: int) -> bool:
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == SEQUENCE_MAX)
