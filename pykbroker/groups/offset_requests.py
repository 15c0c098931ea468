"""OffsetCommit, OffsetFetch and OffsetDelete on one shard (P-107 to P-114)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING, STABLE
from pykbroker.groups.consumer import offsets as consumer_offsets
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.offset_log import (
    committed_offset_from,
    encode_record,
    offset_record,
    offset_tombstones,
    tombstones_in_steps,
)
from pykbroker.groups.offsets import CommittedOffset, OffsetKey, has_too_large_metadata
from pykbroker.groups.result import GroupResult, LogRecord, PreparedOffsets, PreparedPending, Tombstones
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams import offsets as streams_offsets
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.java_order import string_hash, timeline_number_order, timeline_order, to_signed_long
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykbroker.protocol.records.batch import frames_in_steps
from pykbroker.protocol.steps import PIECE, Steps, finished, list_in_steps
from pykbroker.protocol.uuids import ZERO_UUID

NO_RETENTION_TIME = -1
GROUP_ID_NOT_FOUND_VERSION = 9
"""From this version on OffsetCommit gets this error for a missing group, earlier versions get ILLEGAL_GENERATION."""


def commit_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Response with the same error for every partition of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def is_refused(response: OffsetCommitResponse) -> bool:
    """True if the group has refused the whole commit; too large metadata is an error of one partition."""
    return any(
        partition.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        for topic in response.topics
        for partition in topic.partitions
    )


FEW = 64
"""Topics, or partitions of one topic, up to which a commit is made in one step."""


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
    result = yield from _accepted(request, now_ms, producer, metadata_max)
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
        key: Any = record.key
        value: Any = record.value
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
        partitions[key.partition] = committed_offset_from(value, number)
        if not number % PIECE:
            yield
    return PreparedOffsets(group_id, topics)


def _pending_in_steps(group_id: str, records: list[LogRecord], producer_id: int) -> Steps[PreparedPending]:
    offsets: dict[OffsetKey, CommittedOffset] = {}
    producers: dict[tuple[str, int], set[int]] = {}
    for number, record in enumerate(records):
        key: Any = record.key
        value: Any = record.value
        offsets[group_id, key.topic, key.partition] = committed_offset_from(value, number)
        producers[key.topic, key.partition] = {producer_id}
        if not number % PIECE:
            yield
    return PreparedPending(group_id, offsets, producers)


def _accepted(
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
        return GroupResult(response=commit_response(request, error), producer=producer)
    return prepared or finished(_accepted(request, now_ms, producer, metadata_max))


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


def _check_fetch(group: ConsumerGroup | StreamsGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Error of an OffsetFetch; one without a member is from an administrator or an older client."""
    if member_id is None:
        # With an epoch, Kafka looks for the member null, and its table of members fails.
        return ErrorCode.NONE if member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    return member.epoch_error if isinstance(member, ConsumerMember) else ErrorCode.STALE_MEMBER_EPOCH


def fetch(
    shard: GroupShard, request: OffsetFetchRequestGroup, require_stable: bool = False
) -> Steps[OffsetFetchResponseGroup]:
    """Committed offsets of a group, all of them if `topics` is None, as they are in the first of the steps.

    A missing group and a share group have none, which is no error (P-112). With `require_stable` a partition whose
    offset an open transaction may change gets UNSTABLE_OFFSET_COMMIT (P-113). All of them come in the order of the hash
    tables in which Kafka keeps them (P-652).
    """
    group_id = request.group_id
    group = shard.any_group(group_id) if require_stable else shard.committed_group(group_id)
    error = ErrorCode.NONE
    if isinstance(group, ConsumerGroup | StreamsGroup):
        error = _check_fetch(group, request.member_id, request.member_epoch)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    # Offsets may be left of a group that was forgotten without tombstones (P-381).
    committed_topics = {} if group is None else shard.offsets.of_group(group_id)
    unstable = shard.unstable_offsets(group_id) if require_stable else ()
    found: Iterable[tuple[str, bytes, list[tuple[int, CommittedOffset | None]]]]
    if request.topics is None:
        captured = {name: dict(partitions) for name, partitions in committed_topics.items()}
        # A hash takes 2 us when it is computed first, and is known from then on.
        for number, name in enumerate(captured, 1):
            string_hash(name)
            if not number % PIECE:
                yield
        found = (
            (name, ZERO_UUID, [(number, captured[name][number]) for number in timeline_number_order(captured[name])])
            for name in timeline_order(captured)
        )
    else:
        listed = []
        for topic in request.topics:
            partitions = committed_topics.get(topic.name, {})
            listed.append(
                (topic.name, topic.topic_id, [(number, partitions.get(number)) for number in topic.partition_indexes])
            )
        found = listed
    topics = []
    count = 0
    for name, topic_id, offsets in found:
        answered = []
        for number, committed in offsets:
            if (name, number) in unstable:
                answered.append(_unstable(number))
            else:
                answered.append(_fetched(number, _same_topic(committed, topic_id)))
            count += 1
            if not count % PIECE:
                yield
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answered))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _same_topic(committed: CommittedOffset | None, topic_id: bytes) -> CommittedOffset | None:
    """The committed offset; None if it was for an earlier topic of the same name."""
    if committed is None or ZERO_UUID in (topic_id, committed.topic_id) or committed.topic_id == topic_id:
        return committed
    return None


