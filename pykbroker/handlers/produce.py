"""Produce (key 0): append record batches.

Versions 3-13. v5 log_start_offset; v7 zstd allowed; v8 record_errors (KIP-467); v9 flexible; v10 leader hints
(KIP-951); v12 as v11 on the wire (transactions of KIP-890); v13 topics by id (KIP-516).

Every partition of the request gets its result (P-43, P-50); the records are appended synchronously, in the order of the
request. With acks=all what followers do not have yet is waited for, all partitions with one deadline; with one replica
the high watermark has passed the batch when append returns, and there is nothing to wait for. Records of a transaction
are appended once its coordinator knows of the partition (P-135).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from pykbroker.errors import CloseConnection, KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.metadata.metadata_cache import INTERNAL_TOPICS
from pykbroker.protocol.acl_codes import TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.layout import (
    CODEC_MASK,
    FLAGS_POSITION,
    HEADER_SIZE,
    LEGACY_LENGTH_MIN,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LENGTH_TO_MAGIC,
    MAGIC_POSITION,
    PRODUCER,
    PRODUCER_ID_POSITION,
    TO_MAGIC_SIZE,
    TRANSACTIONAL_FLAG,
)
from pykbroker.requests.context import Unfinished

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.controller.metadata.image import PartitionImage
    from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from pykbroker.replication.leadership import Leadership
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext
    from pykbroker.requests.transaction_verification import ClientGeneration, Verified

TURN_S = 0.02
"""How long the batches of one request keep other clients waiting; a single batch is never interrupted."""

ACKS_ALL = -1
ACKS = (ACKS_ALL, 0, 1)
ADMIN_CLIENT_ID = "__admin_client"
TELLS_LOG_START = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.POLICY_VIOLATION,
}
"""Errors of the log that come with its start; what a producer does about them can depend on it."""
CODEC_ZSTD = 4
ZSTD_VERSION = 7
LEADER_HINT_VERSION = 10
ABORTABLE_VERSION = 11
EPOCH_BUMP_VERSION = 12
TOPIC_ID_VERSION = 13
MAGIC_MAX = 2


async def handle_produce(context: BrokerContext, request: ProduceRequest) -> ProduceResponse | Unfinished | None:
    """Appends every partition's batch; None with acks=0, where the client waits for nothing (P-10)."""
    refused = _refusal_of_all(context, request)
    has_repeats = _has_repeats(request)
    if has_repeats:
        request.topic_data = _one_of_each(context, request)
    unauthorized = () if context.services.authorizer is None else _unauthorized_topics(context, request)
    verified: Verified | None = None
    if request.transactional_id is not None and not refused:
        refused, verified = await _verify(context, request, request.transactional_id, unauthorized)
    now_ms = context.services.clock.now_ms()
    endpoints: dict[int, NodeEndpoint] = {}
    failed = ErrorCode.NONE
    responses = []
    appended: list[_Appended] | None = [] if request.acks == ACKS_ALL else None
    turn_ends = trio.current_time() + TURN_S
    for topic in request.topic_data:
        results = []
        code = refused
        if unauthorized and not code and (topic.name or topic.topic_id) in unauthorized:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for data in topic.partition_data:
            if verified is None and trio.current_time() > turn_ends:
                # A few kilobytes may decompress to very much, and many such batches to minutes of work.
                await trio.lowlevel.checkpoint()
                turn_ends = trio.current_time() + TURN_S
            result = _append_one(context, request, topic, data, now_ms, code, verified, endpoints, appended)
            if result.error_code:
                failed = ErrorCode(result.error_code)
            results.append(result)
        if has_repeats:
            results = list({result.index: result for result in results}.values())
        if results:
            named = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
            responses.append(named)
    if request.acks == 0:
        if failed:
            raise CloseConnection(f"Produce with acks=0 failed with {failed.name}; closing tells the client")
        return None
    if not appended:
        return ProduceResponse(responses=responses, node_endpoints=list(endpoints.values()))
    response = ProduceResponse(responses=responses)
    # The request with its records is not needed any more.
    finish = partial(_finish, context, response, appended, endpoints, _deadline(request))
    if context.may_be_unfinished:
        return Unfinished(response, finish)
    await finish()
    return response


