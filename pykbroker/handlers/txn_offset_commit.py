"""TxnOffsetCommit (key 28), versions 0 to 5: offsets that are committed or aborted with a transaction (P-139).

v2 leader epoch (KIP-320). v3 the consumer's member id, generation and instance id, which fence a consumer that has lost
its partitions (KIP-447). v4 TRANSACTION_ABORTABLE. v5 also adds the group to the transaction (KIP-890); clients of
earlier versions send AddOffsetsToTxn first.

The offsets are pending in `__consumer_offsets` and in memory until the transaction's marker is written there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns, Turn
from pykbroker.coordination.partition_writer import response_error
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.coordination.shard import TransactionalProducer
from pykbroker.errors import CoordinatorError
from pykbroker.groups.offset_commit import commit_offsets
from pykbroker.protocol.acl_codes import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykbroker.protocol.records.batch import NO_SEQUENCE
from pykbroker.protocol.steps import PIECE
from pykbroker.requests.transaction_verification import ClientGeneration, verify
from pykbroker.transactions.states import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.logstore.producer_state import Verification
    from pykbroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext, BrokerServices

LOADING_VERSION = 2
"""Older clients may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_VERSION = 4
EPOCH_BUMPS_VERSION = 5

Results = dict[str, list[TxnOffsetCommitResponsePartition]]
"""Topic -> its partitions with their errors; one that is named twice is answered twice."""


async def handle_txn_offset_commit(context: BrokerContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commits offsets of existing partitions; the others get an error (P-111)."""
    results: Results = {}
    refused = _refusal_of_all(context, request)
    if refused:
        async for topic in EachInTurns(request.topics):
            _add(results, topic.name, (p.partition_index for p in topic.partitions), refused)
    else:
        accepted: list[OffsetCommitRequestTopic] = []
        turn = Turn() if len(request.topics) > PIECE else None
        for topic in request.topics:
            found = _existing(context, topic, results)
            if found is not None:
                accepted.append(found)
            if turn is not None and turn.is_over:
                await turn.end_if_over()
        if accepted:
            await _commit(context, request, accepted, results)
    if context.api_version < LOADING_VERSION:
        for partitions in results.values():
            for partition in partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=topic, partitions=partitions)
            async for topic, partitions in EachInTurns(results.items())
        ]
    )


def _add(results: Results, topic: str, partitions: Iterable[int], error: int) -> None:
    results.setdefault(topic, []).extend(
        TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error) for partition in partitions
    )


def _refusal_of_all(context: BrokerContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not context.authorize(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.authorize(READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _existing(
    context: BrokerContext, topic: TxnOffsetCommitRequestTopic, results: Results
) -> OffsetCommitRequestTopic | None:
    """The topic's existing partitions as in an OffsetCommit request; adds the others to `results` with their error."""
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    image = context.services.metadata.image.topics_by_name.get(topic.name)
    if not context.authorize(READ, TOPIC, topic.name):
        image, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    existing = {} if image is None else image.partitions
    known = []
    for partition in topic.partitions:
        if partition.partition_index in existing:
            known.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    committed_metadata=partition.committed_metadata,
                )
            )
        else:
            _add(results, topic.name, (partition.partition_index,), missing)
    if image is None:
        results.setdefault(topic.name, [])  # As in Kafka: an unknown topic gets a result even without partitions.
        return None
    if not known:
        return None
    return OffsetCommitRequestTopic(name=topic.name, topic_id=image.topic_id, partitions=known)


async def _commit(
    context: BrokerContext,
    request: TxnOffsetCommitRequest,
    topics: list[OffsetCommitRequestTopic],
    results: Results,
) -> None:
    try:
        verification = await _verify(context, request)
    except CoordinatorError as error:
        async for topic in EachInTurns(topics):
            _add(results, topic.name, (p.partition_index for p in topic.partitions), error.error_code)
        return
    commit = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )
    producer = TransactionalProducer(request.producer_id, request.producer_epoch)
    groups = context.services.groups
    response = await commit_offsets(groups, commit, context.api_version, producer, verification)
    turn = Turn() if len(response.topics) > PIECE else None
    for answered in response.topics:
        results.setdefault(answered.name, []).extend(
            [
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=each.error_code)
                for each in answered.partitions
            ]
        )
        if turn is not None and turn.is_over:
            await turn.end_if_over()


async def _verify(context: BrokerContext, request: TxnOffsetCommitRequest) -> Verification | None:
    """Asks the transaction coordinator whether the group is part of the transaction, or to add it (P-135).

    Raises:
        CoordinatorError: the group's coordinator is not here, or that of the transaction refuses.
    """
    services = context.services
    client = ClientGeneration.OLD_ERRORS
    if context.api_version >= EPOCH_BUMPS_VERSION:
        client = ClientGeneration.EPOCH_BUMPS
    elif context.api_version >= ABORTABLE_VERSION:
        client = ClientGeneration.NEW_ERRORS
    partition = _offsets_partition(services, request.group_id, client)
    identity = ProducerIdentity(request.transactional_id, request.producer_id, request.producer_epoch)
    verified = await verify(services, identity, {partition: NO_SEQUENCE}, client)
    topic_partition = (partition.topic, partition.partition)
    if topic_partition in verified.errors:
        raise CoordinatorError(response_error(verified.errors[topic_partition]))
    return verified.verifications.get(topic_partition)


def _offsets_partition(services: BrokerServices, group_id: str, client: ClientGeneration) -> Partition:
    """The partition that is verified, which has the group's offsets.

    Raises:
        CoordinatorError: the group's coordinator is not here. Without `__consumer_offsets` COORDINATOR_NOT_AVAILABLE:
            to verify, Kafka asks its replica manager for the partition (`ReplicaManager.getPartitionOrException`).
            Where it does not verify, its group coordinator gives NOT_COORDINATOR, as for other requests.
    """
    try:
        partition: Partition = services.groups.offsets_partition(group_id)
    except CoordinatorError as error:
        metadata = services.metadata
        if error.error_code is ErrorCode.NOT_COORDINATOR and OFFSETS_TOPIC not in metadata.image.topics_by_name:
            is_enabled = metadata.settings.default_log_config(metadata.image).transaction_partition_verification_enable
            if is_enabled or client is ClientGeneration.EPOCH_BUMPS:
                raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        raise
    return partition