def _fetched(partition: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    """The error for an offset that an open transaction may change."""
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=-1, metadata="", error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


class PreparedDeletion(NamedTuple):
    """A large request to delete offsets, as it is answered if no topic is subscribed to.

    `named` are the topics and partitions of the request; `are_known` says of each if there was an offset to be deleted.
    """

    named: list[tuple[str, int]]
    are_known: list[bool]
    tombstones: Tombstones
    response: OffsetDeleteResponse


def prepare_deletion(shard: GroupShard, request: OffsetDeleteRequest) -> Steps[PreparedDeletion | None]:
    """The tombstones for a large request, encoded in steps, and its response; None if there is nothing to delete now.

    The group and its offsets may change between the steps: `delete_offsets` takes them if these are the offsets then.
    """
    group_id = request.group_id
    named: list[tuple[str, int]] = []
    are_known: list[bool] = []
    topics: list[OffsetDeleteResponseTopic] = []
    uncommitted = _uncommitted(shard, group_id)
    for start in range(0, len(request.topics), PIECE):
        piece = request.topics[start : start + PIECE]
        named_here = _named(piece)
        named += named_here
        are_known += _are_known(shard, group_id, named_here, uncommitted)
        topics += [_deleted(topic, ErrorCode.NONE) for topic in piece]
        yield
    if not any(are_known):
        return None
    offsets = yield from list_in_steps((group_id, *each) for each in compress(named, are_known))
    tombstones = yield from tombstones_in_steps(offsets)
    return PreparedDeletion(named, are_known, tombstones, OffsetDeleteResponse(topics=topics))


def _uncommitted(shard: GroupShard, group_id: str) -> set[tuple[str, int]]:
    """Topics and partitions of a group with offsets that are pending or in flight."""
    return {*shard.pending.of_group(group_id), *shard.in_flight.of_group(group_id)}


def _named(topics: Iterable[OffsetDeleteRequestTopic]) -> list[tuple[str, int]]:
    """Topics and partitions that topics of a request name; each topic's once."""
    return [
        (topic.name, number)
        for topic in topics
        for number in dict.fromkeys([partition.partition_index for partition in topic.partitions])
    ]


def _are_known(
    shard: GroupShard, group_id: str, named: Iterable[tuple[str, int]], uncommitted: set[tuple[str, int]]
) -> list[bool]:
    """True for each topic and partition whose offset is committed, or `uncommitted`."""
    committed = shard.offsets.of_group(group_id)
    none: dict[int, CommittedOffset] = {}
    if not uncommitted:
        return [number in committed.get(topic, none) for topic, number in named]
    return [number in committed.get(topic, none) or (topic, number) in uncommitted for topic, number in named]


def _deleted(topic: OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic:
    partitions = [
        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
        for partition in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def delete_offsets(
    shard: GroupShard, now_ms: int, request: OffsetDeleteRequest, prepared: PreparedDeletion | None = None
) -> GroupResult:
    """Deletes offsets of topics that no member of the group consumes (P-107).

    `prepared` is the result of `prepare_deletion`.
    """
    group_id = request.group_id
    group, modern_group = shard.groups.get(group_id), shard.modern_group(group_id)
    if group is None and (modern_group is None or group_id in shard.share.by_id):
        return GroupResult(response=OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group is not None and group.state is not EMPTY and not group.is_consumer_group:
        return GroupResult(response=OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    is_subscribed: Callable[[str], bool]
    if modern_group is not None:
        is_subscribed = modern_group.consumes_topic
    else:
        assert group is not None
        is_subscribed = group.is_subscribed_to
    free = [topic for topic in request.topics if not is_subscribed(topic.name)]
    uncommitted = _uncommitted(shard, group_id)
    if (
        prepared is not None
        and len(free) == len(request.topics)
        and _are_known(shard, group_id, prepared.named, uncommitted) == prepared.are_known
    ):
        _, records, frames = prepared.tombstones
        return GroupResult(records=records, response=prepared.response, frames=frames)
    named = _named(free)
    known = compress(named, _are_known(shard, group_id, named, uncommitted))
    response = OffsetDeleteResponse()
    for topic in request.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(topic.name) else ErrorCode.NONE
        response.topics.append(_deleted(topic, error))
    return GroupResult(records=offset_tombstones((group_id, *each) for each in known), response=response)