def _deadline(request: ProduceRequest) -> float:
    return trio.current_time() + max(request.timeout_ms, 0) / 1000


class _Appended(NamedTuple):
    """Records that followers do not have yet, and the answer that waits for them."""

    partition: Partition
    end_offset: int
    leadership: Leadership | None
    response: PartitionProduceResponse


async def _finish(
    context: BrokerContext,
    response: ProduceResponse,
    appended: list[_Appended],
    endpoints: dict[int, NodeEndpoint],
    deadline: float,
) -> None:
    """Waits for the in-sync replicas of all partitions; those that do not get there in time have an error (P-46)."""
    for partition, end_offset, leadership, answer in appended:
        # One after the other comes to the same as all at once: they have one deadline.
        answer.error_code = await partition.wait_replicated(end_offset, deadline, leadership)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            image = context.services.metadata.topic(partition.topic)
            found = None if image is None else image.partitions.get(partition.partition)
            if found is not None:
                _name_leader(context, answer, found, endpoints)
    response.node_endpoints = list(endpoints.values())


def _refusal_of_all(context: BrokerContext, request: ProduceRequest) -> ErrorCode:
    """An error that every partition of the request gets, whatever its records (P-49)."""
    transactional_id = request.transactional_id
    may_be_transactional = transactional_id is not None and context.authorize(WRITE, TRANSACTIONAL_ID, transactional_id)
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < LENGTH_OVERHEAD:
                continue
            if len(records) >= TO_MAGIC_SIZE:
                length, _, magic = LENGTH_TO_MAGIC.unpack_from(records, LENGTH_POSITION)
            else:
                length, magic = int.from_bytes(records[LENGTH_POSITION:LENGTH_OVERHEAD], "big", signed=True), 0
            if length < LEGACY_LENGTH_MIN or not 0 <= magic <= MAGIC_MAX:
                # Kafka looks for transactional batches in the whole request first, and cannot read this one's head.
                return ErrorCode.CORRUPT_MESSAGE
            if _attributes(records) & TRANSACTIONAL_FLAG and len(records) >= length + LENGTH_OVERHEAD:
                # One is enough: what follows is not looked at here.
                refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                return ErrorCode.NONE if may_be_transactional else refused
    return ErrorCode.NONE


def _has_repeats(request: ProduceRequest) -> bool:
    """True if a topic, or a partition of a topic, is there twice."""
    topics = request.topic_data
    if len(topics) > 1 and len({topic.name or topic.topic_id for topic in topics}) < len(topics):
        return True
    return any(
        len(topic.partition_data) > 1 and len({data.index for data in topic.partition_data}) < len(topic.partition_data)
        for topic in topics
    )


def _one_of_each(context: BrokerContext, request: ProduceRequest) -> list[TopicProduceData]:
    """Each topic once, with what Kafka makes of partitions that are there twice: the last batch that can be taken is,
    and the answer is about the last one that cannot be, which stands behind it here."""
    taken: dict[str | bytes, TopicProduceData] = {}
    parts: dict[str | bytes, dict[int, dict[bool, PartitionProduceData]]] = {}
    for topic in request.topic_data:
        key = topic.name or topic.topic_id
        taken.setdefault(key, topic)
        for data in topic.partition_data:
            try:
                _check_records(context, data)
            except KafkaError:
                is_bad = True
            else:
                is_bad = False
            parts.setdefault(key, {}).setdefault(data.index, {})[is_bad] = data
    for key, topic in taken.items():
        kinds = parts.get(key, {}).values()
        topic.partition_data = [by_kind[is_bad] for by_kind in kinds for is_bad in sorted(by_kind)]
    return list(taken.values())


