"""Completes decided transactions: writes their markers, then the record that completes them, with retries.

A partition that this broker leads gets its marker at once; the others' markers wait in a queue per broker, which one
task empties, a request at a time. A failed marker is retried after `RETRY_MS` with the partition's current leader,
until the partition has a newer producer or coordinator epoch or is deleted. A marker is done when it is replicated
under the leader epoch in which it was appended. Up to `MARKERS_AT_ONCE` markers are written at once, more of them in a
task, in turns with others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from pykbroker.controller.turns import in_turns
from pykbroker.coordination.broker_sender import BrokerSender, Connect, NodeConnection
from pykbroker.coordination.loaded_shards import MetadataSource
from pykbroker.coordination.runtime import CoordinatorRuntime
from pykbroker.coordination.transaction_marker import AwaitedMarker
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps, finished
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.marker_queue import (
    MARKERS_AT_ONCE,
    Batch,
    CompletingTransaction,
    Key,
    MarkerQueue,
    Progress,
    WriteMarker,
    errors_of,
    markers_request,
    progress_of,
)
from pykbroker.transactions.shard import TransactionResult, TransactionShard
from pykbroker.transactions.transaction import Transaction

log = logging.getLogger(__name__)

RETRY_MS = 200
"""Pause before a failed marker is retried, or a failed append of the record that completes a transaction."""


class TransactionCompletion:
    """The transactions whose markers are being written.

    Args:
        runtime: the coordinator runtime, with the shards, which also appends records.
        node_id: id of this broker.
        metadata: the source of the leaders of the transactions' partitions.
        write_marker: appends a marker to a partition that this broker leads.
        connect: returns a connection to another broker.
        timeout_ms: time limit for a marker's replication, and for a request to another broker.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        node_id: int,
        metadata: MetadataSource,
        *,
        write_marker: WriteMarker,
        connect: Connect,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._metadata = metadata
        self._write_marker = write_marker
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._completing: dict[Key, CompletingTransaction] = {}
        self._waiting: set[Key] = set()
        self._in_tasks: set[Key] = set()
        self._queues: dict[int, MarkerQueue] = {}
        self._senders: dict[int, BrokerSender[Batch]] = {}

    def begin(self, number: int, transaction: Transaction) -> None:
        """Begins to complete a decided transaction (P-132); steps that wait for nothing are done before it returns."""
        key = (number, transaction.transactional_id)
        epoch = self._runtime.shards[number].coordinator_epoch
        completing = self._completing[key] = CompletingTransaction(key, transaction, epoch)
        self._advance(completing)

    async def _retry_waiting(self) -> None:
        """Retries the transactions that could not be completed."""
        waiting, self._waiting = self._waiting, set()
        for key in sorted(waiting):
            self._advance(self._completing[key])

    def unload(self, number: int) -> None:
        """Stops completing the transactions of a partition, which another broker leads or which is loaded again."""
        for key in [key for key in self._completing if key[0] == number]:
            self._completing.pop(key).is_over = True
            self._waiting.discard(key)

    def on_metadata_change(self, is_live: Callable[[int], bool]) -> None:
        """Fails requests to brokers that are not live any more; their markers are retried with the current leaders."""
        for broker_id, sender in self._senders.items():
            if not is_live(broker_id):
                sender.abandon_attempt()

    def _advance(self, completing: CompletingTransaction) -> None:
        partitions = completing.to_do()
        if completing.key in self._in_tasks:
            self._schedule_retry(completing)
        elif len(partitions) <= MARKERS_AT_ONCE or self._runtime.nursery is None:
            finished(self._write(completing, partitions))
            self._append_or_retry(completing)
        else:
            self._in_tasks.add(completing.key)
            self._runtime.nursery.start_soon(self._advance_large, completing, partitions)

    async def _advance_large(self, completing: CompletingTransaction, partitions: Sequence[TopicPartition]) -> None:
        try:
            await in_turns(self._write(completing, partitions))
        finally:
            self._in_tasks.discard(completing.key)
        self._append_or_retry(completing)

    def _write(self, completing: CompletingTransaction, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Appends the markers of partitions that this broker leads, and queues the others for their leaders.

        Each partition is a step: its log may have to be created first, for which a disk takes up to milliseconds.
        """
        appended: list[tuple[TopicPartition, AwaitedMarker]] = []
        nursery = self._runtime.nursery
        for partition in partitions:
            if completing.is_over:
                break
            topic = self._metadata.image.topics_by_name.get(partition[0])
            image = None if topic is None else topic.partitions.get(partition[1])
            if image is None:
                completing.answered(partition, Progress.WRITTEN)  # the partition is deleted and needs no marker
            elif image.leader == self._node_id:
                written = self._write_marker(completing.marker, *partition)
                if written.replication is None:
                    self._handle_outcome(completing, partition, written.error)
                else:
                    completing.in_flight.add(partition)
                    appended.append((partition, written.replication))
            elif image.leader >= 0 and nursery is not None:
                completing.in_flight.add(partition)
                self._send(nursery, image.leader, completing, partition)
            else:
                self._handle_outcome(completing, partition, ErrorCode.LEADER_NOT_AVAILABLE)
            yield
        if appended:
            assert nursery is not None, "nothing is appended before the coordinator runs"
            nursery.start_soon(self._await_replicas, completing, appended)

    def _handle_outcome(self, completing: CompletingTransaction, partition: TopicPartition, error: ErrorCode) -> None:
        """Handles the outcome of writing a marker, by its error."""
        progress = progress_of(error)
        completing.answered(partition, progress)
        if progress is Progress.GIVEN_UP:
            log.error(
                "%s-%d refuses the marker of producer %d: %s", *partition, completing.marker.producer_id, error.name
            )
        elif progress is Progress.RETRY:
            level = logging.DEBUG if completing.has_failed else logging.INFO
            producer_id = completing.marker.producer_id
            log.log(
                level, "%s-%d: the marker of producer %d will be sent again: %s", *partition, producer_id, error.name
            )

    def _append_or_retry(self, completing: CompletingTransaction) -> None:
        """Continues after outcomes of markers: appends the completing record, or schedules a retry of failed ones."""
        if self._completing.get(completing.key) is not completing or completing.key in self._in_tasks:
            return
        if completing.is_over:
            self._remove_completing(completing)
        elif not completing.transaction.partitions:
            if self._append_completion(completing):
                self._remove_completing(completing)
            else:
                self._schedule_retry(completing)
        elif completing.has_to_do:
            self._schedule_retry(completing)

    def _remove_completing(self, completing: CompletingTransaction) -> None:
        completing.is_over = True
        del self._completing[completing.key]
        self._waiting.discard(completing.key)

    def _schedule_retry(self, completing: CompletingTransaction) -> None:
        completing.has_failed = True
        self._waiting.add(completing.key)
        self._runtime.schedule("retry", RETRY_MS, self._retry_waiting)

    def _append_completion(self, completing: CompletingTransaction) -> bool:
        number, transaction = completing.key[0], completing.transaction
        assert transaction.pending is not None
        result = TransactionResult([(transaction.transactional_id, transaction.pending)])
        return self._runtime.carry_out(number, self._runtime.shards[number], result).error is ErrorCode.NONE

    # Replication of markers that this broker has appended

    async def _await_replicas(
        self, completing: CompletingTransaction, appended: Sequence[tuple[TopicPartition, AwaitedMarker]]
    ) -> None:
        deadline = trio.current_time() + self._timeout_ms / 1000
        for partition, marker in appended:
            error = await marker.wait_replicated(deadline)
            if completing.is_over:
                return
            self._handle_outcome(completing, partition, error)
        self._append_or_retry(completing)

    # Markers for other brokers

    def _send(
        self, nursery: trio.Nursery, broker_id: int, completing: CompletingTransaction, partition: TopicPartition
    ) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            self._queues[broker_id] = MarkerQueue()
            sender = self._senders[broker_id] = BrokerSender(
                connect=partial(self._connect, broker_id),
                take=self._queues[broker_id].take,
                exchange=self._exchange,
                failed=partial(self._sending_failed, broker_id),
                ended=partial(self._forget_sender, broker_id),
            )
            nursery.start_soon(sender.run)
        self._queues[broker_id].put(completing, partition)
        sender.wake()

    def _forget_sender(self, broker_id: int) -> None:
        del self._senders[broker_id]

    async def _exchange(self, connection: NodeConnection, batch: Batch) -> None:
        self._handle_response(batch, errors_of(await connection.request(markers_request(batch), self._timeout_ms)))

    def _sending_failed(self, broker_id: int, batch: Batch, reason: str) -> None:
        log.info("transaction markers for broker %d will be sent again: %s", broker_id, reason)
        self._handle_response(batch, {})

    def _handle_response(self, batch: Batch, errors: Mapping[tuple[int, TopicPartition], ErrorCode]) -> None:
        for completing, partitions in batch:
            for partition in partitions:
                if not completing.is_over:
                    missing = ErrorCode.NETWORK_EXCEPTION
                    self._handle_outcome(
                        completing, partition, errors.get((completing.marker.producer_id, partition), missing)
                    )
            self._append_or_retry(completing)
