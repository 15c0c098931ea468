"""Fetch (key 1): read record batches.

Versions 4-18. v5 log_start_offset; v7 incremental sessions (KIP-227); v9 current_leader_epoch (KIP-320); v10 zstd;
v11 rack_id and reads from followers (KIP-392); v12 flexible, last_fetched_epoch and diverging epochs (KIP-595); v13
topics by id (KIP-516); v15 replica state (KIP-903); v16 leader hints (KIP-951); v17 directory id and v18 high watermark
of a replica, which only replicas send.

A replica reads to the log end, and where it begins to read is what the leader knows of its progress; consumers read to
the high watermark, from v11 on also of a follower.

No record is touched: a partition answers with a range of its segment file, which leaves by sendfile. If there are too
few bytes the request waits once, with one deadline, until the logs have grown by what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from pykbroker.replication.fetch_sessions import PartitionKey
from pykbroker.replication.offset_waiters import wait_for_bytes
from pykbroker.replication.partition import NO_EPOCH, FetchBound

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch import FetchRequest
    from pykbroker.replication.fetch_sessions import FetchContext, FetchedPartition
    from pykbroker.replication.leadership import Follower
    from pykbroker.replication.partition import Partition, PartitionRead
    from pykbroker.requests.context import BrokerContext

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
CONSUMER_REPLICA_ID = -1
DEBUG_CONSUMER_REPLICA_ID = -2
DIVERGING_VERSION = 12
TOPIC_ID_VERSION = 13
LEADER_HINT_VERSION = 16
FOLLOWER_READ_VERSION = 11
HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Reader(NamedTuple):
    """The reader: `replica_id` is -1 for a consumer, `bound` a FetchBound; `is_first_pass`: nothing was awaited yet.

    `rack` is that of a consumer which may be sent to a follower in it, else empty.
    """

    replica_id: int
    replica_epoch: int
    bound: int
    is_first_pass: bool
    rack: str


class _Read:
    """One pass over the partitions of a request."""

    __slots__ = ("answer_now", "data", "size_bytes", "throttled", "waiting_on")

    def __init__(self) -> None:
        self.data: list[tuple[FetchedPartition, PartitionData]] = []
        self.size_bytes = 0
        self.answer_now = False
        self.waiting_on: list[Partition] = []
        # What is given to throttled replicas.
        self.throttled: list[FetchedPartition] = []

    def release(self) -> None:
        """Gives back the file ranges of a pass that is read again."""
        for _, data in self.data:
            if data.records:
                data.records.release()


async def handle_fetch(context: BrokerContext, request: FetchRequest) -> FetchResponse:
    """Reads what the session or the request asks for, waiting up to `max_wait_ms` for `min_bytes` (P-63)."""
    services = context.services
    uses_topic_ids = context.api_version >= TOPIC_ID_VERSION
    fetch = services.fetch_sessions.resolve(request, uses_topic_ids, services.clock.now_ms())
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    if request.isolation_level not in ISOLATION_LEVELS and _asks_a_log(context, fetch):
        return _unknown_isolation(context, request)
    reader = _reader(context, request)
    read = _read_all(context, request, fetch, reader)
    wanted = request.min_bytes - read.size_bytes
    if request.max_wait_ms > 0 and wanted > 0 and not read.answer_now and fetch.partitions:
        # The log may be deleted or change leaders meanwhile: everything is looked up again after the wait.
        if reader.bound == FetchBound.LOG_END:
            logs = [partition.end_waiters for partition in read.waiting_on]
        elif reader.bound == FetchBound.LAST_STABLE_OFFSET:
            logs = [partition.stable_waiters for partition in read.waiting_on]
        else:
            logs = [partition.waiters for partition in read.waiting_on]
        reader = reader._replace(is_first_pass=False)
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while True:
            read.release()
            await wait_for_bytes(logs, wanted, deadline)
            read = _read_all(context, request, fetch, reader)
            # A wake-up may bring nothing: what became stable can lie before the reader's offset. Then it waits on.
            if read.size_bytes or read.answer_now or trio.current_time() >= deadline:
                break
    if reader.bound == FetchBound.LOG_END:
        _record_throttled(context, read)
    return _response(context, fetch, read)


def _asks_a_log(context: BrokerContext, fetch: FetchContext) -> bool:
    """True if any partition of the request is here; Kafka looks at some fields only then."""
    partitions = context.services.partitions
    if context.api_version >= TOPIC_ID_VERSION:
        return any(partitions.get_by_id(key.topic_id, key.partition) is not None for key in fetch.partitions)
    return any(partitions.get(key.topic, key.partition) is not None for key in fetch.partitions)


def _unknown_isolation(context: BrokerContext, request: FetchRequest) -> FetchResponse:
    """Kafka has no better error than UNKNOWN_SERVER_ERROR for it; before topic ids every partition has it, too."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if context.api_version < TOPIC_ID_VERSION:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    _failure(context, PartitionKey(topic.topic, topic.topic_id, asked.partition), error, None)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def _read_all(context: BrokerContext, request: FetchRequest, fetch: FetchContext, reader: _Reader) -> _Read:
    """Reads each partition in order under the size limits of the request and the broker (P-60, P-64)."""
    read = _Read()
    rest = min(request.max_bytes, context.services.config.fetch.max_bytes)
    for asked in fetch.partitions.values():
        quiet = asked.quiet
        if quiet is not None and quiet.is_still(
            asked.sent_high_watermark, asked.sent_log_start_offset, reader.replica_epoch
        ):
            # Nothing to say, and nothing to look at but whether it is there still.
            if reader.is_first_pass:
                quiet.on_fetch()
            read.waiting_on.append(quiet.partition)
            continue
        data = _read_one(context, asked, reader, min(asked.size_max, rest), read)
        size = len(data.records)
        read.size_bytes += size
        rest = max(0, rest - size)
        read.data.append((asked, data))
    return read


