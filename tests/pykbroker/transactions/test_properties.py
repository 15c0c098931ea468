"""Invariants of a transaction under any order of requests, timeouts, failed appends and crashes.

One transactional id, several producers of both generations who believe to own it, a log that sometimes refuses, a
coordinator that is killed and reads the log again.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.state_log import decode_record, encode_key, encode_value
from pykbroker.transactions.states import ENDED, ENDING, LAST_EPOCH, LoggedState, TransactionState
from pykbroker.transactions.transaction import Outcome, Transaction

NAME = "x"
TIMEOUT_MS = 1_000
NOT_OWNERS = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

Known = tuple[int, int]

partitions = st.frozensets(st.tuples(st.just("t"), st.integers(0, 3)), min_size=1, max_size=3)
succeeds = st.sampled_from((True, True, True, False))


class Life(RuleBasedStateMachine):
    """`owner` is who may go on with the transaction, by what was answered; None when it was fenced."""

    @initialize(epoch=st.sampled_from((-1, 5, LAST_EPOCH - 4)), level=st.integers(0, 2))
    def begin(self, epoch: int, level: int) -> None:
        self.level = level
        self.now_ms = 1_000
        self.next_id = 1
        self.log: list[bytes] = []
        self.known: list[Known] = []
        self.owner: Known | None = None
        self.owner_in_log: Known | None = None
        self.durable: frozenset[TopicPartition] = frozenset()
        self.decision: bool | None = None
        self.marked: set[TopicPartition] = set()
        first = LoggedState(self.fresh_id(), producer_epoch=epoch, timeout_ms=TIMEOUT_MS, last_update_ms=self.now_ms)
        self.transaction = Transaction(NAME, first)
        if epoch >= 0:
            self.log.append(encode_value(first, level))

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def store(self, outcome: Outcome, is_stored: bool) -> bool:
        """The shell's part; whether the state is in the log."""
        assert outcome.state is not None
        assert outcome.error is ErrorCode.NONE
        if not is_stored:
            self.transaction.fail()
            return False
        before = self.last_logged()
        self.log.append(encode_value(outcome.state, self.level))
        self.transaction.on_stored(self.now_ms)
        if outcome.state.state is TransactionState.ONGOING:
            if before is None or before.state is not TransactionState.ONGOING:
                self.durable = frozenset()
            assert self.durable <= outcome.state.partitions
            self.durable = outcome.state.partitions
        elif outcome.state.state in ENDING:
            self.decision = outcome.state.state is TransactionState.PREPARE_COMMIT
            self.marked = set()
            assert outcome.state.partitions == self.durable
        return True

    def last_logged(self) -> LoggedState | None:
        if not self.log:
            return None
        decoded = decode_record(encode_key(NAME), self.log[-1])
        assert decoded is not None
        return decoded[1]

    def own(self, known: Known | None) -> None:
        self.owner = self.owner_in_log = known
        if known is not None and known not in self.known:
            self.known.append(known)

    def client(self, number: int) -> Known:
        choices = [*self.known, (999_999, 0), (0, 6)]  # nobody was ever given these
        return choices[number % len(choices)]

    # Requests

    @rule(expected=st.none() | st.integers(0, 20), is_stored=succeeds)
    def initialize_producer(self, expected: int | None, is_stored: bool) -> None:
        claimed = None if expected is None else self.client(expected)
        if self.transaction.may_be_fenced_by(claimed):
            self.fence(is_stored)
            return
        was_busy = self.transaction.pending is not None
        outcome = self.transaction.initialize(TIMEOUT_MS, claimed, self.now_ms)
        if outcome.needs_producer_id:
            outcome = self.transaction.initialize(TIMEOUT_MS, claimed, self.now_ms, self.fresh_id())
        assert not was_busy or outcome.error is ErrorCode.CONCURRENT_TRANSACTIONS
        if outcome.state is None:
            assert outcome.error is not ErrorCode.NONE
            assert claimed is not None or was_busy
            return
        assert outcome.answer[1] < LAST_EPOCH
        if claimed is None:
            assert outcome.answer not in self.known
        if self.store(outcome, is_stored):
            self.own(outcome.answer)
            self.durable = frozenset()

    @rule(number=st.integers(0, 20), added=partitions, is_new=st.booleans(), is_stored=succeeds)
    def add_partitions(self, number: int, added: frozenset[TopicPartition], is_new: bool, is_stored: bool) -> None:
        known = self.client(number)
        was_busy = self.transaction.pending is not None
        outcome = self.transaction.add(*known, added, 2 if is_new and self.level else 0, self.now_ms)
        if was_busy:
            assert outcome.error is ErrorCode.CONCURRENT_TRANSACTIONS
        elif known == self.owner:
            assert outcome.error is ErrorCode.NONE
        else:
            assert outcome.error in NOT_OWNERS
        if outcome.state is not None:
            self.store(outcome, is_stored)
        elif outcome.error is ErrorCode.NONE:
            assert added <= self.durable

    @rule(number=st.integers(0, 20), is_commit=st.booleans(), is_new=st.booleans(), is_stored=succeeds)
    def end(self, number: int, is_commit: bool, is_new: bool, is_stored: bool) -> None:
        known = self.client(number)
        version = 2 if is_new and self.level else 0
        was_ongoing = self.transaction.current.state is TransactionState.ONGOING and self.transaction.pending is None
        outcome = self.transaction.end(*known, is_commit, version, self.now_ms)
        if outcome.needs_producer_id:
            outcome = self.transaction.end(*known, is_commit, version, self.now_ms, self.fresh_id())
        if outcome.state is None:
            if outcome.error is ErrorCode.NONE:
                assert self.decision is is_commit, "a repetition is told what was decided"
            return
        assert known == self.owner
        assert was_ongoing or not is_commit
        if not was_ongoing:
            self.durable = frozenset()
        if self.store(outcome, is_stored):
            assert self.decision is is_commit
            if version:
                assert outcome.answer not in self.known
                assert outcome.answer[1] < LAST_EPOCH
                self.own(outcome.answer)

    # Time, markers, the log

    @precondition(lambda self: self.transaction.current.state is TransactionState.ONGOING)
    @rule(is_stored=succeeds)
    def time_out(self, is_stored: bool) -> None:
        self.now_ms += TIMEOUT_MS + 1
        assert self.transaction.has_timed_out(self.now_ms) is (self.transaction.pending is None)
        self.fence(is_stored)

    def fence(self, is_stored: bool) -> None:
        outcome = self.transaction.fence_and_abort(self.level, self.now_ms)
        if outcome.needs_producer_id:
            outcome = self.transaction.fence_and_abort(self.level, self.now_ms, self.fresh_id())
        if self.level < 2:
            self.owner = None  # at once; what the log says counts again after a crash
        if self.store(outcome, is_stored):
            assert self.decision is False
            self.own(None)

    @precondition(lambda self: self.transaction.current.state in ENDING)
    @rule(is_stored=succeeds, count=st.integers(0, 5))
    def write_markers(self, is_stored: bool, count: int) -> None:
        now = self.transaction.current
        for partition in sorted(now.partitions)[:count]:
            assert (self.transaction.current.state is TransactionState.PREPARE_COMMIT) is self.decision
            self.marked.add(partition)
            self.transaction.marker_written(partition)
        if not self.transaction.partitions and is_stored:
            assert self.transaction.pending is not None
            assert self.marked >= self.durable
            self.log.append(encode_value(self.transaction.pending, self.level))
            self.transaction.on_stored(self.now_ms)
            self.durable = frozenset()

    @rule()
    def crash(self) -> None:
        logged = self.last_logged()
        if logged is None:
            first = self.transaction.current._replace(producer_epoch=-1, last_producer_epoch=-1)
            self.transaction = Transaction(NAME, first)
            return
        self.transaction = Transaction(NAME, logged)
        assert self.transaction.resume(self.now_ms) is (logged.state in ENDING)
        self.owner = self.owner_in_log

    @rule(level=st.integers(1, 2))
    def change_level(self, level: int) -> None:
        """Between the levels whose records say everything; level 0 is chosen at the beginning."""
        if self.level:
            self.level = level

    # What always holds

    @invariant()
    def the_state_is_the_logs(self) -> None:
        """But for markers that are written, and for the fence that a failed append leaves in memory."""
        logged = self.last_logged()
        now = self.transaction.current
        if logged is None:
            assert now.state is TransactionState.EMPTY
            return
        assert now.state is logged.state
        assert now.producer_id == logged.producer_id
        assert now.producer_epoch - logged.producer_epoch in (0, 1)
        assert now.partitions <= logged.partitions
        if logged.state not in ENDING:
            assert now.partitions == logged.partitions

    @invariant()
    def it_is_busy_exactly_while_it_ends(self) -> None:
        assert (self.transaction.pending is not None) is (self.transaction.current.state in ENDING)

    @invariant()
    def only_an_open_transaction_has_partitions(self) -> None:
        now = self.transaction.current
        assert now.state not in ENDED or not now.partitions
        assert now.state is not TransactionState.ONGOING or now.start_ms >= 0

    @invariant()
    def epochs_only_grow(self) -> None:
        entries = [decode_record(encode_key(NAME), value) for value in self.log[-2:]]
        states = [entry[1] for entry in entries if entry is not None and entry[1] is not None]
        for before, after in pairwise(states):
            assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)

    @invariant()
    def an_open_transaction_never_expires(self) -> None:
        expires = self.transaction.has_expired(self.now_ms + 10**9, 1)
        assert expires is (self.transaction.current.state in ENDED)


TestLife = Life.TestCase
