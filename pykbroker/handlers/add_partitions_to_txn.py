"""AddPartitionsToTxn (key 24): adds partitions to a transaction before its first record is written to them.

Versions 0-5. v2 PRODUCER_FENCED; v3 flexible; v4 several transactions at once, and verify_only (KIP-890); v5
TRANSACTION_ABORTABLE. Clients send up to v3 (transaction.version 0 and 1) and need WRITE on the transactional id and
the topics; brokers send v4 and above and need CLUSTER_ACTION. Either all partitions of a transaction are added or none
(P-131).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.controller.metadata.features import TV_0, TV_2
from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.fenced_producer import error_for_producer
from pykbroker.transactions.states import ProducerIdentity

FROM_BROKERS_VERSION = 4


async def handle_add_partitions_to_txn(
    context: BrokerContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Adds partitions to transactions or, with `verify_only`, checks that they were added (P-131, P-135)."""
    if context.api_version < FROM_BROKERS_VERSION:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        results = await _results(context, transaction)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if not context.authorize_cluster(CLUSTER_ACTION):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answers = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=await _results(context, transaction)
        )
        for transaction in request.transactions
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=answers)


async def _results(
    context: BrokerContext, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Error code of each partition of one transaction."""
    producer = ProducerIdentity(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    found: dict[TopicPartition, None] = {}
    async for topic in EachInTurns(transaction.topics):
        found.update(dict.fromkeys((topic.name, number) for number in topic.partitions))
    partitions = list(found)
    is_client = context.api_version < FROM_BROKERS_VERSION
    if is_client and not context.authorize(WRITE, TRANSACTIONAL_ID, transaction.transactional_id):
        return await _same_for_all(transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bad = await _refused_partitions(context, partitions, is_client)
    if bad:
        return _by_topic({partition: bad.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions})
    transactions = context.services.transactions
    if transaction.verify_only:
        return _by_topic(await transactions.verify(producer, partitions, add=False))
    client_version = TV_0 if is_client else TV_2
    error = await transactions.add_partitions(producer, partitions, client_version=client_version)
    return await _same_for_all(transaction, error_for_producer(context, error))


async def _refused_partitions(
    context: BrokerContext, partitions: Iterable[TopicPartition], is_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """Partitions that cannot be added, with their errors; a client may not add partitions of internal topics."""
    topics = context.services.metadata.image.topics_by_name
    names = dict.fromkeys(name for name, _ in partitions)
    refused: set[str] = set()
    if is_client:
        others = (name for name in names if name not in INTERNAL_TOPICS)
        refused.update(INTERNAL_TOPICS, await context.refused_in_turns(WRITE, TOPIC, others))
    bad: dict[TopicPartition, ErrorCode] = {}
    async for name, number in EachInTurns(partitions):
        if name in refused:
            bad[name, number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in topics or number not in topics[name].partitions:
            bad[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return bad


async def _same_for_all(
    transaction: AddPartitionsToTxnTransaction, code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    """Results with one code for all partitions, as the request lists them: with duplicates and empty topics."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=[_result(n, code) async for n in EachInTurns(topic.partitions)]
        )
        async for topic in EachInTurns(transaction.topics)
    ]


def _by_topic(codes: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    """Results with each partition once, with its own code."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, number), code in codes.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name, results_by_partition=[]))
        topic.results_by_partition.append(_result(number, code))
    return list(topics.values())


def _result(number: int, code: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