def _reader(context: BrokerContext, request: FetchRequest) -> _Reader:
    replica_id, replica_epoch = request.replica_id, -1
    if replica_id == CONSUMER_REPLICA_ID:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    bound = FetchBound.HIGH_WATERMARK
    if replica_id not in (CONSUMER_REPLICA_ID, DEBUG_CONSUMER_REPLICA_ID):
        bound = FetchBound.LOG_END
    elif request.isolation_level == READ_COMMITTED:
        bound = FetchBound.LAST_STABLE_OFFSET
    # Nothing is looked up for a selector that is not configured.
    rack = request.rack_id if context.services.config.replication.selector_class else ""
    return _Reader(replica_id, replica_epoch, bound, True, rack)


def _read_one(
    context: BrokerContext, asked: FetchedPartition, reader: _Reader, size_max: int, read: _Read
) -> PartitionData:
    key = asked.key
    bound = reader.bound
    if context.services.authorizer is not None and not _may_read(context, key, bound):
        read.answer_now = True
        return _failure(context, key, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    partitions = context.services.partitions
    if context.api_version >= TOPIC_ID_VERSION:
        partition = partitions.get_by_id(key.topic_id, key.partition)
    else:
        partition = partitions.get(key.topic, key.partition)
    try:
        if partition is None:
            raise _not_here(context, asked)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if partition.leadership is None:
            _check_follower(context, partition, bound)
        if reader.rack and bound != FetchBound.LOG_END:
            preferred = _preferred_replica(context, partition, asked.fetch_offset, reader.rack)
            if preferred >= 0:
                read.answer_now = True
                return _elsewhere(partition, preferred)
        follower = None
        if reader.replica_id >= 0:
            follower = partition.follower(reader.replica_id, asked.current_leader_epoch)
        found = partition.read(
            asked.fetch_offset,
            size_max,
            bound,
            # Only the first partition with data may exceed the limits, by one batch (KIP-74).
            at_least_one=not read.size_bytes,
            # A session may have begun in a version that could be told of divergence, and go on in one that cannot.
            last_fetched_epoch=asked.last_fetched_epoch if context.api_version >= DIVERGING_VERSION else NO_EPOCH,
        )
        if follower is not None:
            if reader.is_first_pass and found.diverging is None:
                _note_progress(partition, follower, asked, reader, found)
                asked.quiet = partition.quiet(follower, asked.fetch_offset)
            if found.records is not None and _is_throttled(context, partition, reader, read, asked):
                found.records.release()
                found = found._replace(records=None)
    except (KafkaError, LogError) as error:
        read.answer_now = True
        return _failure(context, key, error_code_for(error), partition)
    read.waiting_on.append(partition)
    data = PartitionData(
        partition_index=key.partition,
        high_watermark=found.high_watermark if follower is None else partition.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        records=b"" if found.records is None else found.records,
    )
    # As in Kafka: no list where a first batch did not fit, an empty one where there was no room at all.
    is_cut = found.records is None and size_max > 0 and asked.fetch_offset < found.last_stable_offset
    if bound == FetchBound.LAST_STABLE_OFFSET and found.diverging is None and not is_cut:
        data.aborted_transactions = _aborted(partition, asked.fetch_offset, found)
    if found.diverging is not None:
        read.answer_now = True
        data.diverging_epoch = EpochEndOffset(epoch=found.diverging[0], end_offset=found.diverging[1])
    return data


def _check_follower(context: BrokerContext, partition: Partition, bound: int) -> None:
    """True if a replica that does not lead may be read by who asks. Raises KafkaError."""
    if bound == FetchBound.LOG_END or context.api_version < FOLLOWER_READ_VERSION:
        partition.check_leader()
    if partition.is_lost:
        # It gets nothing new: who reads here because of its rack had better ask the leader.
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be written here")


def _preferred_replica(context: BrokerContext, partition: Partition, offset: int, rack: str) -> int:
    """The follower that a consumer of this rack had better ask, -1 for none (KIP-392)."""
    from pykbroker.replication.read_replicas import preferred_read_replica

    services = context.services

    def rack_of(broker_id: int) -> str | None:
        address = services.metadata.endpoint(broker_id, context.connection)
        return None if address is None or address.is_fenced else address.rack

    return preferred_read_replica(partition, offset, rack, services.config.broker.rack, rack_of)


def _elsewhere(partition: Partition, preferred: int) -> PartitionData:
    """An answer without records that sends a consumer to a follower."""
    return PartitionData(
        partition_index=partition.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


def _is_throttled(
    context: BrokerContext, partition: Partition, reader: _Reader, read: _Read, asked: FetchedPartition
) -> bool:
    """True if a replica that is not in sync has to wait (KIP-73); otherwise notes that it is given something."""
    throttle = context.services.leader_throttle
    if throttle is None or not throttle.applies_to(partition.topic, partition.partition):
        return False
    if reader.replica_id not in partition.isr and throttle.is_exceeded(trio.current_time()):
        return True
    read.throttled.append(asked)
    return False


def _record_throttled(context: BrokerContext, read: _Read) -> None:
    """Counts what goes out to throttled replicas."""
    throttle = context.services.leader_throttle
    if throttle is not None and read.throttled:
        size = sum(len(data.records) for asked, data in read.data if asked in read.throttled)
        throttle.record(size, trio.current_time())


def _note_progress(
    partition: Partition, follower: Follower, asked: FetchedPartition, reader: _Reader, found: PartitionRead
) -> None:
    """Note a follower's fetch offset, its log end offset. It may move the high watermark of the same response."""
    try:
        partition.on_follower_fetch(follower, asked.fetch_offset, asked.log_start_offset, reader.replica_epoch)
    except KafkaError:
        if found.records is not None:
            found.records.release()
        raise


def _may_read(context: BrokerContext, key: PartitionKey, bound: int) -> bool:
    """Replicas need CLUSTER_ACTION, consumers READ; of an id that nobody has is told nothing but that."""
    if bound == FetchBound.LOG_END:
        return context.authorize_cluster(CLUSTER_ACTION)
    if context.api_version < TOPIC_ID_VERSION:
        return context.authorize(READ, TOPIC, key.topic)
    topic = context.services.metadata.topic_by_id(key.topic_id)
    return topic is None or context.authorize(READ, TOPIC, topic.name)


def _aborted(partition: Partition, offset: int, found: PartitionRead) -> list[AbortedTransaction]:
    """Aborted transactions in these records, for a reader of committed records (P-67)."""
    if found.records is None:
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions_in(offset, found.records)
    ]


def _not_here(context: BrokerContext, asked: FetchedPartition) -> KafkaError:
    """The error of a partition that this broker does not hold (P-71)."""
    key = asked.key
    metadata = context.services.metadata
    if context.api_version >= TOPIC_ID_VERSION:
        topic = metadata.topic_by_id(key.topic_id)
        if topic is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    else:
        topic = metadata.topic(key.topic)
    if topic is None or key.partition not in topic.partitions:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key.topic}-{key.partition} does not exist")
    if context.services.partitions.is_offline(topic.name, key.partition):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic.name}-{key.partition} cannot be opened")
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{key.partition} is on another broker")


