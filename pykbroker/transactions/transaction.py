"""One transactional id: the requests that are allowed in each state, and the states that follow (P-127 to P-140).

Pure: an event goes in, an `Outcome` comes out. If it holds a `LoggedState`, the shard has that appended and then calls
`complete` or `fail`; until then the id is busy and other requests get CONCURRENT_TRANSACTIONS. After the record that
decides a transaction the id stays busy until its markers and the record that completes it are written.

Clients of both protocol generations may use one id (P-137). The request's version determines the generation of an
EndTxn; the finalized transaction.version determines that of an abort by the coordinator itself.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import TV_2
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.transactions.states import (
    ENDED,
    ENDING,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME_MS,
    NO_TIMEOUT_MS,
    LoggedState,
    TopicPartition,
    TransactionState,
    is_epoch_exhausted,
)


class Outcome(NamedTuple):
    """Result of an event.

    Attributes:
        error: the error, with which nothing changes; NONE without a `state` if the request was done before.
        state: state to be appended; `Transaction.complete` or `fail` must follow.
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
        now: the state of the last record. Once a transaction is decided, `now.partitions` are those without a marker.
        pending: the state that is being appended, or that will be when all markers are written; None if not busy.
    """

    __slots__ = ("_has_failed_fence", "_is_fencing", "now", "pending", "transactional_id")

    def __init__(self, transactional_id: str, now: LoggedState) -> None:
        self.transactional_id = transactional_id
        self.now = now
        self.pending: LoggedState | None = None
        self._has_failed_fence = False
        self._is_fencing = False

    # Beginning

    def initialize(
        self, timeout_ms: int, expected: tuple[int, int] | None, now_ms: int, fresh_id: int | None = None
    ) -> Outcome:
        """InitProducerId while no transaction is open: a higher epoch, or a new id when the epochs have run out.

        `expected` is the producer id and epoch in the request, None if it has none (KIP-360). While a transaction is
        ongoing, the event is `fence_and_abort` (P-128).
        """
        now = self.now
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._may_initialize(*expected):
            return Outcome(ErrorCode.PRODUCER_FENCED)
        assert now.state in ENDED
        fresh = now._replace(
            state=TransactionState.EMPTY,
            previous_producer_id=now.producer_id,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME_MS,
            last_update_ms=now_ms,
        )
        if now.is_epoch_exhausted and (expected is None or expected[1] == now.producer_epoch):
            if fresh_id is None:
                return NEEDS_PRODUCER_ID
            last = NO_EPOCH if expected is None else now.producer_epoch
            return self._begin(fresh._replace(producer_id=fresh_id, producer_epoch=0, last_producer_epoch=last))
        if now.is_epoch_exhausted:
            return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's error for an epoch that is not the current one
        if expected is None:
            epochs = (now.producer_epoch + 1, NO_EPOCH)
        elif now.producer_epoch == NO_EPOCH or expected[1] == now.producer_epoch:
            epochs = (now.producer_epoch + 1, now.producer_epoch)
        elif expected[1] == now.last_producer_epoch:
            epochs = (now.producer_epoch, now.last_producer_epoch)  # a retry, without another producer in between
        else:
            return Outcome(ErrorCode.PRODUCER_FENCED)
        return self._begin(fresh._replace(producer_epoch=epochs[0], last_producer_epoch=epochs[1]))

    def _may_initialize(self, producer_id: int, epoch: int) -> bool:
        now = self.now
        return (
            now.producer_epoch == NO_EPOCH
            or producer_id == now.producer_id
            or (producer_id == now.previous_producer_id and is_epoch_exhausted(epoch))
        )

    def may_be_fenced_by(self, expected: tuple[int, int] | None) -> bool:
        """True if an InitProducerId with `expected`, as in `initialize`, aborts an ongoing transaction."""
        is_ongoing = self.pending is None and self.now.state is TransactionState.ONGOING
        return is_ongoing and (expected is None or self._may_initialize(*expected))

    # Partitions

    def add(
        self, producer_id: int, epoch: int, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> Outcome:
        """Adds partitions; the first ones begin the transaction."""
        now = self.now
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        error = self._producer_error(producer_id, epoch)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        is_ongoing = now.state is TransactionState.ONGOING
        if is_ongoing and partitions <= now.partitions:
            return Outcome()
        return self._begin(
            now._replace(
                state=TransactionState.ONGOING,
                previous_producer_id=now.producer_id,
                partitions=now.partitions | partitions,
                start_ms=now.start_ms if is_ongoing else now_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )

    def verify(self, producer_id: int, epoch: int) -> ErrorCode:
        """NONE if partitions may be verified for this producer (P-135), else the error; the caller looks up each."""
        error = self._producer_error(producer_id, epoch)
        if error is ErrorCode.NONE and self.now.state in ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return error

    def _producer_error(self, producer_id: int, epoch: int) -> ErrorCode:
        if producer_id != self.now.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == self.now.producer_epoch else ErrorCode.PRODUCER_FENCED

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
        if self.now.state is TransactionState.ONGOING:
            return self._decide(is_commit, 0, now_ms, None)
        is_repetition = self.now.state is _complete(is_commit)
        return Outcome(ErrorCode.NONE if is_repetition else ErrorCode.INVALID_TXN_STATE)

    def _end_and_bump(
        self, producer_id: int, epoch: int, is_commit: bool, client_version: int, now_ms: int, fresh_id: int | None
    ) -> Outcome:
        """EndTxn under transaction.version 2: a new one has the current epoch, a retry the one below it (KIP-890)."""
        now = self.now
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_after_overflow = (
            now.previous_producer_id == producer_id and epoch == LAST_EPOCH - 1 and now.producer_epoch == 0
        )
        if producer_id != now.producer_id and not is_after_overflow:
            return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_complete = now.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        is_repetition = is_complete and (is_after_overflow or now.producer_epoch == epoch + 1)
        if not is_repetition and epoch != now.producer_epoch:
            return Outcome(ErrorCode.PRODUCER_FENCED)
        if is_repetition:
            if now.state is _complete(is_commit):
                return Outcome(answer=(now.producer_id, now.producer_epoch))
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        if is_commit and now.state is not TransactionState.ONGOING:
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        # A client that does not know if its partitions were added sends an abort to be sure, ongoing or not.
        return self._decide(is_commit, client_version, now_ms, fresh_id)

    def fence_and_abort(self, level: int, now_ms: int, fresh_id: int | None = None) -> Outcome:
        """Aborts the ongoing transaction under a higher epoch, which the old producer does not get (P-128, P-140).

        `level` is the finalized transaction.version. Used for a timeout, and for an InitProducerId during an ongoing
        transaction; the client retries that request and gets a still higher epoch.
        """
        if self.pending is not None:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.now.state is not TransactionState.ONGOING:
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        if level >= TV_2:
            return self._decide(False, level, now_ms, fresh_id)
        # The old producer is fenced now, even if the append fails; a later attempt does not raise the epoch again.
        if not self._has_failed_fence and self.now.producer_epoch < LAST_EPOCH:
            self.now = self.now._replace(producer_epoch=self.now.producer_epoch + 1, last_producer_epoch=NO_EPOCH)
        self._is_fencing = True
        return self._decide(False, 0, now_ms, None)

    def _decide(self, is_commit: bool, client_version: int, now_ms: int, fresh_id: int | None) -> Outcome:
        now = self.now
        epoch, last, next_id = now.producer_epoch, now.last_producer_epoch, NO_PRODUCER_ID
        if client_version >= TV_2:
            if now.is_epoch_exhausted:
                if fresh_id is None:
                    return NEEDS_PRODUCER_ID
                next_id = fresh_id
            epoch, last = min(epoch + 1, LAST_EPOCH), epoch
        outcome = self._begin(
            now._replace(
                state=_prepare(is_commit),
                previous_producer_id=now.producer_id,
                next_producer_id=next_id,
                producer_epoch=epoch,
                last_producer_epoch=last,
                start_ms=now.start_ms if now.state is TransactionState.ONGOING else now_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )
        assert outcome.state is not None
        if client_version < TV_2:
            return outcome
        completed = _completion(outcome.state, now_ms)
        return outcome._replace(answer=(completed.producer_id, completed.producer_epoch))

    def marker_written(self, partition: TopicPartition) -> None:
        """Removes a partition from `now`: its marker is written, or it was deleted and needs none."""
        assert self.now.state in ENDING
        self.now = self.now._replace(partitions=self.now.partitions - {partition})

    def resume(self, now_ms: int) -> bool:
        """Makes a replayed transaction busy if it is decided; True if so, as its markers must be written (P-142)."""
        if self.now.state not in ENDING:
            return False
        self.pending = _completion(self.now, now_ms)
        return True

    # Time

    def has_timed_out(self, now_ms: int) -> bool:
        """True if the ongoing transaction has outlived its timeout (P-140); never in a two-phase commit (P-441)."""
        now = self.now
        return (
            self.pending is None
            and now.state is TransactionState.ONGOING
            and now.timeout_ms != NO_TIMEOUT_MS
            and now.start_ms + now.timeout_ms < now_ms
        )

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """True if the id has been unused for `expiration_ms`, so that it is to be deleted (P-56)."""
        return self.pending is None and self.now.state in ENDED and self.now.last_update_ms <= now_ms - expiration_ms

    def expire(self) -> None:
        """Makes the id busy while its tombstone is being written."""
        assert self.pending is None
        self.pending = self.now._replace(state=TransactionState.DEAD)

    @property
    def is_new(self) -> bool:
        """True if the id has no record yet, so that it is neither described nor listed."""
        return self.now.producer_epoch == NO_EPOCH

    # The log

    def _begin(self, state: LoggedState) -> Outcome:
        self.pending = state
        return Outcome(state=state, answer=(state.producer_id, state.producer_epoch))

    def complete(self, now_ms: int) -> None:
        """Makes the pending state current, as its record is stored."""
        assert self.pending is not None
        self.now, self.pending = self.pending, None
        self._is_fencing = False
        if self.now.state in ENDING:
            self._has_failed_fence = False
            self.pending = _completion(self.now, now_ms)

    def fail(self) -> None:
        """Drops the pending state, which could not be appended."""
        self.pending = None
        self._has_failed_fence = self._has_failed_fence or self._is_fencing
        self._is_fencing = False


def _prepare(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _complete(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


def _completion(prepared: LoggedState, now_ms: int) -> LoggedState:
    """State of a decided transaction when all its markers are written."""
    is_commit = prepared.state is TransactionState.PREPARE_COMMIT
    completed = prepared._replace(
        state=_complete(is_commit),
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
    if prepared.client_version >= TV_2 and prepared.next_producer_id != NO_PRODUCER_ID:
        return completed._replace(producer_id=prepared.next_producer_id, producer_epoch=0)
    return completed
