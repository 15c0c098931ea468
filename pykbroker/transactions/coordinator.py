"""The transaction coordinator of one broker: the requests of producers, each an event on a shard.

`Transaction` decides about one transactional id, `CoordinatorRuntime` has the part that all coordinators share. This
module gets fresh producer ids, and passes decided transactions to `TransactionCompletion`; timeouts are in `timeouts`,
the requests of administrators in `administration`. The state machine is imported before the first shard.

A state takes effect when its record is replicated. Until then the id is busy, even after the request got a timeout
error, so that memory never differs from the log. (Kafka drops a state that is late, whose record may be replicated
later.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.features import TRANSACTION_VERSION, TV_0, TV_2
from pykbroker.controller.turns import in_turns
from pykbroker.coordination.internal_topic import transaction_topic
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.coordination.runtime import CoordinatorRuntime
from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.broker_sender import Connect
    from pykbroker.coordination.runtime import CoordinatorEnvironment, Write
    from pykbroker.protocol.topic_partition import TopicPartition
    from pykbroker.transactions.completion import TransactionCompletion
    from pykbroker.transactions.marker_queue import WriteMarker
    from pykbroker.transactions.remote_verification import RemoteVerification
    from pykbroker.transactions.shard import (
        AfterReply,
        TransactionEvent,
        TransactionResult,
        TransactionShard,
    )
    from pykbroker.transactions.states import ProducerIdentity
    from pykbroker.transactions.timeouts import TransactionTimeouts
    from pykbroker.transactions.transaction import Outcome, Transaction

log = logging.getLogger(__name__)

SHARD_MODULES = (
    "pykbroker.coordination.shard",
    "pykbroker.transactions.states",
    "pykbroker.transactions.state_log",
    "pykbroker.transactions.transaction",
    "pykbroker.transactions.shard",
    "pykbroker.transactions.timeouts",
    "pykbroker.transactions.events",
    "pykbroker.controller.node_client",
    "pykbroker.coordination.broker_sender",
    "pykbroker.protocol.messages.write_txn_markers",
    "pykbroker.transactions.marker_queue",
    "pykbroker.transactions.completion",
)
"""Modules of a shard and of a transaction's end, in an order in which each imports few others."""