def _unauthorized_topics(context: BrokerContext, request: ProduceRequest) -> Collection[str | bytes]:
    """Names, or from v13 on ids, of topics that the client may not write to; unknown ids are not among them."""
    if context.api_version < TOPIC_ID_VERSION:
        return {topic.name for topic in request.topic_data if not context.authorize(WRITE, TOPIC, topic.name)}
    images = [context.services.metadata.topic_by_id(topic.topic_id) for topic in request.topic_data]
    return {image.topic_id for image in images if image is not None and not context.authorize(WRITE, TOPIC, image.name)}


async def _verify(
    context: BrokerContext, request: ProduceRequest, transactional_id: str, unauthorized: Collection[str | bytes]
) -> tuple[ErrorCode, Verified | None]:
    """Asks the coordinator for the transactional batches of a request; or the error that every partition gets."""
    from pykbroker.requests.transaction_verification import ProducerIdentity, verify_and_retry

    producers: set[tuple[int, int]] = set()
    first_sequences: dict[Partition, int] = {}
    for topic in request.topic_data:
        if (topic.name or topic.topic_id) in unauthorized:
            continue
        for data in topic.partition_data:
            partition = _find(context, topic, data.index)
            if partition is None or not _attributes(data.records) & TRANSACTIONAL_FLAG:
                continue
            if context.api_version < ZSTD_VERSION and _attributes(data.records) & CODEC_MASK == CODEC_ZSTD:
                continue  # It is refused, and not a part of the transaction.
            producer_id, epoch, sequence = PRODUCER.unpack_from(data.records, PRODUCER_ID_POSITION)
            if producer_id >= 0:
                producers.add((producer_id, epoch))
                first_sequences[partition] = sequence
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
    if not producers:
        return ErrorCode.NONE, None
    ((producer_id, epoch),) = producers
    identity = ProducerIdentity(transactional_id, producer_id, epoch)
    client = _generation(context.api_version)
    return ErrorCode.NONE, await verify_and_retry(context.services, identity, first_sequences, client)


def _generation(api_version: int) -> ClientGeneration:
    from pykbroker.requests.transaction_verification import ClientGeneration

    if api_version >= EPOCH_BUMP_VERSION:
        return ClientGeneration.EPOCH_BUMPS
    return ClientGeneration.NEW_ERRORS if api_version >= ABORTABLE_VERSION else ClientGeneration.OLD_ERRORS


def _attributes(records: Any) -> int:
    """Low byte of the first batch's attributes; 0 for what is too short to have one."""
    if records is None or len(records) < HEADER_SIZE:
        return 0
    low_byte: int = records[FLAGS_POSITION]
    return low_byte


