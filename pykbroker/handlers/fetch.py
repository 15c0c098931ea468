"""Fetch (key 1): read record batches.

Versions 4-18. v5 log_start_offset; v7 incremental sessions (KIP-227); v9 current_leader_epoch (KIP-320); v10 zstd;
v11 rack_id and reads from followers (KIP-392); v12 flexible, last_fetched_epoch and diverging epochs (KIP-595); v13
topics by id (KIP-516); v15 replica state (KIP-903); v16 leader hints (KIP-951); v17 directory id and v18 high watermark
of a replica, which only replicas send.

The steps, in this order:

* resolve: the session's partitions, or those that the request names (KIP-227);
* read: each partition in order, under the size limits of the request and the broker; a replica reads to the log end
  offset, and its fetch offset is its own log end offset; a consumer reads to the high watermark, from v11 on also from
  a follower;
* wait, if there are too few bytes: with one deadline, until the logs have grown by the missing bytes; then read what
  has changed;
* respond: with those partitions that have changes for the session.

Records are not touched: a partition's data is a range of its segment file, which is sent with sendfile. A request of
thousands of partitions is read in turns, between which other clients are served.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.acl_codes import CLUSTER_ACTION, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchResponse, PartitionData
from pykbroker.protocol.steps import finished
from pykbroker.replication.caught_up import caught_up_consumer, caught_up_follower
from pykbroker.replication.fetch_sessions import FEW, forgotten_partitions, is_large, requested_partitions
from pykbroker.replication.offset_waiters import OffsetWaiter
from pykbroker.replication.partition import NO_EPOCH, FetchBound
from pykbroker.requests.fetch_responses import (
    ERRORS_OF_LOGS,
    TOPIC_ID_VERSION,
    ResponseParts,
    at_preferred_replica,
    failure,
    not_here,
    response_size,
    throttled_response,
    topic_of,
    unknown_isolation,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch import FetchRequest
    from pykbroker.replication.fetch_sessions import FetchContext, FetchedPartition, PartitionKey
    from pykbroker.replication.leadership import Follower, Leadership
    from pykbroker.replication.offset_waiters import OffsetWaiters
    from pykbroker.replication.partition import Partition, PartitionRead
    from pykbroker.requests.context import BrokerContext

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
CONSUMER_REPLICA_ID = -1
FUTURE_REPLICA_ID = -3
"""Kafka's replicas that move to another directory read with it inside their broker."""
SKIPPED_PER_LOOK = 256
"""Number of skipped partitions between two looks at the clock. A look costs a third of skipping one partition."""
FOLLOWER_READ_VERSION = 11
DIVERGING_VERSION = 12


async def handle_fetch(context: BrokerContext, request: FetchRequest) -> FetchResponse:
    """Reads the partitions of the session or the request, waiting up to `max_wait_ms` for `min_bytes` (P-63)."""
    services = context.services
    uses_topic_ids = context.api_version >= TOPIC_ID_VERSION
    replica_id = _replica_id(request)
    steps_of_request = requested_partitions(request)
    partitions = await in_turns(steps_of_request) if is_large(request) else finished(steps_of_request)
    forgotten = await in_turns(forgotten_partitions(request)) if request.forgotten_topics_data else ()
    fetch = services.fetch_sessions.resolve(
        request,
        partitions,
        uses_topic_ids,
        services.clock.now_ms(),
        forgotten=forgotten,
        is_of_replica=replica_id >= 0,
    )
    if context.quota is not None and replica_id >= 0:
        context.quota.exempt()
    if fetch.error:
        return FetchResponse(error_code=fetch.error)
    steps = FetchSteps(context, request, fetch, replica_id)
    if request.isolation_level not in ISOLATION_LEVELS and steps.has_readable_partition():
        if not fetch.is_incremental:
            services.fetch_sessions.forget(fetch.session_id)
        return unknown_isolation(context, request)
    return await steps.respond(await steps.read())


def _replica_id(request: FetchRequest) -> int:
    """Broker id of the replica that sent the request; negative if a consumer did. v15 moved the field."""
    return request.replica_id if request.replica_id != CONSUMER_REPLICA_ID else request.replica_state.replica_id


