"""Verification by the coordinator before a transaction's first append to a partition (KIP-890, P-135).

Without it, records that arrive after a transaction's end would open a transaction that never ends. Used by Produce, and
by TxnOffsetCommit for the partition of `__consumer_offsets`.

The coordinator does not wait until the producer's last transaction is completed, but answers CONCURRENT_TRANSACTIONS at
once: one request from broker to broker carries several transactions, and the others would wait, too. The partition's
leader then repeats its request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import trio

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.logstore.producer_state import Verification
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerServices
    from pykbroker.transactions.states import ProducerIdentity

FIRST_PAUSE_MS = 1
"""Pause before the first retry. Kafka pauses for 20 ms each time; markers on other brokers take a few."""


class ClientGeneration(IntEnum):
    """Generation of a client, by the version of its request."""

    OLD_ERRORS = 0
    """Does not support TRANSACTION_ABORTABLE."""

    NEW_ERRORS = 1
    """Supports it, and adds partitions to the transaction by requests of its own (transaction.version 0 and 1)."""

    EPOCH_BUMPS = 2
    """Begins every transaction with a new epoch; the broker adds the partitions (transaction.version 2)."""


class Verified(NamedTuple):
    """Result for each partition: the verification to pass to its append, or the error that forbids the append.

    A partition in neither may append without one: its transaction is already open there, or it is not verified.
    """

    verifications: dict[TopicPartition, Verification]
    errors: dict[TopicPartition, ErrorCode]


async def verify_and_retry(
    services: BrokerServices,
    identity: ProducerIdentity,
    first_sequences: Mapping[Partition, int],
    client: ClientGeneration,
) -> Verified:
    """Verifies as `verify` does, with retries while the producer's last transaction is still completing.

    With epoch bumps a client begins its next transaction at once, and a wait here is shorter than its own retry. The
    pauses between the retries double, from `FIRST_PAUSE_MS` to `add.partitions.to.txn.retry.backoff.ms`. The last retry
    begins at most `add.partitions.to.txn.retry.backoff.max.ms` after the first attempt.
    """
    if client < ClientGeneration.EPOCH_BUMPS:
        return await verify(services, identity, first_sequences, client)
    config = services.config
    timeout_ms = min(config.transactions.add_partitions_retry_backoff_max_ms, config.request_timeout_ms)
    give_up_at = trio.current_time() + timeout_ms / 1000
    pause_ms = FIRST_PAUSE_MS
    while True:
        verified = await verify(services, identity, first_sequences, client)
        now = trio.current_time()
        if ErrorCode.CONCURRENT_TRANSACTIONS not in verified.errors.values() or now >= give_up_at:
            return verified
        await trio.sleep_until(min(now + pause_ms / 1000, give_up_at))
        pause_ms = min(2 * pause_ms, config.transactions.add_partitions_retry_backoff_ms)


async def verify(
    services: BrokerServices,
    identity: ProducerIdentity,
    first_sequences: Mapping[Partition, int],
    client: ClientGeneration,
) -> Verified:
    """Verifies that partitions are part of the producer's transaction, or adds them to it.

    Args:
        first_sequences: first sequence number of the records to append to each partition; -1 for offsets.
        client: generation of the client; selects verifying or adding, and the errors that the client supports.
    """
    supports_epoch_bump = client is ClientGeneration.EPOCH_BUMPS
    verified = Verified({}, {})
    now_ms = services.clock.now_ms()
    for partition, sequence in first_sequences.items():
        topic_partition = (partition.topic, partition.partition)
        if not supports_epoch_bump and not partition.log.config.transaction_partition_verification_enable:
            continue
        try:
            verification = partition.log.producers.start_verification(
                identity.producer_id,
                identity.producer_epoch,
                sequence,
                supports_epoch_bump=supports_epoch_bump,
                now_ms=now_ms,
            )
        except LogError as error:
            verified.errors[topic_partition] = error_code_for(error)
        else:
            if verification is not None:
                verified.verifications[topic_partition] = verification
    if verified.verifications:
        topic_partitions = list(verified.verifications)
        answers = await services.transactions.verify_anywhere(identity, topic_partitions, add=supports_epoch_bump)
        for topic_partition, code in answers.items():
            if code is not ErrorCode.NONE:
                verified.errors[topic_partition] = _known_to(client, code)
    return verified


def _known_to(client: ClientGeneration, code: ErrorCode) -> ErrorCode:
    """The coordinator's error as one that the client supports in responses to Produce and TxnOffsetCommit."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientGeneration.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


def produce_error(code: ErrorCode, client: ClientGeneration) -> KafkaError:
    """Error for a producer whose partition could not be verified; one that all clients handle (P-135)."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _TRIED_AGAIN or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not ClientGeneration.EPOCH_BUMPS
    ):
        # All clients retry after this error, and without a Metadata request.
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    return KafkaError(code, "")


_TRIED_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
