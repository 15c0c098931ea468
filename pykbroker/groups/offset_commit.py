"""OffsetCommit and TxnOffsetCommit (P-108 to P-114, P-139)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.errors import CoordinatorError
from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING, STABLE
from pykbroker.groups.consumer import offsets as consumer_offsets
from pykbroker.groups.offset_log import committed_offset_from, encode_record, offset_record
from pykbroker.groups.offsets import CommittedOffset, has_too_large_metadata
from pykbroker.groups.result import GroupResult, LogRecord, PreparedOffsets, PreparedPending
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams import offsets as streams_offsets
from pykbroker.java_order import to_signed_long
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker.protocol.messages.offset_delete import OffsetDeleteRequest
from pykbroker.protocol.records.batch import frames_in_steps
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.groups.coordinator import GroupCoordinator
    from pykbroker.logstore.producer_state import Verification

NO_RETENTION_TIME = -1
GROUP_ID_NOT_FOUND_VERSION = 9
"""From this version on OffsetCommit gets this error for a missing group, earlier versions get ILLEGAL_GENERATION."""
FEW = 64
"""Topics, or partitions of one topic, up to which a commit is made in one step."""


async def commit_offsets(
    coordinator: GroupCoordinator,
    request: OffsetCommitRequest,
    api_version: int,
    producer: TransactionalProducer = NO_PRODUCER,
    verification: Verification | None = None,
) -> OffsetCommitResponse:
    """Commits offsets of existing topics; every topic of the request has its name and its id.

    With a `producer` they belong to the transaction that it has open, and so have a `verification` (P-139). A commit
    without anything to store waits for earlier records, unless the group has refused it (P-392).
    """
    prepared: GroupResult | None = None
    turn: Turn | None = None
    if is_large(request):
        prepared = await in_turns(
            prepare_commit(
                request, coordinator.runtime.now_ms(), producer, coordinator.config.groups.offset_metadata_max_bytes
            )
        )
        turn = Turn()
    try:
        write = coordinator.runtime.begin_write(
            request.group_id,
            commit,
            request,
            api_version,
            producer,
            prepared,
            verification=verification,
        )
        response: OffsetCommitResponse = write.result.response
        if write.result.records or is_refused(response):
            await write.wait()
        else:
            await coordinator.runtime.settled(request.group_id, write)
    except CoordinatorError as error:
        return refused_commit(request, error.error_code)
    if turn is not None:
        await turn.end_if_over()  # the request and thousands of records are freed in the next one
    return response


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Response with the same error for every partition of the request."""
    return OffsetCommitResponse(topics=[refused_topic(topic, error) for topic in request.topics])


def refused_topic(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    """A topic of a response with the same error for every partition."""
    partitions = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
        for partition in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def is_refused(response: OffsetCommitResponse) -> bool:
    """True if the group has refused the whole commit; too large metadata is an error of one partition."""
    return any(
        partition.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        for topic in response.topics
        for partition in topic.partitions
    )


def is_large(request: OffsetCommitRequest | OffsetDeleteRequest) -> bool:
    """True if the records of a commit or deletion should be made beforehand (`prepare_commit`, `prepare_deletion`)."""
    if len(request.topics) > FEW:
        return True
    for topic in request.topics:  # noqa: SIM110  a generator would cost more for each small request
        if len(topic.partitions) > FEW:
            return True
    return False


def prepare_commit(
    request: OffsetCommitRequest, now_ms: int, producer: TransactionalProducer, metadata_max: int
) -> Steps[GroupResult]:
    """Result of a large commit if its group accepts it, with encoded records and the offsets as the shard keeps them.

    It does not depend on the group, which may change between the steps: `commit` decides if it takes the result.
    """
    result = yield from _accepted_commit(request, now_ms, producer, metadata_max)
    if result.records:
        result.frames = yield from frames_in_steps(map(encode_record, result.records))
        if producer is NO_PRODUCER:
            result.offsets = yield from _offsets_in_steps(request.group_id, result.records)
        else:
            result.offsets = yield from _pending_in_steps(request.group_id, result.records, producer.producer_id)
    return result


def _offsets_in_steps(group_id: str, records: list[LogRecord]) -> Steps[PreparedOffsets]:
    topics: dict[str, dict[int, CommittedOffset]] = {}
    for number, record in enumerate(records):
        _add_offset(topics, record, number)
        if not number % PIECE:
            yield
    return PreparedOffsets(group_id, topics)


def _pending_in_steps(group_id: str, records: list[LogRecord], producer_id: int) -> Steps[PreparedPending]:
    topics: dict[str, dict[int, CommittedOffset]] = {}
    producers: dict[tuple[str, int], set[int]] = {}
    for number, record in enumerate(records):
        key: Any = record.key
        _add_offset(topics, record, number)
        producers[key.topic, key.partition] = {producer_id}
        if not number % PIECE:
            yield
    return PreparedPending(group_id, topics, producers)


def _add_offset(topics: dict[str, dict[int, CommittedOffset]], record: LogRecord, number: int) -> None:
    key: Any = record.key
    value: Any = record.value
    partitions = topics.get(key.topic)
    if partitions is None:
        partitions = topics[key.topic] = {}
    partitions[key.partition] = committed_offset_from(value, number)


def _accepted_commit(
    request: OffsetCommitRequest, now_ms: int, producer: TransactionalProducer, metadata_max: int
) -> Steps[GroupResult]:
    expires_ms = _expiry(request, now_ms)
    response = OffsetCommitResponse()
    result = GroupResult(response=response, producer=producer)
    records = result.records
    for topic in request.topics:
        # Kafka stores no topic id with a transactional commit.
        topic_id = topic.topic_id if producer is NO_PRODUCER else ZERO_UUID
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            if has_too_large_metadata(partition, metadata_max):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                answers.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
                continue
            records.append(_commit_record(request.group_id, topic.name, topic_id, partition, now_ms, expires_ms))
            answers.append(OffsetCommitResponsePartition(partition_index=index))
            if not len(records) % PIECE:
                yield
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return result


def _expiry(request: OffsetCommitRequest, now_ms: int) -> int | None:
    """Time in ms at which the offsets expire; None if the commit asks for no retention of its own."""
    if request.retention_time_ms == NO_RETENTION_TIME:
        return None
    return to_signed_long(now_ms + request.retention_time_ms)


def _commit_record(
    group_id: str,
    topic: str,
    topic_id: bytes,
    partition: OffsetCommitRequestPartition,
    now_ms: int,
    expires_ms: int | None,
) -> LogRecord:
    committed = CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expires_ms,
        topic_id,
    )
    return offset_record(group_id, topic, partition.partition_index, committed)