class ReadPartition(NamedTuple):
    """One partition of the response.

    Attributes:
        asked: the partition as the session or the request names it.
        data: the partition's part of the response.
        awaited: the partition whose growth the request may wait for; None if the response must not wait, whatever the
            other partitions have: an error, a diverging epoch, a preferred read replica.
        is_throttled: True if the records count for the leader's replication throttle (KIP-73).
        leadership, leader_epoch: of the partition when it was read.
        is_refused: True if the handler refused the partition before any log was read, which ends no wait for others.
    """

    asked: FetchedPartition
    data: PartitionData
    awaited: Partition | None = None
    is_throttled: bool = False
    leadership: Leadership | None = None
    leader_epoch: int = NO_EPOCH
    is_refused: bool = False

    def has_still_nothing(self, bound: int) -> bool:
        """True if a consumer found no records here, or was refused, and no field of its response has changed since.

        A field of the response that can change while a request waits needs a condition here, as it needs one in
        `FetchedPartition.changes_response` and in `CaughtUpConsumer.is_unchanged`.
        """
        partition, data = self.awaited, self.data
        if self.is_refused:
            return True
        if (
            partition is None
            or self.leadership is None
            or partition.leadership is not self.leadership
            or partition.leader_epoch != self.leader_epoch
            or partition.high_watermark != data.high_watermark
            or partition.log.log_start_offset != data.log_start_offset
        ):
            return False
        if bound == FetchBound.HIGH_WATERMARK:
            return self.asked.fetch_offset >= data.high_watermark
        return self.asked.fetch_offset >= data.last_stable_offset == partition.last_stable_offset


class ReadPass:
    """One pass over the partitions of a request."""

    __slots__ = ("has_urgent", "partitions", "refused_count", "size_bytes", "throttled_until")

    def __init__(self) -> None:
        self.partitions: list[ReadPartition] = []
        self.size_bytes = 0
        # True if the response must not wait, because of one of the partitions.
        self.has_urgent = False
        self.refused_count = 0
        # Time at which records that the leader's replication throttle held back may be sent.
        self.throttled_until = math.inf

    def release(self) -> None:
        """Gives back the file ranges of a pass that is read again."""
        for partition in self.partitions:
            if partition.data.records:
                partition.data.records.release()