def _append_one(
    context: BrokerContext,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    now_ms: int,
    refused: ErrorCode,
    verified: Verified | None,
    endpoints: dict[int, NodeEndpoint],
    appended: list[_Appended] | None,
) -> PartitionProduceResponse:
    if refused:
        response = _failure(data.index, refused)
        if refused is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            response.error_message = "Transactional records contained more than one producer ID"
        return response
    partition = _find(context, topic, data.index)
    if partition is None or partition.leadership is None:
        return _not_here(context, topic, data.index, endpoints)
    verification = None
    try:
        _check_records(context, data)
        if verified is not None:
            place = (partition.topic, partition.partition)
            if place in verified.errors:
                return _verification_failure(context, data.index, verified.errors[place])
            verification = verified.verifications.get(place)
        _check(context, request, partition, data)
        result = partition.append_as_leader(data.records, now_ms, verification=verification)
    except RecordError as error:
        return _record_failure(data.index, error, partition)
    except (KafkaError, LogError) as error:
        response = _failure(data.index, error_code_for(error))
        if response.error_code in TELLS_LOG_START:
            response.log_start_offset = partition.log.log_start_offset
        return response
    response = PartitionProduceResponse(
        index=data.index,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if appended is not None and partition.leadership.followers:
        appended.append(_Appended(partition, result.last_offset + 1, partition.leadership, response))
    return response


def _check_records(context: BrokerContext, data: PartitionProduceData) -> None:
    """Check the records by themselves.

    Raises:
        KafkaError: the partition is refused.
    """
    records = data.records
    size: int | None = None
    if records is not None and len(records) >= HEADER_SIZE:
        length, _, magic = LENGTH_TO_MAGIC.unpack_from(records, LENGTH_POSITION)
        if magic == MAGIC_MAX and length + LENGTH_OVERHEAD == len(records):
            size = len(records)
    is_one = size is not None
    if size is None:
        size = _size_at(records or b"", 0)
        if size is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a partition needs exactly one whole record batch")
        if records[MAGIC_POSITION] != MAGIC_MAX:
            raise KafkaError(ErrorCode.INVALID_RECORD, "Produce since version 3 takes record batches of magic 2 only")
    if context.api_version < ZSTD_VERSION and _attributes(records) & CODEC_MASK == CODEC_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    if not is_one and _size_at(records, size) is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition needs exactly one whole record batch")


def _size_at(records: Any, position: int) -> int | None:
    """Size of the batch that begins there; None if there is no whole one.

    Raises:
        KafkaError: it cannot be one.
    """
    from pykbroker.protocol.records.validation import batch_size

    try:
        return batch_size(records, position)
    except RecordError as error:
        raise KafkaError(error.error_code, str(error)) from error


def _check(context: BrokerContext, request: ProduceRequest, partition: Partition, data: PartitionProduceData) -> None:
    """Check what depends on the request and not on the log.

    Raises:
        KafkaError: the partition is refused.
    """
    if request.acks not in ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}")
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker only")
    if request.acks == ACKS_ALL:
        partition.check_enough_replicas()


def _find(context: BrokerContext, topic: TopicProduceData, index: int) -> Partition | None:
    partitions = context.services.partitions
    if context.api_version >= TOPIC_ID_VERSION:
        return partitions.get_by_id(topic.topic_id, index)
    return partitions.get(topic.name, index)


def _not_here(
    context: BrokerContext, topic: TopicProduceData, index: int, endpoints: dict[int, NodeEndpoint]
) -> PartitionProduceResponse:
    """A partition that does not exist, or whose leader is another broker, which v10 and later name (KIP-951)."""
    metadata = context.services.metadata
    if context.api_version >= TOPIC_ID_VERSION:
        image = metadata.topic_by_id(topic.topic_id)
        if image is None:
            return _failure(index, ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        image = metadata.topic(topic.name)
    found = image.partitions.get(index) if image is not None else None
    if found is None:
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if image is not None and context.services.partitions.is_offline(image.name, index):
        return _failure(index, ErrorCode.KAFKA_STORAGE_ERROR)
    response = _failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    _name_leader(context, response, found, endpoints)
    return response


def _name_leader(
    context: BrokerContext,
    response: PartitionProduceResponse,
    image: PartitionImage,
    endpoints: dict[int, NodeEndpoint],
) -> None:
    """Says in a partition's error who leads it, which v10 and later carry (KIP-951)."""
    if context.api_version < LEADER_HINT_VERSION:
        return
    response.current_leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)
    endpoint = context.services.metadata.endpoint(image.leader, context.connection)
    if endpoint is not None:
        endpoints[image.leader] = NodeEndpoint(
            node_id=image.leader, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
        )


def _failure(index: int, error_code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error_code, base_offset=-1, log_start_offset=-1)


def _verification_failure(context: BrokerContext, index: int, code: ErrorCode) -> PartitionProduceResponse:
    from pykbroker.requests.transaction_verification import produce_error

    error = produce_error(code, _generation(context.api_version))
    response = _failure(index, error.error_code)
    response.error_message = error.message or None
    return response


def _record_failure(index: int, error: RecordError, partition: Partition) -> PartitionProduceResponse:
    """Names the records at fault and why, which v8 and later carry (P-36)."""
    response = _failure(index, error.error_code)
    if error.reports_log_start_offset:
        response.log_start_offset = partition.log.log_start_offset
    if error.record_errors:
        response.error_message = str(error)
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
            for number, message in error.record_errors
        ]
    return response
