"""Decided transactions on their way to their end: markers first, then the record that completes them, until it works.

Part of the coordinator's shell. A partition that this broker leads gets its marker at once; the others' markers wait
in an outbox per broker, which one task empties, a request at a time. What fails is tried again in a moment, with the
leader looked up anew. Few markers are written at once, very many in a task that lets others in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from pykbroker.coordination.broker_sender import BrokerSender, Connect, NodeConnection
from pykbroker.coordination.led_partitions import LedPartitions, MetadataSource
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.transactions.markers import (
    MARKERS_AT_ONCE,
    AppendedMarker,
    Batch,
    Ending,
    Key,
    Outbox,
    Progress,
    WriteMarker,
    errors_of,
    markers_request,
    progress_of,
)
from pykbroker.transactions.shard import Shard
from pykbroker.transactions.states import TopicPartition
from pykbroker.transactions.transaction import Transaction

log = logging.getLogger(__name__)


class Endings:
    """The transactions whose markers are being written.

    Args:
        led: the shards that are served here.
        node_id: this broker.
        metadata: who leads the partitions of transactions.
        write_marker: appends a marker to a partition that this broker leads.
        connect: gives a connection to another broker.
        complete: appends the pending state of a transaction and completes it in time; False if that failed.
        request_retry: plans a call of `retry` in a moment.
        timeout_ms: how long a marker may take to be replicated, or another broker to answer.
    """

    def __init__(
        self,
        led: LedPartitions[Shard],
        node_id: int,
        metadata: MetadataSource,
        *,
        write_marker: WriteMarker,
        connect: Connect,
        complete: Callable[[int, Transaction], bool],
        request_retry: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        self._led = led
        self._node_id = node_id
        self._metadata = metadata
        self._write_marker = write_marker
        self._connect = connect
        self._complete = complete
        self._request_retry = request_retry
        self._timeout_ms = timeout_ms
        self._endings: dict[Key, Ending] = {}
        self._waiting: set[Key] = set()
        self._in_tasks: set[Key] = set()
        self._outboxes: dict[int, Outbox] = {}
        self._senders: dict[int, BrokerSender[Batch]] = {}

    def finish(self, nursery: trio.Nursery | None, number: int, transaction: Transaction) -> None:
        """Brings a decided transaction to its end, as far as that is possible now (P-132)."""
        key = (number, transaction.transactional_id)
        epoch = self._led.shards[number].coordinator_epoch
        ending = self._endings[key] = Ending(key, transaction, epoch)
        self._advance(nursery, ending)

    def retry(self, nursery: trio.Nursery | None) -> None:
        """Goes on with what could not be finished."""
        waiting, self._waiting = self._waiting, set()
        for key in sorted(waiting):
            self._advance(nursery, self._endings[key])

    def let_go(self, number: int) -> None:
        """The partition is another broker's business, or is read anew."""
        for key in [key for key in self._endings if key[0] == number]:
            self._endings.pop(key).is_over = True
            self._waiting.discard(key)

    def look_again(self, is_there: Callable[[int], bool]) -> None:
        """The metadata has changed: who waits for a broker that is gone looks for another leader."""
        for broker_id, sender in self._senders.items():
            if not is_there(broker_id):
                sender.abandon_attempt()

    def _advance(self, nursery: trio.Nursery | None, ending: Ending) -> None:
        partitions = ending.to_do()
        if ending.key in self._in_tasks:
            self._try_later(ending)
        elif len(partitions) <= MARKERS_AT_ONCE or nursery is None:
            self._write(nursery, ending, partitions)
            self._settle(ending)
        else:
            self._in_tasks.add(ending.key)
            nursery.start_soon(self._advance_large, nursery, ending, partitions)

    async def _advance_large(self, nursery: trio.Nursery, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        try:
            for first in range(0, len(partitions), MARKERS_AT_ONCE):
                if ending.is_over:
                    break
                self._write(nursery, ending, partitions[first : first + MARKERS_AT_ONCE])
                await trio.lowlevel.checkpoint()
        finally:
            self._in_tasks.discard(ending.key)
        self._settle(ending)

    def _write(self, nursery: trio.Nursery | None, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        """Writes markers, or hands them on to where they can be written."""
        appended: list[tuple[TopicPartition, AppendedMarker]] = []
        topics = self._metadata.image.topics_by_name
        for partition in partitions:
            if ending.is_over:
                break
            topic = topics.get(partition[0])
            image = None if topic is None else topic.partitions.get(partition[1])
            if image is None:
                ending.answered(partition, Progress.WRITTEN)  # deleted, and needs none
            elif image.leader == self._node_id:
                written = self._write_marker(ending.marker, *partition)
                if isinstance(written, ErrorCode):
                    self._take(ending, partition, written)
                else:
                    ending.under_way.add(partition)
                    appended.append((partition, written))
            elif image.leader >= 0 and nursery is not None:
                ending.under_way.add(partition)
                self._send(nursery, image.leader, ending, partition)
            else:
                self._take(ending, partition, ErrorCode.LEADER_NOT_AVAILABLE)
        if appended:
            assert nursery is not None, "nothing is appended before the coordinator runs"
            nursery.start_soon(self._await_replicas, ending, appended)

    def _take(self, ending: Ending, partition: TopicPartition, error: ErrorCode) -> None:
        """What became of a marker."""
        progress = progress_of(error)
        ending.answered(partition, progress)
        if progress is Progress.GIVEN_UP:
            log.error("%s-%d refuses %s: %s", *partition, ending.marker, error.name)
        elif progress is Progress.RETRY:
            level = logging.DEBUG if ending.has_failed else logging.INFO
            log.log(level, "%s-%d cannot take %s now: %s", *partition, ending.marker, error.name)

    def _settle(self, ending: Ending) -> None:
        """Goes on when something became of a transaction's markers."""
        if self._endings.get(ending.key) is not ending or ending.key in self._in_tasks:
            return
        if ending.is_over:
            self._forget(ending)
        elif not ending.transaction.now.partitions:
            if self._complete(ending.key[0], ending.transaction):
                self._forget(ending)
            else:
                self._try_later(ending)
        elif ending.to_do():
            self._try_later(ending)

    def _forget(self, ending: Ending) -> None:
        ending.is_over = True
        del self._endings[ending.key]
        self._waiting.discard(ending.key)

    def _try_later(self, ending: Ending) -> None:
        ending.has_failed = True
        self._waiting.add(ending.key)
        self._request_retry()

    # Markers of this broker that other replicas must have

    async def _await_replicas(self, ending: Ending, appended: Sequence[tuple[TopicPartition, AppendedMarker]]) -> None:
        deadline = trio.current_time() + self._timeout_ms / 1000
        for partition, marker in appended:
            error = await marker.wait_replicated(deadline)
            if ending.is_over:
                return
            self._take(ending, partition, error)
        self._settle(ending)

    # Markers for other brokers

    def _send(self, nursery: trio.Nursery, broker_id: int, ending: Ending, partition: TopicPartition) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            self._outboxes[broker_id] = Outbox()
            sender = self._senders[broker_id] = BrokerSender(
                connect=partial(self._connect, broker_id),
                take=self._outboxes[broker_id].take,
                exchange=self._exchange,
                failed=partial(self._sending_failed, broker_id),
                ended=partial(self._forget_sender, broker_id),
            )
            nursery.start_soon(sender.run)
        self._outboxes[broker_id].put(ending, partition)
        sender.wake()

    def _forget_sender(self, broker_id: int) -> None:
        del self._senders[broker_id]

    async def _exchange(self, connection: NodeConnection, batch: Batch) -> None:
        self._take_answers(batch, errors_of(await connection.request(markers_request(batch), self._timeout_ms)))

    def _sending_failed(self, broker_id: int, batch: Batch, reason: str) -> None:
        log.info("markers for broker %d wait: %s", broker_id, reason)
        self._take_answers(batch, {})

    def _take_answers(self, batch: Batch, errors: Mapping[tuple[int, TopicPartition], ErrorCode]) -> None:
        for ending, partitions in batch:
            for partition in partitions:
                if not ending.is_over:
                    missing = ErrorCode.NETWORK_EXCEPTION
                    self._take(ending, partition, errors.get((ending.marker.producer_id, partition), missing))
            self._settle(ending)
