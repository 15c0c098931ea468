"""The transaction coordinator of one broker: which ids are ours, timers, appends, replay, markers.

The trio shell around `Transaction`. It decides nothing about transactions; it carries outcomes out. Between two awaits
every shard is consistent with its log. The state machine is imported when the first transactional id appears.

A state counts when its record is replicated; until then the id is busy, also for those who were told that it takes too
long, so that memory never parts from the log. (Kafka forgets a state that is late, which may turn up again.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from pykbroker.coordination.internal_topic import InternalTopic, TopicCreation
from pykbroker.coordination.led_partitions import LedPartitions, MetadataSource, PartitionRegistry
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.coordination.replication_queue import ReplicationQueues
from pykbroker.coordination.timer import CoordinatorTimer
from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.broker_sender import Connect
    from pykbroker.coordination.replication_queue import Waiting
    from pykbroker.transactions.endings import Endings
    from pykbroker.transactions.markers import WriteMarker
    from pykbroker.transactions.remote_verification import RemoteVerification
    from pykbroker.transactions.settings import TransactionSettings
    from pykbroker.transactions.shard import Shard, TransactionFilter
    from pykbroker.transactions.states import LoggedState, TopicPartition
    from pykbroker.transactions.transaction import Outcome, Transaction
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

FEATURE = "transaction.version"

RETRY_MS = 200
"""Pause before a marker that could not be written is tried again, or the record that completes a transaction."""

LISTED_AT_ONCE = 1_000
"""How many transactions are looked at before other requests get their turn."""

SERVER_ADDS_PARTITIONS = 2
"""The transaction.version of clients whose partitions are added by the brokers they write to (P-136)."""


class Answer(NamedTuple):
    """For InitProducerId and EndTxn; without producer id and epoch when there is an error or nothing new."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """All transactional ids whose partition of `__transaction_state` this broker leads.

    Args:
        settings: limits and times.
        node_id: this broker.
        clock: time of day. What is measured goes on by trio's clock from there, so that a step of the wall clock
            aborts nobody's transaction.
        partitions: where to append to and read from.
        metadata: who leads which partition, which partitions exist, the finalized transaction.version.
        next_producer_id: a producer id that nobody had; raises KafkaError when there is none.
        create_internal_topic: creates `__transaction_state` through the controller.
        write_marker: appends a marker to a partition that this broker leads.
        connect: gives a connection to another broker, for the markers of its partitions.

    `run` must be running for timers to fire and for the log to be replayed. `on_metadata_change` is to be called after
    `partitions` has followed the same change.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        node_id: int,
        clock: WallClock,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        *,
        next_producer_id: Callable[[], Awaitable[int]],
        create_internal_topic: Callable[[InternalTopic], Awaitable[None]],
        write_marker: WriteMarker,
        connect: Connect,
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._timer = CoordinatorTimer(clock)
        self._metadata = metadata
        self._next_producer_id = next_producer_id
        self._topic_creation = TopicCreation(create_internal_topic)
        self._write_marker = write_marker
        self._connect = connect
        self._queues = ReplicationQueues(settings.request_timeout_ms / 1000)
        self._led: LedPartitions[Shard] = LedPartitions(
            TRANSACTION_TOPIC,
            node_id,
            partitions,
            metadata,
            make=self._make_shard,
            replay=self._replay,
            on_loaded=self._on_loaded,
            on_let_go=self._on_let_go,
        )
        self._endings: Endings | None = None  # made when the first transaction ends
        self._remote: RemoteVerification | None = None  # likewise, when an id is coordinated elsewhere
        self._retry_ms: int | None = None
        self._timeout_check_ms: int | None = None
        self._expiry_check_ms: int | None = None
        self._nursery: trio.Nursery | None = None

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Replays the partitions that are ours, reports started, then runs timers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._led.load_all(nursery)
            task_status.started()
            while True:
                await self._timer.wait_until((self._retry_ms, self._timeout_check_ms, self._expiry_check_ms))
                await self._run_due()

    def stop(self) -> None:
        """Sends away whoever comes from now on; for an orderly shutdown."""
        self._led.stop()

    def take_up_missing(self) -> None:
        """Tries again to read what could not be read or opened before; the disk may work again."""
        self._led.take_up_missing(self._nursery)

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Takes up partitions that became ours, lets go of others."""
        for waits_for_others in (self._endings, self._remote):
            if waits_for_others is not None:
                waits_for_others.look_again(self._is_there)
        topic = new.topics_by_name.get(TRANSACTION_TOPIC)
        if old.topics_by_name.get(TRANSACTION_TOPIC) is topic:
            return
        is_recreated = any(deleted.name == TRANSACTION_TOPIC for deleted in new.delta.deleted_topics)
        self._led.follow(self._nursery, is_recreated=is_recreated)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Begins to create `__transaction_state`, unless that is under way (P-89)."""
        from pykbroker.transactions.internal_topic import transaction_topic

        if self._nursery is not None:
            topic = transaction_topic(self._settings, live_broker_count)
            wanted = self._settings.transaction_state_log_replication_factor
            self._topic_creation.start(self._nursery, topic, wanted)

    @property
    def level(self) -> int:
        """The finalized transaction.version; 0 in a cluster that has none."""
        return self._metadata.image.features.get(FEATURE, 0)

    # Replay

    def _make_shard(self, partition: Any) -> Shard:
        from pykbroker.transactions.shard import Shard

        return Shard(partition.leader_epoch)

    async def _replay(self, partition: Any, shard: Shard) -> None:
        from pykbroker.coordination.log_io import last_records
        from pykbroker.protocol.errors import ProtocolError
        from pykbroker.transactions.state_log import decode_record

        for key, (offset, value) in (await last_records(partition.log)).items():
            try:
                decoded = decode_record(key, value)
            except ProtocolError as error:
                # One bad record must not take all ids of the partition away.
                log.error("%s: the record at offset %d is skipped: %s", partition.log.path, offset, error)
                continue
            if decoded is not None:
                shard.replay(*decoded)

    def _on_loaded(self, number: int, shard: Shard) -> None:
        for transactional_id in shard.loaded(self._timer.now_ms()):
            log.info("%r: the transaction goes on to its end", transactional_id)
            self._finish(number, shard.transactions[transactional_id])
        if shard.has_ongoing:
            self._plan_timeout_check()
        self._plan_expiry_check()

    def _on_let_go(self, number: int, shard: Shard) -> None:
        self._queues.close(number)
        if self._endings is not None:
            self._endings.let_go(number)

    # Requests of producers

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Answer:
        """A producer begins to use an id: it gets producer id and epoch, who had the id before is fenced.

        P-127 to P-129. `expected` is the producer id and epoch that it believes to have.
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        error = await self._create_if_new(transactional_id, timeout_ms)
        if error is not ErrorCode.NONE:
            return Answer(error)
        is_fencing = False

        def event(transaction: Transaction, fresh_id: int | None) -> Outcome:
            nonlocal is_fencing
            is_fencing = transaction.may_be_fenced_by(expected)
            if is_fencing:
                return transaction.fence_and_abort(self.level, self._timer.now_ms(), fresh_id)
            return transaction.initialize(timeout_ms, expected, self._timer.now_ms(), fresh_id)

        answer = await self._carry_out(transactional_id, event)
        if answer.error is ErrorCode.NONE and is_fencing:
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if answer.error is ErrorCode.NONE:
            log.info("%r: producer id %d, epoch %d", transactional_id, answer.producer_id, answer.producer_epoch)
        return answer

    async def _create_if_new(self, transactional_id: str, timeout_ms: int) -> ErrorCode:
        place = self._led.locate(transactional_id)
        if not isinstance(place, ErrorCode) and transactional_id not in place[1].transactions:
            try:
                producer_id = await self._next_producer_id()
            except KafkaError as error:
                return error.error_code
            place = self._led.locate(transactional_id)
            if not isinstance(place, ErrorCode):
                place[1].create(transactional_id, producer_id, timeout_ms, self._timer.now_ms())
        return place if isinstance(place, ErrorCode) else ErrorCode.NONE

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int,
    ) -> ErrorCode:
        """Adds partitions to the transaction, all or none; the first ones begin it (P-131)."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        added = frozenset(partitions)

        def event(transaction: Transaction, fresh_id: int | None) -> Outcome:
            return transaction.add(producer_id, producer_epoch, added, client_version, self._timer.now_ms())

        return (await self._carry_out(transactional_id, event)).error

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """What a partition's leader asks before it takes records of a transaction (P-135): the code for each partition.

        With `add` (transaction.version 2) the partitions become part of the transaction, else they must be already:
        TRANSACTION_ABORTABLE for those that are not.
        """
        if add:
            error = await self.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, client_version=SERVER_ADDS_PARTITIONS
            )
            return dict.fromkeys(partitions, error)
        return self._verify(transactional_id, producer_id, producer_epoch, partitions)

    def _verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        place = self._led.locate(transactional_id)
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        if isinstance(place, ErrorCode):
            return dict.fromkeys(partitions, place)
        transaction = place[1].transactions.get(transactional_id)
        if transaction is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        error = transaction.verify(producer_id, producer_epoch)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = transaction.now.partitions
        return {
            partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    async def verify_anywhere(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """As `verify`, of the id's coordinator wherever it is."""
        leader = self._led.leader(transactional_id)
        if leader is None or leader == self._node_id or self._nursery is None:
            return await self.verify(transactional_id, producer_id, producer_epoch, partitions, add=add)
        if leader < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        from pykbroker.transactions.remote_verification import Question, RemoteVerification

        if self._remote is None:
            self._remote = RemoteVerification(self._connect, self._settings.request_timeout_ms)
        question = Question(transactional_id, producer_id, producer_epoch, partitions, is_adding=add)
        return await self._remote.ask(self._nursery, leader, question)

    def _is_there(self, broker_id: int) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool, client_version: int
    ) -> Answer:
        """Commits or aborts; the decision is durable when this returns, markers may still follow (P-132)."""
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)

        def event(transaction: Transaction, fresh_id: int | None) -> Outcome:
            now_ms = self._timer.now_ms()
            return transaction.end(producer_id, producer_epoch, is_commit, client_version, now_ms, fresh_id)

        answer = await self._carry_out(transactional_id, event)
        return answer if client_version >= SERVER_ADDS_PARTITIONS else Answer(answer.error)

    # Administration

    def find(self, transactional_id: str) -> Transaction | ErrorCode:
        """One transaction for DescribeTransactions; TRANSACTIONAL_ID_NOT_FOUND if there is none."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        place = self._led.locate(transactional_id)
        if isinstance(place, ErrorCode):
            return place
        found = place[1].transactions.get(transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None or found.is_new else found

    async def list(self, wanted: TransactionFilter) -> list[Transaction] | ErrorCode:
        """The transactions of this broker; an error as long as some are still being loaded.

        Raises:
            InvalidPattern: the filter's pattern costs too much.
        """
        if self._led.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        now_ms = self._timer.now_ms()
        found: list[Transaction] = []
        everything = [transaction for shard in self._led.shards.values() for transaction in shard.transactions.values()]
        for count, transaction in enumerate(everything, start=1):
            if not transaction.is_new and wanted.matches(transaction, now_ms):
                found.append(transaction)
            if count % LISTED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return found

    # Carrying out

    async def _carry_out(self, transactional_id: str, event: Callable[[Transaction, int | None], Outcome]) -> Answer:
        """Lets an event happen to a transaction and appends what comes of it; answers when that is replicated."""
        answer, stored = await self._begin(transactional_id, event)
        if isinstance(stored, ErrorCode):
            return answer if stored is ErrorCode.NONE else Answer(stored)
        from pykbroker.coordination.log_io import response_error

        error = response_error(await stored.wait_answer())
        return answer if error is ErrorCode.NONE else Answer(error)

    async def _begin(
        self, transactional_id: str, event: Callable[[Transaction, int | None], Outcome]
    ) -> tuple[Answer, ErrorCode | Waiting]:
        """As `_carry_out`; gives the answer, and what it still has to wait for."""
        fresh_id: int | None = None
        while True:
            place = self._led.locate(transactional_id)
            if isinstance(place, ErrorCode):
                return Answer(place), place
            number, shard = place
            transaction = shard.transactions.get(transactional_id)
            if transaction is None:
                return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING), ErrorCode.NONE
            outcome = event(transaction, fresh_id)
            if not outcome.needs_producer_id:
                break
            try:
                fresh_id = await self._next_producer_id()
            except KafkaError as error:
                return Answer(error.error_code), ErrorCode.NONE
        stored: ErrorCode | Waiting = ErrorCode.NONE
        if outcome.state is not None:
            code, end_offset = self._append(number, [(transactional_id, outcome.state)])
            if code is not ErrorCode.NONE:
                transaction.fail()
                return Answer(code), code
            stored = self._when_replicated(number, end_offset, partial(self._completed, number, transaction))
        return Answer(outcome.error, *outcome.answer), stored

    def _completed(self, number: int, transaction: Transaction) -> None:
        """The pending state is in the log for good; what follows from it."""
        from pykbroker.transactions.states import ENDING, TransactionState

        transaction.complete(self._timer.now_ms())
        if transaction.now.state in ENDING:
            self._finish(number, transaction)
        elif transaction.now.state is TransactionState.ONGOING:
            self._plan_timeout_check()
        self._plan_expiry_check()

    def _when_replicated(self, number: int, end_offset: int, action: Callable[[], None]) -> ErrorCode | Waiting:
        """Does it at once where there are no other replicas."""
        if not self._queues.must_wait(number, self._led.partition(number), end_offset):
            action()
            return ErrorCode.NONE
        return self._queues.push(number, end_offset, action, lambda error: None, self._nursery)

    def _append(self, number: int, states: Sequence[tuple[str, LoggedState | None]]) -> tuple[ErrorCode, int]:
        """Appends one batch: the error, which is already the one for the client (P-115), and the batch's end."""
        from pykbroker.coordination.log_io import append_pairs, response_error
        from pykbroker.transactions.state_log import encode_key, encode_value

        partition = self._led.partition(number)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR, -1
        level = self.level
        pairs = [(encode_key(key), None if state is None else encode_value(state, level)) for key, state in states]
        error = response_error(append_pairs(partition, pairs, 0, self._clock.now_ms()))
        return error, partition.log.log_end_offset

    # Ending

    def _finish(self, number: int, transaction: Transaction) -> None:
        if self._endings is None:
            from pykbroker.transactions.endings import Endings

            self._endings = Endings(
                self._led,
                self._node_id,
                self._metadata,
                write_marker=self._write_marker,
                connect=self._connect,
                complete=self._complete_ending,
                request_retry=self._request_retry,
                timeout_ms=self._settings.request_timeout_ms,
            )
        self._endings.finish(self._nursery, number, transaction)

    def _complete_ending(self, number: int, transaction: Transaction) -> bool:
        assert transaction.pending is not None
        code, end_offset = self._append(number, [(transaction.transactional_id, transaction.pending)])
        if code is not ErrorCode.NONE:
            return False
        self._when_replicated(number, end_offset, lambda: transaction.complete(self._timer.now_ms()))
        return True

    def _request_retry(self) -> None:
        self._retry_ms = self._timer.now_ms() + RETRY_MS
        self._timer.wake()

    # Timers

    def _plan_timeout_check(self) -> None:
        """Timeouts are looked at while there are transactions; without any the coordinator sleeps for good."""
        if self._timeout_check_ms is None:
            interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._timeout_check_ms = self._timer.now_ms() + interval_ms
            self._timer.wake()

    def _plan_expiry_check(self) -> None:
        if self._expiry_check_ms is None and any(shard.transactions for shard in self._led.shards.values()):
            interval_ms = self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
            self._expiry_check_ms = self._timer.now_ms() + interval_ms
            self._timer.wake()

    async def _run_due(self) -> None:
        now_ms = self._timer.now_ms()
        if self._retry_ms is not None and self._retry_ms <= now_ms:
            self._retry_ms = None
            assert self._endings is not None
            self._endings.retry(self._nursery)
        if self._timeout_check_ms is not None and self._timeout_check_ms <= now_ms:
            self._timeout_check_ms = None
            await self._abort_timed_out(now_ms)
        if self._expiry_check_ms is not None and self._expiry_check_ms <= now_ms:
            self._expiry_check_ms = None
            self._remove_expired(now_ms)

    async def _abort_timed_out(self, now_ms: int) -> None:
        """Ends what takes too long, and fences its producer (P-140)."""
        from pykbroker.transactions.transaction import Outcome

        late = [transaction for shard in self._led.shards.values() for transaction in shard.timed_out(now_ms)]

        def event(transaction: Transaction, fresh_id: int | None) -> Outcome:
            # It may have ended, and the next one begun, while a producer id was awaited.
            if not transaction.has_timed_out(now_ms):
                return Outcome(ErrorCode.INVALID_TXN_STATE)
            return transaction.fence_and_abort(self.level, self._timer.now_ms(), fresh_id)

        for transaction in late:
            transactional_id = transaction.transactional_id
            # Others need not wait until the end of this one is replicated.
            answer, _ = await self._begin(transactional_id, event)
            if answer.error is ErrorCode.NONE:
                timeout_ms = transaction.now.timeout_ms
                log.info("%r: the transaction is aborted, it took longer than %d ms", transactional_id, timeout_ms)
            else:
                log.warning("%r: the late transaction is not aborted: %s", transactional_id, answer.error.name)
        if any(shard.has_ongoing for shard in self._led.shards.values()):
            self._plan_timeout_check()

    def _remove_expired(self, now_ms: int) -> None:
        expiration_ms = self._settings.transactional_id_expiration_ms
        for number, shard in self._led.shards.items():
            for gone in shard.expired(now_ms, expiration_ms):
                transactional_ids = [transaction.transactional_id for transaction in gone]
                code, end_offset = self._append(
                    number, [(transactional_id, None) for transactional_id in transactional_ids]
                )
                if code is ErrorCode.NONE:
                    for transaction in gone:
                        transaction.expire()
                    self._when_replicated(number, end_offset, partial(shard.forget, transactional_ids))
        self._plan_expiry_check()
