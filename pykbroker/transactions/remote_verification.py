"""Verification of partitions of a transaction, or their addition, by coordinators on other brokers (KIP-890, P-135).

The request is AddPartitionsToTxn, from broker to broker. Waiting verifications for one broker are sent in one request,
at most one for each transactional id. (Of two verifications of one id Kafka rejects the older; here it is sent first.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from pykbroker.coordination.broker_sender import BrokerSender, Connect, NodeConnection
from pykbroker.errors import answered_error
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykbroker.protocol.topic_partition import TopicPartition, numbers_by_topic

if TYPE_CHECKING:
    from pykbroker.transactions.states import ProducerIdentity

log = logging.getLogger(__name__)

TRANSACTIONS_PER_REQUEST = 1_000

Answers = dict[TopicPartition, ErrorCode]


class PendingVerification:
    """Verification of one transaction's partitions, or their addition; completes with an error code for each."""

    __slots__ = ("_answered", "_answers", "is_adding", "partitions", "producer")

    def __init__(self, producer: ProducerIdentity, partitions: Sequence[TopicPartition], *, is_adding: bool) -> None:
        self.producer = producer
        self.partitions = partitions
        self.is_adding = is_adding
        self._answers: Answers = {}
        self._answered = trio.Event()

    def answer(self, codes: Answers, missing: ErrorCode) -> None:
        """Completes the verification; a partition without a code gets `missing`."""
        self._answers = {topic_partition: codes.get(topic_partition, missing) for topic_partition in self.partitions}
        self._answered.set()

    async def wait_answer(self) -> Answers:
        """Waits for the error code of each partition."""
        await self._answered.wait()
        return self._answers

    def encoded(self) -> AddPartitionsToTxnTransaction:
        """Entry for the AddPartitionsToTxn request."""
        return AddPartitionsToTxnTransaction(
            **self.producer._asdict(),
            verify_only=not self.is_adding,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in numbers_by_topic(self.partitions).items()
            ],
        )


Batch = dict[str, PendingVerification]
"""Verifications of one request, by transactional id."""


class RemoteVerification:
    """Sends verifications to the coordinators on other brokers.

    Args:
        connect: returns a connection to another broker.
        timeout_ms: time limit of a request to another broker.
    """

    def __init__(self, connect: Connect, timeout_ms: int) -> None:
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._waiting: dict[int, list[PendingVerification]] = {}
        self._senders: dict[int, BrokerSender[Batch]] = {}

    async def ask(self, nursery: trio.Nursery, broker_id: int, verification: PendingVerification) -> Answers:
        """Sends a verification to a broker; NETWORK_EXCEPTION if it fails; the client then retries."""
        sender = self._senders.get(broker_id)
        if sender is None:
            self._waiting[broker_id] = []
            sender = self._senders[broker_id] = BrokerSender(
                connect=partial(self._connect, broker_id),
                take=partial(self._take_batch, broker_id),
                exchange=self._exchange,
                failed=partial(self._failed, broker_id),
                ended=partial(self._forget_sender, broker_id),
            )
            nursery.start_soon(sender.run)
        self._waiting[broker_id].append(verification)
        sender.wake()
        return await verification.wait_answer()

    def _take_batch(self, broker_id: int) -> Batch:
        batch: Batch = {}
        later: list[PendingVerification] = []
        for verification in self._waiting[broker_id]:
            if verification.producer.transactional_id in batch or len(batch) >= TRANSACTIONS_PER_REQUEST:
                later.append(verification)
            else:
                batch[verification.producer.transactional_id] = verification
        self._waiting[broker_id] = later
        return batch

    async def _exchange(self, connection: NodeConnection, batch: Batch) -> None:
        request = AddPartitionsToTxnRequest(transactions=[verification.encoded() for verification in batch.values()])
        response: AddPartitionsToTxnResponse = await connection.request(request, self._timeout_ms)
        codes: dict[str, Answers] = {
            result.transactional_id: {
                (topic.name, partition.partition_index): answered_error(partition.partition_error_code)
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        missing = ErrorCode.NETWORK_EXCEPTION
        if response.error_code != ErrorCode.NONE:
            missing = answered_error(response.error_code)
            log.error(
                "a transaction coordinator refuses AddPartitionsToTxn, by which partitions are verified: %s",
                missing.name,
            )
            # CLUSTER_AUTHORIZATION_FAILED is about this broker, not the client.
            missing = ErrorCode.INVALID_TXN_STATE if missing is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else missing
        for transactional_id, verification in batch.items():
            verification.answer(codes.get(transactional_id, {}), missing)

    def _failed(self, broker_id: int, batch: Batch, reason: str) -> None:
        log.info("partitions of transactions cannot be verified by broker %d: %s", broker_id, reason)
        for verification in batch.values():
            verification.answer({}, ErrorCode.NETWORK_EXCEPTION)

    def _forget_sender(self, broker_id: int) -> None:
        del self._senders[broker_id]

    def on_metadata_change(self, is_live: Callable[[int], bool]) -> None:
        """Fails at once the requests to brokers that are not live any more."""
        for broker_id, sender in self._senders.items():
            if not is_live(broker_id):
                sender.abandon_attempt()
