"""The transactional ids of one partition of `__transaction_state`: replay, timeouts, expiry, the filter of lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from pykbroker.coordination.shard import CoordinatorResult, CoordinatorShard, LoggedRecords
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.state_log import decode_record, encode_key, encode_partitions, encode_value
from pykbroker.transactions.states import ENDING, STATES_BY_TITLE, LoggedState, TransactionState
from pykbroker.transactions.transaction import Outcome, Transaction

TOMBSTONE_BYTES = 32
"""Upper bound of a tombstone's size without its transactional id."""

TOMBSTONES_BATCH_BYTES = 100_000
"""Size of a batch of tombstones: very many ids may expire at once, more than one batch may hold."""


LARGE = 128
"""Number of a transaction's partitions from which they are encoded in steps; each takes 1.5 us."""


class EncodedPartitions(NamedTuple):
    """Partitions of a transaction as its records have them at a finalized transaction.version."""

    partitions: frozenset[TopicPartition]
    level: int
    encoded: list[bytes]


class TransactionEvent(Protocol):
    """A request or a timeout, which is applied to a transaction."""

    def apply(self, transaction: Transaction, now_ms: int, fresh_id: int | None) -> Outcome:
        """The outcome; `fresh_id` is a producer id if an earlier outcome needed one."""


AfterReply = Callable[[Callable[[], None]], None]
"""Takes a function that is to be run after the reply to the present request, before another request is served."""