def commit(
    shard: GroupShard,
    now_ms: int,
    request: OffsetCommitRequest,
    api_version: int,
    producer: TransactionalProducer = NO_PRODUCER,
    prepared: GroupResult | None = None,
) -> GroupResult:
    """Commits offsets of existing topics, each with its name and id; they take effect once they are stored.

    Those of a transactional `producer` take effect once its transaction is committed, too (P-139). `prepared` is the
    result of `prepare_commit`.
    """
    metadata_max = shard.config.groups.offset_metadata_max_bytes
    if producer is NO_PRODUCER:
        error = check_commit(shard, request, api_version, now_ms)
    else:
        error = _check_transactional_commit(shard, request, now_ms)
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if error is ErrorCode.NONE and consumer_group is not None:
        error = consumer_offsets.check_partitions(
            consumer_group, request, metadata_max, is_transactional=producer is not NO_PRODUCER
        )
    if error is not ErrorCode.NONE:
        return GroupResult(response=refused_commit(request, error), producer=producer)
    return prepared or finished(_accepted_commit(request, now_ms, producer, metadata_max))


def check_commit(shard: GroupShard, request: OffsetCommitRequest, api_version: int, now_ms: int) -> ErrorCode:
    """Error of a commit as a whole, NONE if the group accepts it (P-108 to P-110).

    A commit without a generation is from a consumer that assigns its partitions itself.
    """
    generation_id, member_id = request.generation_id_or_member_epoch, request.member_id
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if consumer_group is not None:
        return consumer_offsets.check_commit(consumer_group, request, api_version)
    streams_group = shard.streams.by_id.get(request.group_id)
    if streams_group is not None:
        return streams_offsets.check_commit(
            streams_group, request, api_version, shard.config.groups.offset_metadata_max_bytes
        )
    if request.group_id in shard.share.by_id:
        return ErrorCode.GROUP_ID_NOT_FOUND
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation_id >= 0:
            has_own_error = api_version >= GROUP_ID_NOT_FOUND_VERSION
            return ErrorCode.GROUP_ID_NOT_FOUND if has_own_error else ErrorCode.ILLEGAL_GENERATION
        group = shard.get_or_create(request.group_id, now_ms)
    if generation_id < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and member_id == "" and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is COMPLETING:
        # The member has the new generation but no assignment yet: it may no longer own the partitions it commits.
        return ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state in (STABLE, PREPARING), group.state
    group.schedule_session(group.members.by_id[member_id], now_ms)
    return ErrorCode.NONE


def _check_transactional_commit(shard: GroupShard, request: OffsetCommitRequest, now_ms: int) -> ErrorCode:
    """Error of a transactional commit as a whole, NONE if the group accepts it (P-139).

    Requests before version 3 of TxnOffsetCommit have no member id and generation, and need none.
    """
    generation_id, member_id = request.generation_id_or_member_epoch, request.member_id
    consumer_group = shard.consumer.by_id.get(request.group_id)
    if consumer_group is not None:
        return consumer_offsets.check_transactional_commit(consumer_group, request)
    streams_group = shard.streams.by_id.get(request.group_id)
    if streams_group is not None:
        return streams_offsets.check_transactional_commit(
            streams_group, request, shard.config.groups.offset_metadata_max_bytes
        )
    if request.group_id in shard.share.by_id:
        return ErrorCode.GROUP_ID_NOT_FOUND
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        group = shard.get_or_create(request.group_id, now_ms)
    if generation_id < 0 and (group.state is EMPTY or (member_id == "" and request.group_instance_id is None)):
        return ErrorCode.NONE
    error = group.validate_member(member_id, request.group_instance_id)
    if error is ErrorCode.NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error