class Answer(NamedTuple):
    """Result of InitProducerId or EndTxn; producer id and epoch are -1 if there is an error or they do not change."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """All transactional ids whose partition of `__transaction_state` this broker leads.

    Args:
        config: the broker's settings.
        environment: the parts of the broker; its metadata has the finalized transaction.version, too.
        next_producer_id: returns a producer id that was never used; raises KafkaError when there is none.
        write_marker: appends a marker to a partition that this broker leads.
        connect: returns a connection to another broker, for markers of its partitions and for verification.

    Attributes:
        runtime: carries operations out on the shards; must be run.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: CoordinatorEnvironment,
        *,
        next_producer_id: Callable[[], Awaitable[int]],
        write_marker: WriteMarker,
        connect: Connect,
    ) -> None:
        self._config = config
        self._node_id = environment.node_id
        self._metadata = environment.metadata
        self._next_producer_id = next_producer_id
        self._write_marker = write_marker
        self._connect = connect
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_TOPIC,
            environment,
            make_shard=self._make_shard,
            deliver=self._deliver,
            append_timeout_ms=config.request_timeout_ms,
            shard_modules=SHARD_MODULES,
        )
        self._completion: TransactionCompletion | None = None  # made when the first transaction ends
        self._remote: RemoteVerification | None = None  # made when an id's coordinator is another broker
        self._timeouts: TransactionTimeouts | None = None  # made with the first transactional id

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads and unloads shards; fails requests to brokers that are not live any more."""
        for requests in (self._completion, self._remote):
            if requests is not None:
                requests.on_metadata_change(self._is_live)
        self.runtime.on_metadata_change(old, new)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Starts the creation of `__transaction_state`, unless one is in flight (P-89)."""
        self.runtime.request_topic_creation(transaction_topic(self._config.transactions, live_broker_count))

    def _make_shard(self, leader_epoch: int) -> TransactionShard:
        from pykbroker.transactions.shard import TransactionShard

        return TransactionShard(leader_epoch, lambda: self.level)

    @property
    def level(self) -> int:
        """The finalized transaction.version; 0 in a cluster that has none."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, TV_0)

    # Requests of producers

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> Answer:
        """Handles InitProducerId (P-127 to P-129): returns producer id and epoch, and fences the id's former producer.

        `expected` is the producer id and epoch in the request; None if it has none. With `two_phase_commit` the
        transaction has no timeout; `keep_prepared` is refused, as in Kafka 4.3.1, which has not built it (P-441).
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if two_phase_commit and not self._config.transactions.two_phase_commit_enable:
            return Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared:
            return Answer(ErrorCode.UNSUPPORTED_VERSION)
        if two_phase_commit:
            from pykbroker.transactions.states import NO_TIMEOUT_MS

            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._config.transactions.max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        try:
            await self._create_if_new(transactional_id, timeout_ms)
        except KafkaError as error:
            return Answer(error.error_code)
        from pykbroker.transactions.events import InitializeProducer

        event = InitializeProducer(timeout_ms, expected, self.level)
        answer = await self._carry_out(transactional_id, event)
        if answer.error is ErrorCode.NONE and event.is_fencing:
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if answer.error is ErrorCode.NONE:
            log.info(
                "transactional id %r has producer id %d and epoch %d",
                transactional_id,
                answer.producer_id,
                answer.producer_epoch,
            )
        return answer

    async def _create_if_new(self, transactional_id: str, timeout_ms: int) -> None:
        _, shard = self.runtime.find(transactional_id)
        if transactional_id not in shard.transactions:
            producer_id = await self._next_producer_id()
            _, shard = self.runtime.find(transactional_id)
            shard.create(transactional_id, producer_id, timeout_ms, self.runtime.now_ms())

    async def add_partitions(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition], *, client_version: int
    ) -> ErrorCode:
        """Adds partitions to the transaction, all or none; the first ones begin it (P-131)."""
        transactional_id, producer_id, epoch = producer
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        added = frozenset(partitions)
        with suppress(CoordinatorError):  # `_carry_out` raises the same error
            _, shard = self.runtime.find(transactional_id)
            if shard.must_prepare(transactional_id, added):
                await in_turns(shard.prepare_partitions(transactional_id, added))
        from pykbroker.transactions.events import AddPartitions

        event = AddPartitions(producer_id, epoch, added, client_version, self.level)
        return (await self._carry_out(transactional_id, event)).error

    async def verify(
        self, producer: ProducerIdentity, partitions: Sequence[TopicPartition], *, add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """Verifies partitions for a leader that is to append records of a transaction (P-135): an error code for each.

        With `add` (transaction.version 2) the partitions become part of the transaction, else they must be already:
        TRANSACTION_ABORTABLE for those that are not.
        """
        if add:
            error = await self.add_partitions(producer, partitions, client_version=TV_2)
            return dict.fromkeys(partitions, error)
        return self._verify(producer, partitions)

    def _verify(
        self, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        transactional_id = producer.transactional_id
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        try:
            _, shard = self.runtime.find(transactional_id)
        except CoordinatorError as refusal:
            return dict.fromkeys(partitions, refusal.error_code)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        error = transaction.verify(producer.producer_id, producer.producer_epoch)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = transaction.current.partitions
        return {
            partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    async def verify_anywhere(
        self, producer: ProducerIdentity, partitions: Sequence[TopicPartition], *, add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """As `verify`, by the id's coordinator on this broker or another one."""
        leader = self.runtime.leader(producer.transactional_id)
        if leader is None or leader == self._node_id or self.runtime.nursery is None:
            return await self.verify(producer, partitions, add=add)
        if leader < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        from pykbroker.transactions.remote_verification import PendingVerification, RemoteVerification

        if self._remote is None:
            self._remote = RemoteVerification(self._connect, self._config.request_timeout_ms)
        verification = PendingVerification(producer, partitions, is_adding=add)
        return await self._remote.ask(self.runtime.nursery, leader, verification)

    def _is_live(self, broker_id: int) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
        after_reply: AfterReply | None = None,
    ) -> Answer:
        """Commits or aborts; the decision is durable when this returns, the markers may be written later (P-132).

        If the decision's record needs no replication, `after_reply` is called with a function that writes the markers.
        The caller must run this function before another request is served, so that no client finds the markers missing
        after the reply.
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        from pykbroker.transactions.events import EndTransaction

        event = EndTransaction(producer_id, producer_epoch, is_commit, client_version, self.level)
        answer = await self._carry_out(transactional_id, event, after_reply)
        return answer if client_version >= TV_2 else Answer(answer.error)

    # Events

    async def _carry_out(
        self, transactional_id: str, event: TransactionEvent, after_reply: AfterReply | None = None
    ) -> Answer:
        """Applies an event to a transaction and waits until the resulting record is replicated."""
        try:
            write = await self._begin_event(transactional_id, event, after_reply)
            await write.wait()
        except KafkaError as error:
            return Answer(error.error_code)
        outcome: Outcome = write.result.response
        return Answer(outcome.error, *outcome.answer)

    async def _begin_event(
        self, transactional_id: str, event: TransactionEvent, after_reply: AfterReply | None = None
    ) -> Write[TransactionResult]:
        """Applies an event, with a fresh producer id if it needs one, and appends the resulting record.

        Raises:
            KafkaError: this broker does not coordinate the id, or there is no producer id.
        """
        from pykbroker.transactions.shard import TransactionShard

        fresh_id: int | None = None
        while True:
            write = self.runtime.begin_write(
                transactional_id, TransactionShard.handle, transactional_id, event, fresh_id, after_reply
            )
            if not write.result.response.needs_producer_id:
                return write
            fresh_id = await self._next_producer_id()

    def _deliver(self, number: int, shard: TransactionShard, result: TransactionResult) -> None:
        if result.is_unloaded:
            if self._completion is not None:
                self._completion.unload(number)
            return
        for transaction in result.decided:
            if result.after_reply is None:
                self._begin_completion(number, transaction)
            else:
                result.after_reply(partial(self._begin_completion, number, transaction))
        if shard.transactions:
            if self._timeouts is None:
                from pykbroker.transactions.timeouts import TransactionTimeouts

                self._timeouts = TransactionTimeouts(self.runtime, self._config, self._abort_late)
            if result.is_ongoing:
                self._timeouts.schedule_timeout_check()
            self._timeouts.schedule_expiry()

    async def _abort_late(self, transactional_id: str, now_ms: int) -> ErrorCode:
        from pykbroker.transactions.events import AbortLate

        try:
            write = await self._begin_event(transactional_id, AbortLate(now_ms, self.level))
        except KafkaError as refusal:
            return refusal.error_code
        error: ErrorCode = write.append.error or write.result.response.error
        return error

    def _begin_completion(self, number: int, transaction: Transaction) -> None:
        if self._completion is None:
            from pykbroker.transactions.completion import TransactionCompletion

            self._completion = TransactionCompletion(
                self.runtime,
                self._node_id,
                self._metadata,
                write_marker=self._write_marker,
                connect=self._connect,
                timeout_ms=self._config.request_timeout_ms,
            )
        self._completion.begin(number, transaction)