class TransactionFilter(NamedTuple):
    """Filter of ListTransactions; empty collections, -1 and None match every transaction.

    Attributes:
        states: names of states; one that does not exist matches nothing.
        duration_ms: the transaction must have begun longer ago than this.
        matches_id: returns True if a transactional id is to be listed.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    matches_id: Callable[[str], bool] | None = None

    @property
    def unknown_states(self) -> list[str]:
        """Names in `states` of states that do not exist."""
        return [name for name in self.states if name not in STATES_BY_TITLE]

    def matches(self, transaction: Transaction, now_ms: int) -> bool:
        """True if a transaction is to be listed."""
        current = transaction.current
        return (
            not (self.producer_ids and current.producer_id not in self.producer_ids)
            and not (self.states and current.state.title not in self.states)
            and not (self.duration_ms >= 0 and now_ms - current.start_ms <= self.duration_ms)
            and (self.matches_id is None or self.matches_id(transaction.transactional_id))
        )


@dataclass(slots=True)
class TransactionResult(CoordinatorResult):
    """Records are pairs of a transactional id and its `LoggedState`, None for a tombstone.

    Attributes:
        decided: transactions whose decision is durable, so that their markers must be written.
        is_ongoing: True if a transaction is ongoing, which may time out.
        is_unloaded: True if the shard is unloaded, so that its transactions are no longer completed here.
        after_reply: takes the completion of the `decided` transaction; None if it is completed at once.
    """

    decided: list[Transaction] = field(default_factory=list)
    is_ongoing: bool = False
    is_unloaded: bool = False
    after_reply: AfterReply | None = None


class TransactionShard(CoordinatorShard[TransactionResult]):
    """The contents of one partition of `__transaction_state`, in memory.

    Args:
        coordinator_epoch: the leader epoch under which the partition was loaded.
        level: returns the finalized transaction.version, which determines the version of records.

    Attributes:
        coordinator_epoch: epoch for markers (P-133).
        transactions: the transactions, by transactional id.
    """

    def __init__(self, coordinator_epoch: int, level: Callable[[], int]) -> None:
        self._level = level
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        self._encoded: dict[str, EncodedPartitions] = {}
        """The partitions of large transactions, by transactional id, until these end."""

    def replay(self, transactional_id: str, state: LoggedState | None) -> None:
        """Applies a record; None, for a tombstone, removes the id."""
        if state is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = Transaction(transactional_id, state)

    def load(self, logged: LoggedRecords, now_ms: int) -> Steps[None]:
        """Replays the last record of each id."""
        for count, ((transactional_id, state), _) in enumerate(logged.decoded(logged.last, decode_record), 1):
            self.replay(transactional_id, state)
            if not count % PIECE:
                yield

    def loaded(self, now_ms: int) -> TransactionResult:
        """Returns the loaded transactions that are decided and still need their markers (P-142)."""
        decided = [transaction for transaction in self.transactions.values() if transaction.resume(now_ms)]
        return TransactionResult(decided=decided, is_ongoing=self.has_ongoing)

    def unload(self, now_ms: int) -> TransactionResult:
        """Returns a result with `is_unloaded`; there are no parked requests to answer."""
        return TransactionResult(is_unloaded=True)

    # Writing

    def handle(
        self,
        now_ms: int,
        transactional_id: str,
        event: TransactionEvent,
        fresh_id: int | None,
        after_reply: AfterReply | None,
    ) -> TransactionResult:
        """Applies an event to a transaction; the response is the outcome, whose state becomes the record."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return TransactionResult(response=Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        outcome = event.apply(transaction, now_ms, fresh_id)
        records = [] if outcome.state is None else [(transactional_id, outcome.state)]
        return TransactionResult(records, outcome, after_reply=after_reply)

    def encode(self, record: tuple[str, LoggedState | None]) -> tuple[bytes, bytes | None]:
        """Key and value as bytes."""
        transactional_id, state = record
        if state is None:
            self._encoded.pop(transactional_id, None)
            return encode_key(transactional_id), None
        level = self._level()
        return encode_key(transactional_id), encode_value(
            state, level, self._encoded_of(transactional_id, state, level)
        )

    def _encoded_of(self, transactional_id: str, state: LoggedState, level: int) -> list[bytes] | None:
        """The partitions of a state, if `prepare_partitions` has encoded them at this level."""
        known = self._encoded.get(transactional_id)
        if known is None:
            return None
        if state.state is TransactionState.EMPTY or (known.level, known.partitions) != (level, state.partitions):
            del self._encoded[transactional_id]
            return None
        return known.encoded

    def must_prepare(self, transactional_id: str, partitions: Collection[TopicPartition]) -> bool:
        """True if a transaction to which partitions are added will have so many that `prepare_partitions` is due."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and len(transaction.current.partitions) + len(partitions) > LARGE

    def prepare_partitions(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> Steps[None]:
        """Encodes the partitions of a transaction to which some are added, for its next records."""
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and not partitions <= transaction.current.partitions:
            every = transaction.current.partitions | partitions
            level = self._level()
            encoded = yield from encode_partitions(every, level)
            self._encoded[transactional_id] = EncodedPartitions(every, level, encoded)

    def appended(self, result: TransactionResult, now_ms: int, first_offset: int) -> None:
        """Makes ids with tombstones in flight busy, so that they begin no transaction."""
        for transactional_id, state in result.records:
            if state is None:
                self.transactions[transactional_id].expire()

    def stored(
        self, result: TransactionResult, error: ErrorCode, now_ms: int, first_offset: int
    ) -> TransactionResult | None:
        """Makes the pending states of transactions current; with an `error` drops them."""
        followed = TransactionResult(after_reply=result.after_reply)
        for transactional_id, state in result.records:
            transaction = self.transactions[transactional_id]
            if error is not ErrorCode.NONE:
                # The append of the record that completes a transaction is retried until it succeeds.
                if state is not None and transaction.current.state not in ENDING:
                    transaction.fail()
            elif state is None:
                del self.transactions[transactional_id]
            else:
                transaction.on_stored(now_ms)
                if transaction.current.state in ENDING:
                    followed.decided.append(transaction)
                elif transaction.current.state is TransactionState.ONGOING:
                    followed.is_ongoing = True
        return followed

    def replicated(self, result: TransactionResult, now_ms: int, first_offset: int) -> TransactionResult | None:
        """As in the base class. The transactions that are decided are completed at once."""
        result.after_reply = None
        return super().replicated(result, now_ms, first_offset)

    # Requests

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Adds an id, if it is new; its first record is that of its first InitProducerId."""
        state = LoggedState(producer_id, timeout_ms=timeout_ms, last_update_ms=now_ms)
        return self.transactions.setdefault(transactional_id, Transaction(transactional_id, state))

    def timed_out(self, now_ms: int) -> list[Transaction]:
        """Transactions that have timed out and are to be aborted (P-140)."""
        return [transaction for transaction in self.transactions.values() if transaction.has_timed_out(now_ms)]

    def expired(self, now_ms: int, expiration_ms: int) -> Iterator[TransactionResult]:
        """Tombstones of expired ids, in results of one batch each (P-56)."""
        result = TransactionResult()
        size = 0
        for transaction in list(self.transactions.values()):
            if transaction.has_expired(now_ms, expiration_ms):
                size += TOMBSTONE_BYTES + len(transaction.transactional_id.encode(errors="surrogatepass"))
                if result.records and size > TOMBSTONES_BATCH_BYTES:
                    yield result
                    result, size = TransactionResult(), 0
                result.records.append((transaction.transactional_id, None))
        if result.records:
            yield result

    @property
    def has_ongoing(self) -> bool:
        """True if a transaction is ongoing, which may time out."""
        return any(transaction.current.state is TransactionState.ONGOING for transaction in self.transactions.values())
