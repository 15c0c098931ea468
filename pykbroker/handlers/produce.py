"""Produce (key 0): append record batches.

Versions 3-13. v5 log_start_offset; v7 zstd allowed; v8 record_errors (KIP-467); v9 flexible; v10 leader hints
(KIP-951); v12 as v11 on the wire (transactions of KIP-890); v13 topics by id (KIP-516).

Every partition of the request gets its result (P-43, P-50); the records are appended synchronously, in the order of the
request. With one replica per partition the high watermark has passed the batch when append returns, so acks=all
has nothing to wait for. No transaction can be open here yet, so a transactional batch is answered as Kafka answers
a partition that is not part of the transaction (P-135).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.errors import CloseConnection, KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.metadata_cache import INTERNAL_TOPICS
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pykbroker.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE
from pykbroker.protocol.records.errors import RecordError

if TYPE_CHECKING:
    from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from pykbroker.replication.partition import Partition
    from pykbroker.request_context import RequestContext

ACKS_ALL = -1
ADMIN_CLIENT_ID = "__admin_client"
CODEC_MASK = 7
CODEC_ZSTD = 4
TRANSACTIONAL_BIT = 0x10
LEADER_HINT_VERSION = 10
TOPIC_ID_VERSION = 13


async def handle_produce(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Appends every partition's batch; None with acks=0, where the client waits for nothing (P-10)."""
    refused = _refusal_of_all(request)
    now_ms = context.services.clock.now_ms()
    endpoints: dict[int, NodeEndpoint] = {}
    failed = ErrorCode.NONE
    responses = []
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            result = _append_one(context, request, topic, data, now_ms, refused, endpoints)
            if result.error_code:
                failed = ErrorCode(result.error_code)
            results.append(result)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    if request.acks == 0:
        if failed:
            raise CloseConnection(f"Produce with acks=0 failed with {failed.name}; closing tells the client")
        return None
    return ProduceResponse(responses=responses, node_endpoints=list(endpoints.values()))


def _refusal_of_all(request: ProduceRequest) -> ErrorCode:
    """An error that every partition of the request gets, whatever its records (P-34, P-49)."""
    if request.acks not in (ACKS_ALL, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is None and any(
        _attributes(data.records) & TRANSACTIONAL_BIT for topic in request.topic_data for data in topic.partition_data
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _attributes(records: Any) -> int:
    """Low byte of the first batch's attributes; 0 for what is too short to have one."""
    if records is None or len(records) < HEADER_SIZE:
        return 0
    low_byte: int = records[ATTRIBUTES_POSITION + 1]
    return low_byte


def _append_one(
    context: RequestContext,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    now_ms: int,
    refused: ErrorCode,
    endpoints: dict[int, NodeEndpoint],
) -> PartitionProduceResponse:
    if refused:
        return _failure(data.index, refused)
    services = context.services
    if context.api_version >= TOPIC_ID_VERSION:
        partition = services.partitions.get_by_id(topic.topic_id, data.index)
    else:
        partition = services.partitions.get(topic.name, data.index)
    if partition is None:
        return _not_here(context, topic, data.index, endpoints)
    try:
        _check(context, request, partition, data)
        result = partition.append_as_leader(data.records, now_ms)
    except RecordError as error:
        return _record_failure(data.index, error, partition)
    except (KafkaError, LogError) as error:
        return _failure(data.index, error_code_for(error))
    return PartitionProduceResponse(
        index=data.index,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def _check(context: RequestContext, request: ProduceRequest, partition: Partition, data: PartitionProduceData) -> None:
    """What depends on the request and not on the log.

    Raises:
        KafkaError: the partition is refused.
    """
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker only")
    if data.records is None or len(data.records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition needs exactly one whole record batch")
    attributes = _attributes(data.records)
    if attributes & CODEC_MASK == CODEC_ZSTD and context.api_version < 7:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    if attributes & TRANSACTIONAL_BIT:
        code = ErrorCode.TRANSACTION_ABORTABLE if context.api_version >= 11 else ErrorCode.INVALID_TXN_STATE
        raise KafkaError(code, "the partition is not part of a transaction")
    if request.acks == ACKS_ALL:
        partition.check_enough_replicas()


def _not_here(
    context: RequestContext, topic: TopicProduceData, index: int, endpoints: dict[int, NodeEndpoint]
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
    response = _failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if context.api_version >= LEADER_HINT_VERSION:
        response.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)
        endpoint = metadata.endpoint(found.leader, context)
        if endpoint is not None:
            endpoints[found.leader] = NodeEndpoint(node_id=found.leader, host=endpoint.host, port=endpoint.port)
    return response


def _failure(index: int, error_code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error_code, base_offset=-1, log_start_offset=-1)


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
