"""Asks the coordinator before a partition takes the first records of a transaction (KIP-890, P-135).

Without this, records that arrive after a transaction's end would open one that nobody ever ends. Used by Produce, and
by TxnOffsetCommit for the partition of `__consumer_offsets`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import trio

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.logstore.producer_state import Verification
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerServices

Place = tuple[str, int]
"""Topic and partition."""


class ClientGeneration(IntEnum):
    """Generation of a client, by the version of its request."""

    OLD_ERRORS = 0
    """Does not know TRANSACTION_ABORTABLE."""

    NEW_ERRORS = 1
    """Knows it, and adds its partitions to the transaction by itself (transaction.version 0 and 1)."""

    EPOCH_BUMPS = 2
    """Begins every transaction with a new epoch, and leaves it to the broker to add partitions (version 2)."""


class ProducerIdentity(NamedTuple):
    """The producer of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Verified(NamedTuple):
    """Result of verification for each partition: what its append has to bring, or why it may not append.

    A partition that is in neither may append as it is: its transaction is known to be open.
    """

    verifications: dict[Place, Verification]
    errors: dict[Place, ErrorCode]


async def verify_and_retry(
    services: BrokerServices,
    identity: ProducerIdentity,
    first_sequences: Mapping[Partition, int],
    client: ClientGeneration,
) -> Verified:
    """As `verify`; while the producer's last transaction is still ending, tries again for a moment.

    With epoch bumps a client begins its next transaction at once, so that it is quicker to wait here.
    """
    if client < ClientGeneration.EPOCH_BUMPS:
        return await verify(services, identity, first_sequences, client)
    config = services.config
    patience_ms = min(config.transactions.add_partitions_retry_backoff_max_ms, config.request_timeout_ms)
    give_up_at = trio.current_time() + patience_ms / 1000
    while True:
        verified = await verify(services, identity, first_sequences, client)
        if ErrorCode.CONCURRENT_TRANSACTIONS not in verified.errors.values() or trio.current_time() >= give_up_at:
            return verified
        await trio.sleep(config.transactions.add_partitions_retry_backoff_ms / 1000)


async def verify(
    services: BrokerServices,
    identity: ProducerIdentity,
    first_sequences: Mapping[Partition, int],
    client: ClientGeneration,
) -> Verified:
    """Verifies that partitions are part of the producer's transaction, or adds them to it.

    Args:
        first_sequences: the first sequence of what is to be appended to each partition; -1 for offsets.
        client: decides between verifying and adding, and which errors the client can be told.
    """
    supports_epoch_bump = client is ClientGeneration.EPOCH_BUMPS
    verified = Verified({}, {})
    now_ms = services.clock.now_ms()
    for partition, sequence in first_sequences.items():
        place = (partition.topic, partition.partition)
        if not supports_epoch_bump and not partition.log.config.transaction_partition_verification_enable:
            continue
        try:
            verification = partition.log.start_verification(
                identity.producer_id,
                identity.producer_epoch,
                sequence,
                supports_epoch_bump=supports_epoch_bump,
                now_ms=now_ms,
            )
        except LogError as error:
            verified.errors[place] = error_code_for(error)
        else:
            if verification is not None:
                verified.verifications[place] = verification
    if verified.verifications:
        places = list(verified.verifications)
        answers = await services.transactions.verify_anywhere(*identity, places, add=supports_epoch_bump)
        for place, code in answers.items():
            if code is not ErrorCode.NONE:
                verified.errors[place] = _known_to(client, code)
    return verified


def _known_to(client: ClientGeneration, code: ErrorCode) -> ErrorCode:
    """The coordinator's error as one that the client knows where it writes."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientGeneration.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code


def produce_error(code: ErrorCode, client: ClientGeneration) -> KafkaError:
    """Error for a producer whose partition could not be verified, which all clients know how to handle (P-135)."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _TRIED_AGAIN or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not ClientGeneration.EPOCH_BUMPS
    ):
        # An error that all clients try again after, and without asking for metadata.
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    return KafkaError(code, "")


_TRIED_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