class FetchSteps:
    """One Fetch request on its way through the steps of this module.

    As in Kafka, a client with the id of Kafka's future replicas reads to the log end and is a consumer otherwise.
    """

    def __init__(self, context: BrokerContext, request: FetchRequest, fetch: FetchContext, replica_id: int) -> None:
        self._context = context
        self._request = request
        self._fetch = fetch
        self._replica_id = replica_id
        self._is_replica = replica_id >= 0
        self._replica_epoch = request.replica_state.replica_epoch  # -1 for a consumer
        self._bound = FetchBound.HIGH_WATERMARK
        if self._is_replica or replica_id == FUTURE_REPLICA_ID:
            self._bound = FetchBound.LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self._bound = FetchBound.LAST_STABLE_OFFSET
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, context.services.config.fetch.max_bytes)
        if context.quota is not None and not self._is_replica:
            # More would be throttled for certain, and the consumer would get nothing, again and again.
            self._max_bytes = min(self._max_bytes, context.quota.fetch_bytes_max())
            self._min_bytes = min(self._min_bytes, self._max_bytes)
        # Rack of a consumer that may be sent to a follower, else empty. Without a replica selector racks are ignored.
        self._rack = request.rack_id if context.services.config.replication.selector_class else ""

    def has_readable_partition(self) -> bool:
        """True if the request has a partition that exists, on any broker, and that the client may read.

        Kafka looks at the isolation level only then (P-374).
        """
        partitions = self._fetch.partitions.values()
        return any(self._exists(asked) and self._is_authorized(asked) for asked in partitions)

    def _exists(self, asked: FetchedPartition) -> bool:
        topic = topic_of(self._context, asked)
        return topic is not None and asked.key.partition in topic.partitions

    # Read and wait

    async def read(self) -> ReadPass:
        """Reads all partitions; below `fetch.min.bytes`, waits and reads those that have changed."""
        request = self._request
        may_wait = request.max_wait_ms > 0 and self._min_bytes > 0
        with OffsetWaiter(self._min_bytes) as waiter:
            read = await self._read_all(waiter if may_wait else None, None)
            wanted = self._min_bytes - read.size_bytes
            is_none_left = read.refused_count == len(self._fetch.partitions)
            if not may_wait or wanted <= 0 or read.has_urgent or is_none_left:
                return read
            waiter.bytes_wanted -= read.size_bytes
            deadline = trio.current_time() + request.max_wait_ms / 1000
            while True:
                read.release()
                await waiter.wait(min(deadline, read.throttled_until))
                # Bytes that become readable during the next pass count for the wait after it.
                waiter.bytes_wanted = wanted
                # Partitions that have changed are looked up again: one may be deleted, or have another leader.
                read = await self._read_all(None, read)
                # A wake-up may bring no bytes: records that became stable can lie before the fetch offset. Wait again.
                if read.size_bytes or read.has_urgent or trio.current_time() >= deadline:
                    return read

    async def _read_all(self, waiter: OffsetWaiter | None, before: ReadPass | None) -> ReadPass:
        """Reads each partition in order under the size limits of the request and the broker (P-60, P-64).

        Args:
            waiter: registered at each partition; None if the request does not wait, or waits already.
            before: the pass that had too few bytes; None for the first. A consumer may fetch from thousands of
                partitions and wait for any of them: those that still have nothing are not read again.
        """
        read, is_first_pass = ReadPass(), before is None
        had_nothing: dict[PartitionKey, ReadPartition] = {}
        if before is not None:
            is_replica = self._bound == FetchBound.LOG_END
            had_nothing = {
                found.asked.key: found
                for found in before.partitions
                if found.is_refused or not (is_replica or found.data.records)
            }
        # For partitions that are not read. A replica has the right to all of them or to none.
        asks_authorizer = self._context.services.authorizer is not None
        if asks_authorizer and self._is_replica:
            asks_authorizer = not self._context.authorize_cluster(CLUSTER_ACTION)
        rest = self._max_bytes
        now: float | None = None
        skipped = 0
        turn = Turn()
        try:
            # A copy: between two turns another request may change the session, against the protocol.
            for asked in list(self._fetch.partitions.values()):
                caught_up = asked.caught_up
                if (
                    caught_up is not None
                    and caught_up.is_unchanged(
                        asked.fetch_offset,
                        asked.sent_high_watermark,
                        asked.sent_log_start_offset,
                        self._bound,
                        self._replica_epoch,
                    )
                    and not self._rack
                ):
                    if asks_authorizer and not self._is_authorized(asked):
                        self._add_refused(read, self._refused(asked))
                        continue
                    # Nothing has changed since the last fetch: the partition is not read.
                    if is_first_pass:
                        now = caught_up.on_fetch(now)
                    if waiter is not None:
                        waiter.register(self._waiters_of(caught_up.partition))
                    skipped += 1
                    if not skipped % SKIPPED_PER_LOOK and turn.is_over:
                        await turn.end_if_over()
                        now = None
                    continue
                if turn.is_over:
                    await turn.end_if_over()
                    now = None
                known = had_nothing.get(asked.key)
                if known is not None and known.has_still_nothing(self._bound):
                    read.partitions.append(known)
                    read.refused_count += known.is_refused
                    continue
                found = self._read_one(asked, min(asked.size_max, rest), read, is_first_pass=is_first_pass)
                if found.is_refused:
                    self._add_refused(read, found)
                    continue
                read.partitions.append(found)
                records = found.data.records
                size = len(records)
                if size:
                    # `min_bytes` counts all bytes that can be read: Kafka also sends the beginning of the next batch.
                    read.size_bytes += size + records.left_off
                rest = max(0, rest - size)
                if found.awaited is None:
                    read.has_urgent = True
                elif waiter is not None:
                    waiter.register(self._waiters_of(found.awaited))
        except BaseException:
            # The connection has ended between two turns.
            read.release()
            raise
        return read

    def _waiters_of(self, partition: Partition) -> OffsetWaiters:
        replica = partition.replica
        if self._bound == FetchBound.LOG_END:
            return replica.end_waiters
        return replica.stable_waiters if self._bound == FetchBound.LAST_STABLE_OFFSET else replica.waiters

    def _read_one(
        self, asked: FetchedPartition, size_max: int, read: ReadPass, *, is_first_pass: bool
    ) -> ReadPartition:
        """Reads one partition; `read` has the partitions that this pass has read before it."""
        context, key, bound = self._context, asked.key, self._bound
        if not self._is_replica:
            # The session of a consumer must not keep a deleted partition in memory.
            asked.caught_up = None
        if context.services.authorizer is not None and not self._is_authorized(asked):
            return self._refused(asked)
        partition = self._find(asked)
        try:
            if partition is None:
                raise not_here(context, asked)
            partition.check_leader_epoch(asked.current_leader_epoch)
            if partition.leadership is None:
                self._check_follower(partition)
            if self._rack and not self._is_replica:
                preferred = self._preferred_replica(partition, asked.fetch_offset)
                if preferred >= 0:
                    return ReadPartition(asked, at_preferred_replica(partition, preferred))
            follower = None
            if self._is_replica:
                follower = partition.follower(self._replica_id, asked.current_leader_epoch)
            found = partition.read(
                asked.fetch_offset,
                size_max,
                bound,
                # Only the first partition with data may exceed the limits, by one batch (KIP-74).
                at_least_one=not read.size_bytes,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
            if follower is not None and is_first_pass and found.diverging is None:
                self._note_progress(partition, follower, asked, found)
        except (KafkaError, LogError) as error:
            code = error_code_for(error)
            # A topic that is deleted while the request waits ends the wait: its log was to be read.
            is_refused = is_first_pass and partition is None and code not in ERRORS_OF_LOGS
            return ReadPartition(asked, failure(context, asked, code, partition, is_refused), is_refused=is_refused)
        is_throttled = False
        if follower is None and found.records is None and found.diverging is None and self._may_be_caught_up(asked):
            asked.caught_up = caught_up_consumer(partition)
        if follower is not None and found.records is not None:
            found, is_throttled = self._throttled(partition, found, read)
        data = PartitionData(
            partition_index=key.partition,
            high_watermark=found.high_watermark if follower is None else partition.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=None,
            records=b"" if found.records is None else found.records,
        )
        if found.diverging is not None:
            if context.api_version < DIVERGING_VERSION:
                # Only a session that began in a later version has an epoch by which logs are found to diverge.
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, "versions below 12 have no field for the diverging epoch"
                )
            data.diverging_epoch = EpochEndOffset(epoch=found.diverging[0], end_offset=found.diverging[1])
            return ReadPartition(asked, data)
        # As in Kafka: null if the first batch did not fit, an empty list if there was no room at all.
        is_cut = found.records is None and size_max > 0 and asked.fetch_offset < found.last_stable_offset
        if bound == FetchBound.LAST_STABLE_OFFSET and not is_cut:
            data.aborted_transactions = _aborted(partition, asked.fetch_offset, found)
        return ReadPartition(asked, data, partition, is_throttled, partition.leadership, partition.leader_epoch)

    def _refused(self, asked: FetchedPartition) -> ReadPartition:
        refusal = failure(self._context, asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, is_refused=True)
        return ReadPartition(asked, refusal, is_refused=True)

    def _add_refused(self, read: ReadPass, refused: ReadPartition) -> None:
        """Adds a refused partition, with which a consumer still waits for its others, as in Kafka.

        A replica is answered at once: its partition may be of a topic so new that this broker learns of it now.
        """
        read.partitions.append(refused)
        read.refused_count += 1
        read.has_urgent |= self._is_replica

    def _may_be_caught_up(self, asked: FetchedPartition) -> bool:
        """True if a consumer's next fetch of a partition without records depends on `CaughtUpConsumer` alone.

        Without a session there is no such fetch; a preferred replica and a divergence are looked up each time.
        """
        return self._fetch.session is not None and not self._rack and asked.last_fetched_epoch == NO_EPOCH

    def _find(self, asked: FetchedPartition) -> Partition | None:
        partitions, key = self._context.services.partitions, asked.key
        if self._context.api_version < TOPIC_ID_VERSION:
            return partitions.get(key.topic, key.partition)
        partition = partitions.get_by_id(key.topic_id, key.partition)
        if partition is not None:
            asked.topic_name = partition.topic
        return partition

    def _is_authorized(self, asked: FetchedPartition) -> bool:
        """True with CLUSTER_ACTION for a replica, with READ for a consumer, and for an id that no topic has had."""
        context = self._context
        if self._is_replica:
            return context.authorize_cluster(CLUSTER_ACTION)
        if context.api_version < TOPIC_ID_VERSION:
            return context.authorize(READ, TOPIC, asked.key.topic)
        topic_of(context, asked)
        return not asked.topic_name or context.authorize(READ, TOPIC, asked.topic_name)

    def _check_follower(self, partition: Partition) -> None:
        """Checks that this client may read from a replica that is not the leader.

        Raises:
            KafkaError: it may not.
        """
        is_old = self._context.api_version < FOLLOWER_READ_VERSION and self._replica_id != FUTURE_REPLICA_ID
        if self._is_replica or is_old:
            partition.check_leader()
        if partition.is_lost:
            # It gets no new records: a consumer that was sent here because of its rack should read from the leader.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be written here")

    def _preferred_replica(self, partition: Partition, offset: int) -> int:
        """The follower that a consumer of this rack should fetch from, -1 for none (KIP-392)."""
        from pykbroker.replication.read_replicas import preferred_read_replica

        leader_rack = self._context.services.config.broker.rack
        return preferred_read_replica(partition, offset, self._rack, leader_rack, self._rack_of)

    def _rack_of(self, broker_id: int) -> str | None:
        """The rack of a broker that the client can reach, else None."""
        address = self._context.services.metadata.endpoint(broker_id, self._context.connection)
        return None if address is None or address.is_fenced else address.rack

    # For replicas only

    def _note_progress(
        self, partition: Partition, follower: Follower, asked: FetchedPartition, found: PartitionRead
    ) -> None:
        """Records a follower's fetch offset as its log end offset. May advance the high watermark of this response."""
        try:
            partition.on_follower_fetch(follower, asked.fetch_offset, asked.log_start_offset, self._replica_epoch)
        except KafkaError:
            if found.records is not None:
                found.records.release()
            raise
        asked.caught_up = caught_up_follower(partition, follower, asked.fetch_offset)

    def _throttled(self, partition: Partition, found: PartitionRead, read: ReadPass) -> tuple[PartitionRead, bool]:
        """The read without its records if the replica has to wait (KIP-73), and True if they count for the throttle."""
        throttle = self._context.services.leader_throttle
        if throttle is None or not throttle.applies_to(partition.topic, partition.partition):
            return found, False
        now = trio.current_time()
        if self._replica_id in partition.isr or not throttle.is_exceeded(now):
            return found, True
        read.throttled_until = throttle.ends_at(now)
        assert found.records is not None
        found.records.release()
        return found._replace(records=None), False

    # Respond

    async def respond(self, read: ReadPass) -> FetchResponse:
        """The response with the partitions of the last pass."""
        if self._fetch.is_overtaken(self._request.session_epoch):
            read.release()
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self._fetch.session_id)
        if read.refused_count:
            read.partitions.sort(key=self._sort_key)
            self._fetch.note_order(partition.asked for partition in read.partitions)
        throttle = self._context.services.leader_throttle
        if throttle is not None and self._is_replica:
            sizes = [len(partition.data.records) for partition in read.partitions if partition.is_throttled]
            if sizes:
                throttle.record(sum(sizes), trio.current_time())
        quota = self._context.quota
        if quota is not None and not self._is_replica:
            answers = [(partition.asked, partition.data) for partition in read.partitions]
            throttle_ms = quota.throttle_fetch(response_size(self._context, self._fetch, answers))
            if throttle_ms:
                read.release()
                if not self._fetch.is_incremental:
                    # As in Kafka an empty response does not begin a session.
                    self._context.services.fetch_sessions.forget(self._fetch.session_id)
                return throttled_response(self._context, self._fetch, answers, throttle_ms)
        parts = ResponseParts(self._fetch)
        if len(read.partitions) <= FEW:
            for partition in read.partitions:
                parts.add(partition.asked, partition.data)
        else:
            self._context.has_long_response = True
            await self._add_in_turns(read, parts)
        return parts.response(self._context)

    def _sort_key(self, partition: ReadPartition) -> int:
        """Sort key of a partition in the response: refused ones last, a consumer's unknown ids before the others."""
        if not partition.is_refused:
            return 0
        return 1 if partition.data.error_code == ErrorCode.UNKNOWN_TOPIC_ID and not self._is_replica else 2

    async def _add_in_turns(self, read: ReadPass, parts: ResponseParts) -> None:
        turn = Turn()
        try:
            for partition in read.partitions:
                parts.add(partition.asked, partition.data)
                if turn.is_over:
                    await turn.end_if_over()
        except BaseException:
            # The connection has ended between two turns.
            read.release()
            raise


def _aborted(partition: Partition, offset: int, found: PartitionRead) -> list[AbortedTransaction]:
    """Aborted transactions in these records, for a read_committed consumer (P-67)."""
    if found.records is None:
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions_in(offset, found.records)
    ]
