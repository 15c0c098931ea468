"""ListOffsets (key 2): offsets by timestamp, or at the ends of a log.

Versions 1-11. v2 isolation level and throttle time; v4 leader epochs (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207); v6
flexible; v7 the offset of the largest timestamp, -3 (KIP-734); v8 earliest local, -4 (KIP-405); v9 latest tiered, -5
(KIP-1005); v10 timeout_ms; v11 earliest pending upload, -6 (KIP-1023). There is no tiered storage: local and earliest
are the same, nothing is tiered or pending.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.acl_codes import DESCRIBE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykbroker.requests.missing_partition import missing_partition_error

if TYPE_CHECKING:
    from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext

SPECIAL_FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
LEADER_EPOCH_VERSION = 4
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
OFFSET_NOT_AVAILABLE_VERSION = 5
NOTHING = (-1, -1, -1)


async def handle_list_offsets(context: BrokerContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Looks up each partition independently; one that is named twice gets one result, with INVALID_REQUEST (P-85)."""
    counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    refused = await context.refused_in_turns(DESCRIBE, TOPIC, (topic.name for topic in request.topics))
    response, hidden = ListOffsetsResponse(), list[ListOffsetsTopicResponse]()
    # If the client may look at no topic, Kafka does not look at the isolation level either.
    has_isolation_level = request.isolation_level in ISOLATION_LEVELS or all(t.name in refused for t in request.topics)
    turn = Turn()
    for topic in request.topics:
        if topic.name in refused or not has_isolation_level:
            # Kafka has no better error than UNKNOWN_SERVER_ERROR for an unknown isolation level.
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if has_isolation_level else ErrorCode.UNKNOWN_SERVER_ERROR
            errors = [_failure(p.partition_index, error) for p in topic.partitions]
            # As in Kafka topics that the client may not see come last.
            topics = hidden if has_isolation_level else response.topics
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=errors))
            continue
        partitions = []
        for asked in topic.partitions:
            # To find a timestamp a whole batch may have to be decompressed.
            await turn.end_if_over()
            count = counts.pop((topic.name, asked.partition_index), 0)
            if count:
                partitions.append(_answer(context, request, topic.name, asked, count > 1))
        if partitions:
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    response.topics += hidden
    return response


def _answer(
    context: BrokerContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, is_duplicate: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    if is_duplicate:
        return _failure(index, ErrorCode.INVALID_REQUEST)
    timestamp = asked.timestamp
    if timestamp < 0 and context.api_version < SPECIAL_FROM_VERSION.get(timestamp, 1 << 15):
        return _failure(index, ErrorCode.UNSUPPORTED_VERSION)
    partition = context.services.partitions.get(topic, index)
    if partition is None:
        return _failure(index, missing_partition_error(context, topic, index))
    try:
        partition.check_leader_epoch(asked.current_leader_epoch)
        if request.replica_id != DEBUG_REPLICA_ID:
            partition.check_leader()
        found_timestamp, offset, leader_epoch = _find(partition, request, timestamp)
    except (KafkaError, LogError) as error:
        code = error_code_for(error)
        if code == ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < OFFSET_NOT_AVAILABLE_VERSION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failure(index, code)
    answer = ListOffsetsPartitionResponse(partition_index=index, timestamp=found_timestamp, offset=offset)
    if context.api_version >= LEADER_EPOCH_VERSION:
        answer.leader_epoch = leader_epoch
    return answer


def _find(partition: Partition, request: ListOffsetsRequest, timestamp: int) -> tuple[int, int, int]:
    """Returns (timestamp, offset, leader epoch); -1 each if nothing was found (P-80 to P-84).

    Raises:
        KafkaError: OFFSET_NOT_AVAILABLE (KIP-207) while the high watermark of a new leader is below the start of its
            epoch: an end offset returned now could be lower than one that a client was given before.
    """
    log = partition.log
    if request.replica_id != CONSUMER_REPLICA_ID:
        readable_end = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        readable_end = partition.last_stable_offset
    else:
        readable_end = partition.high_watermark
    is_behind = request.replica_id == CONSUMER_REPLICA_ID and partition.is_behind_its_epoch
    if timestamp == LATEST:
        if is_behind:
            raise _not_available(partition)
        return -1, readable_end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_for(log.log_start_offset)
        # Kafka's leader adds its epoch to the epoch cache when it becomes leader, ours with the first batch.
        return -1, log.log_start_offset, epoch if epoch >= 0 else partition.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= readable_end:
        if is_behind:
            raise _not_available(partition)
        return NOTHING
    return found.timestamp, found.offset, found.leader_epoch


def _not_available(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{partition}: the high watermark {partition.high_watermark} is below the beginning of the leader epoch",
    )


def _failure(index: int, error_code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error_code)
