"""One transactional id: the requests that are allowed in each state, and the states that follow (P-127 to P-140).

Pure: an event goes in, an `Outcome` comes out. If it holds a `LoggedState`, the shard has that appended and then calls
`on_stored` or `fail`; until then the id is busy and other requests get CONCURRENT_TRANSACTIONS. After the record that
decides a transaction the id stays busy until its markers and the record that completes it are written.

Clients of both protocol generations may use one id (P-137). The request's version determines the generation of an
EndTxn; the finalized transaction.version determines that of an abort by the coordinator itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pykbroker.controller.metadata.features import TV_2
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.states import (
    ENDED,
    ENDING,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME_MS,
    NO_TIMEOUT_MS,
    LoggedState,
    TransactionState,
    is_epoch_exhausted,
)


class Outcome(NamedTuple):
    """Result of an event.

    Attributes:
        error: NONE, or the error of a request that changes nothing. NONE without a `state`: a retry, done before.
        state: state to be appended; `Transaction.on_stored` or `fail` must follow.
        needs_producer_id: the event must be repeated with a fresh producer id, because the epochs have run out.
        answer: producer id and epoch for the client.
    """

    error: ErrorCode = ErrorCode.NONE
    state: LoggedState | None = None
    needs_producer_id: bool = False
    answer: tuple[int, int] = (NO_PRODUCER_ID, NO_EPOCH)


NEEDS_PRODUCER_ID = Outcome(needs_producer_id=True)


class Transaction:
    """The transaction of one transactional id.

    Attributes:
        transactional_id: the id.
        current: the state of the last record.
        pending: the state that is being appended, or that will be when all markers are written; None if not busy.
    """

    __slots__ = ("_has_failed_fence", "_is_fencing", "_unmarked", "current", "pending", "transactional_id")

    def __init__(self, transactional_id: str, current: LoggedState) -> None:
        self.transactional_id = transactional_id
        self.current = current
        self.pending: LoggedState | None = None
        self._has_failed_fence = False
        self._is_fencing = False
        self._unmarked: set[TopicPartition] | None = None

    @property
    def partitions(self) -> AbstractSet[TopicPartition]:
        """Partitions of the transaction; after a decision those that still have no marker."""
        return self.current.partitions if self._unmarked is None else self._unmarked

    # Beginning

    def initialize(
        self, timeout_ms: int, expected: tuple[int, int] | None, now_ms: int, fresh_id: int | None = None
    ) -> Outcome:
        """InitProducerId while no transaction is open: a higher epoch, or a new id when the epochs have run out.

        `expected` is the producer id and epoch in the request, None if it has none (KIP-360). While a transaction is
        ongoing, the event is `fence_and_abort` (P-128).
        """
        current = self.current
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._may_initialize(*expected):
            return Outcome(ErrorCode.PRODUCER_FENCED)
        assert current.state in ENDED
        fresh = current._replace(
            state=TransactionState.EMPTY,
            previous_producer_id=current.producer_id,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME_MS,
            last_update_ms=now_ms,
        )
        if current.is_epoch_exhausted and (expected is None or expected[1] == current.producer_epoch):
            if fresh_id is None:
                return NEEDS_PRODUCER_ID
            last = NO_EPOCH if expected is None else current.producer_epoch
            return self._prepare_transition(
                fresh._replace(producer_id=fresh_id, producer_epoch=0, last_producer_epoch=last)
            )
        if current.is_epoch_exhausted:
            return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's error for an epoch that is not the current one
        if expected is None:
            epochs = (current.producer_epoch + 1, NO_EPOCH)
        elif current.producer_epoch == NO_EPOCH or expected[1] == current.producer_epoch:
            epochs = (current.producer_epoch + 1, current.producer_epoch)
        elif expected[1] == current.last_producer_epoch:
            epochs = (
                current.producer_epoch,
                current.last_producer_epoch,
            )  # a retry, without another producer in between
        else:
            return Outcome(ErrorCode.PRODUCER_FENCED)
        return self._prepare_transition(fresh._replace(producer_epoch=epochs[0], last_producer_epoch=epochs[1]))

    def _may_initialize(self, producer_id: int, epoch: int) -> bool:
        current = self.current
        return (
            current.producer_epoch == NO_EPOCH
            or producer_id == current.producer_id
            or (producer_id == current.previous_producer_id and is_epoch_exhausted(epoch))
        )

    def may_be_fenced_by(self, expected: tuple[int, int] | None) -> bool:
        """True if an InitProducerId with `expected`, as in `initialize`, aborts an ongoing transaction."""
        is_ongoing = self.pending is None and self.current.state is TransactionState.ONGOING
        return is_ongoing and (expected is None or self._may_initialize(*expected))

    # Partitions

    def add(
        self, producer_id: int, epoch: int, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> Outcome:
        """Adds partitions; the first ones begin the transaction."""
        current = self.current
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        error = self._producer_error(producer_id, epoch)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        is_ongoing = current.state is TransactionState.ONGOING
        if is_ongoing and partitions <= current.partitions:
            return Outcome()
        return self._prepare_transition(
            current._replace(
                state=TransactionState.ONGOING,
                previous_producer_id=current.producer_id,
                partitions=current.partitions | partitions,
                start_ms=current.start_ms if is_ongoing else now_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )

    def verify(self, producer_id: int, epoch: int) -> ErrorCode:
        """NONE if partitions may be verified for this producer (P-135), else the error; the caller looks up each."""
        error = self._producer_error(producer_id, epoch)
        if error is ErrorCode.NONE and self.current.state in ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return error

    def _producer_error(self, producer_id: int, epoch: int) -> ErrorCode:
        if producer_id != self.current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == self.current.producer_epoch else ErrorCode.PRODUCER_FENCED

    # Ending

    def end(
        self,
        producer_id: int,
        epoch: int,
        is_commit: bool,
        client_version: int,
        now_ms: int,
        fresh_id: int | None = None,
    ) -> Outcome:
        """EndTxn of a client (P-132, P-134, P-136)."""
        if client_version >= TV_2:
            return self._end_and_bump(producer_id, epoch, is_commit, client_version, now_ms, fresh_id)
        error = self._producer_error(producer_id, epoch)
        if error is ErrorCode.NONE and self.pending is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            return Outcome(error)
        if self.current.state is TransactionState.ONGOING:
            return self._decide(is_commit, 0, now_ms, None)
        is_repetition = self.current.state is _completed_state(is_commit)
        return Outcome(ErrorCode.NONE if is_repetition else ErrorCode.INVALID_TXN_STATE)

    def _end_and_bump(
        self, producer_id: int, epoch: int, is_commit: bool, client_version: int, now_ms: int, fresh_id: int | None
    ) -> Outcome:
        """EndTxn under transaction.version 2: a new one has the current epoch, a retry the one below it (KIP-890)."""
        current = self.current
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_after_overflow = (
            current.previous_producer_id == producer_id and epoch == LAST_EPOCH - 1 and current.producer_epoch == 0
        )
        if producer_id != current.producer_id and not is_after_overflow:
            return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_complete = current.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        is_repetition = is_complete and (is_after_overflow or current.producer_epoch == epoch + 1)
        if not is_repetition and epoch != current.producer_epoch:
            return Outcome(ErrorCode.PRODUCER_FENCED)
        if is_repetition:
            if current.state is _completed_state(is_commit):
                return Outcome(answer=(current.producer_id, current.producer_epoch))
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        if is_commit and current.state is not TransactionState.ONGOING:
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        # An abort needs no ongoing transaction: after an error a client may not know if its partitions were added.
        return self._decide(is_commit, client_version, now_ms, fresh_id)

    def fence_and_abort(self, level: int, now_ms: int, fresh_id: int | None = None) -> Outcome:
        """Aborts the ongoing transaction under a higher epoch, which the old producer does not get (P-128, P-140).

        `level` is the finalized transaction.version. Used for a timeout, and for an InitProducerId during an ongoing
        transaction; the client retries that request and gets a still higher epoch.
        """
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.current.state is not TransactionState.ONGOING:
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        if level >= TV_2:
            return self._decide(False, level, now_ms, fresh_id)
        # The old producer is fenced now, even if the append fails; a later attempt does not raise the epoch again.
        if not self._has_failed_fence and self.current.producer_epoch < LAST_EPOCH:
            self.current = self.current._replace(
                producer_epoch=self.current.producer_epoch + 1, last_producer_epoch=NO_EPOCH
            )
        self._is_fencing = True
        return self._decide(False, 0, now_ms, None)

    def _decide(self, is_commit: bool, client_version: int, now_ms: int, fresh_id: int | None) -> Outcome:
        current = self.current
        epoch, last, next_id = current.producer_epoch, current.last_producer_epoch, NO_PRODUCER_ID
        if client_version >= TV_2:
            if current.is_epoch_exhausted:
                if fresh_id is None:
                    return NEEDS_PRODUCER_ID
                next_id = fresh_id
            epoch, last = min(epoch + 1, LAST_EPOCH), epoch
        outcome = self._prepare_transition(
            current._replace(
                state=_prepared_state(is_commit),
                previous_producer_id=current.producer_id,
                next_producer_id=next_id,
                producer_epoch=epoch,
                last_producer_epoch=last,
                start_ms=current.start_ms if current.state is TransactionState.ONGOING else now_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )
        assert outcome.state is not None
        if client_version < TV_2:
            return outcome
        completed = _after_markers(outcome.state, now_ms)
        return outcome._replace(answer=(completed.producer_id, completed.producer_epoch))

    def marker_written(self, partition: TopicPartition) -> None:
        """Removes a partition from `partitions`: its marker is written, or it was deleted and needs none."""
        assert self.current.state in ENDING
        if self._unmarked is None:
            # Changed in place: a copy for each of thousands of markers would take longer than these.
            self._unmarked = set(self.current.partitions)
        self._unmarked.discard(partition)

    def resume(self, now_ms: int) -> bool:
        """Makes a replayed transaction busy if it is decided; True if so, as its markers must be written (P-142)."""
        if self.current.state not in ENDING:
            return False
        self.pending = _after_markers(self.current, now_ms)
        return True

    # Time

    def has_timed_out(self, now_ms: int) -> bool:
        """True if the ongoing transaction has outlived its timeout (P-140); never in a two-phase commit (P-441)."""
        current = self.current
        return (
            self.pending is None
            and current.state is TransactionState.ONGOING
            and current.timeout_ms != NO_TIMEOUT_MS
            and current.start_ms + current.timeout_ms < now_ms
        )

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """True if the id has been unused for `expiration_ms`, so that it is to be deleted (P-56)."""
        return (
            self.pending is None
            and self.current.state in ENDED
            and self.current.last_update_ms <= now_ms - expiration_ms
        )

    def expire(self) -> None:
        """Makes the id busy while its tombstone is being written."""
        assert self.pending is None
        self.pending = self.current._replace(state=TransactionState.DEAD)

    # The log

    def _prepare_transition(self, state: LoggedState) -> Outcome:
        self.pending = state
        return Outcome(state=state, answer=(state.producer_id, state.producer_epoch))

    def on_stored(self, now_ms: int) -> None:
        """Makes the pending state current, as its record is stored."""
        assert self.pending is not None
        self.current, self.pending, self._unmarked = self.pending, None, None
        self._is_fencing = False
        if self.current.state in ENDING:
            self._has_failed_fence = False
            self.pending = _after_markers(self.current, now_ms)

    def fail(self) -> None:
        """Drops the pending state, which could not be appended."""
        self.pending = None
        self._has_failed_fence = self._has_failed_fence or self._is_fencing
        self._is_fencing = False


def _prepared_state(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _completed_state(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


def _after_markers(prepared: LoggedState, now_ms: int) -> LoggedState:
    """State of a decided transaction when all its markers are written."""
    is_commit = prepared.state is TransactionState.PREPARE_COMMIT
    completed = prepared._replace(
        state=_completed_state(is_commit),
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
    if prepared.client_version >= TV_2 and prepared.next_producer_id != NO_PRODUCER_ID:
        return completed._replace(producer_id=prepared.next_producer_id, producer_epoch=0)
    return completed