def _failure(
    context: BrokerContext, key: PartitionKey, error_code: ErrorCode, partition: Partition | None
) -> PartitionData:
    """A partition with an error: offsets -1 and empty, never null, records (P-66)."""
    if error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version <= 5:
        error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = PartitionData(
        partition_index=key.partition,
        error_code=error_code,
        high_watermark=-1,
        # As Kafka: absent where a log was asked, empty where there was none to ask.
        aborted_transactions=[] if partition is None else None,
        records=b"",
    )
    if error_code in HINTED_ERRORS and context.api_version >= LEADER_HINT_VERSION:
        leader = (-1, -1)
        if partition is not None:
            leader = (partition.leader_id, partition.leader_epoch)
        else:
            topic = context.services.metadata.topic_by_id(key.topic_id)
            if topic is not None and key.partition in topic.partitions:
                leader = (topic.partitions[key.partition].leader, topic.partitions[key.partition].leader_epoch)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return data


def _response(context: BrokerContext, fetch: FetchContext, read: _Read) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    # In order, without duplicates.
    leaders: dict[int, None] = {}
    last: Any = None
    for asked, data in read.data:
        if not fetch.is_in_response(asked, data):
            continue
        key = asked.key
        if last is None or (last.topic, last.topic_id) != (key.topic, key.topic_id):
            last = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id)
            topics.append(last)
        last.partitions.append(data)
        if data.current_leader.leader_id >= 0:
            leaders[data.current_leader.leader_id] = None
    response = FetchResponse(session_id=fetch.session_id, responses=topics)
    for leader in leaders:
        endpoint = context.services.metadata.endpoint(leader, context.connection)
        if endpoint is not None:
            response.node_endpoints.append(
                NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            )
    return response
