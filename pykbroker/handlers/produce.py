"""Produce (key 0): append record batches.

Versions 3-13. v5 log_start_offset; v7 zstd allowed; v8 record_errors (KIP-467); v9 flexible; v10 leader hints
(KIP-951); v12 as v11 on the wire (transactions of KIP-890); v13 topics by id (KIP-516).

Every partition of the request gets its result (P-43, P-50). The steps, in this order:

* decode: the header of each partition's batch is parsed, once;
* authorize: errors that all partitions get, and the topics that the client may not write to; partitions that the
  request has twice are merged;
* verify, in a transaction: its coordinator is asked whether the partitions are part of it (P-135);
* append: synchronously for each partition, in the order of the request;
* finish: with acks=all, wait for the in-sync replicas of all partitions, with one deadline. With one replica the high
  watermark has passed the batch when append returns, and there is nothing to wait for.

`requests.repeated_produce` makes all steps in one function, for plain requests that begin like earlier ones. A step
that is added here has to be added there, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import Turn
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.errors import CloseConnection, KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.acl_codes import TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from pykbroker.protocol.records.errors import CorruptRecord, RecordError
from pykbroker.protocol.records.single_batch import ProducedRecords
from pykbroker.requests.context import UnfinishedResponse
from pykbroker.requests.produce_responses import (
    TOPIC_ID_VERSION,
    LeaderHints,
    append_failure,
    failure,
    verification_failure,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.protocol.messages.produce import ProduceRequest, TopicProduceData
    from pykbroker.replication.leadership import Leadership
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext
    from pykbroker.requests.transaction_verification import ClientGeneration, Verified

TURN_S = 0.002
"""Time, in seconds, that batches of one request may keep other clients waiting; a single batch is never interrupted."""

FEW = 64
"""Topics, or partitions of the first topic, up to which the headers of the batches are parsed in one step."""

ACKS_ALL = -1
ACKS = (ACKS_ALL, 0, 1)
ADMIN_CLIENT_ID = "__admin_client"
ABORTABLE_VERSION = 11
EPOCH_BUMP_VERSION = 12


async def handle_produce(
    context: BrokerContext, request: ProduceRequest
) -> ProduceResponse | UnfinishedResponse | None:
    """Appends every partition's batch; returns None with acks=0, which has no response (P-10)."""
    steps = ProduceSteps(context, request)
    if len(request.topic_data) > FEW or (request.topic_data and len(request.topic_data[0].partition_data) > FEW):
        context.has_long_response = True
        await steps.decode_in_turns()
    else:
        steps.decode()
    steps.authorize()
    if request.transactional_id is not None:
        await steps.verify()
    await steps.append()
    return await steps.finish()


class ProducedTopic(NamedTuple):
    """One topic of the request, by name or, from v13 on, by id; `partitions` are indexes and their records."""

    name: str
    topic_id: bytes
    partitions: list[tuple[int, ProducedRecords]]

    @property
    def key(self) -> str | bytes:
        """The name or the id, whichever the request has."""
        return self.name or self.topic_id


class ProduceSteps:
    """One Produce request on its way through the steps of this module, which are called once each, in order."""

    def __init__(self, context: BrokerContext, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._topics: list[ProducedTopic] = []
        self._has_repeats = False
        # Error of all partitions; keys of topics that the client may not write to.
        self._error = ErrorCode.NONE
        self._unauthorized: Collection[str | bytes] = ()
        # None if no batch is part of a transaction.
        self._verified: Verified | None = None
        self._hints = LeaderHints(context)
        self._response = ProduceResponse()
        self._awaited: list[AwaitedAppend] = []
        self._last_error = ErrorCode.NONE

    # Decode

    def decode(self) -> None:
        """Parses the header of each batch, and notes if the request has a partition twice."""
        self._topics = [_decoded(topic) for topic in self._request.topic_data]
        self._has_repeats = _has_repeats(self._topics)

    async def decode_in_turns(self) -> None:
        """As `decode`, for very many batches; other requests have turns."""
        turn = Turn()
        for topic in self._request.topic_data:
            partitions: list[tuple[int, ProducedRecords]] = []
            for data in topic.partition_data:
                partitions.append((data.index, ProducedRecords(data.records)))
                if turn.is_over:
                    await turn.end_if_over()
            self._topics.append(ProducedTopic(topic.name, topic.topic_id, partitions))
        self._has_repeats = _has_repeats(self._topics)

    # Authorize

    def authorize(self) -> None:
        """Finds the errors that do not depend on a partition's log, and merges partitions that are there twice."""
        self._error = self._error_of_all()
        if self._has_repeats:
            self._topics = _merged(self._topics, self._context.api_version)
        if self._context.services.authorizer is not None:
            self._unauthorized = self._unauthorized_topics()

    def _error_of_all(self) -> ErrorCode:
        """Error that every partition of the request gets, whatever its records (P-49)."""
        context, transactional_id = self._context, self._request.transactional_id
        may_be_transactional = transactional_id is not None and context.authorize(
            WRITE, TRANSACTIONAL_ID, transactional_id
        )
        for topic in self._topics:
            for _, records in topic.partitions:
                if records.is_plain:
                    continue
                try:
                    records.check_head()
                except CorruptRecord:
                    # Kafka looks for transactional batches in the whole request first, and cannot read this one's head.
                    return ErrorCode.CORRUPT_MESSAGE
                if records.is_transactional and records.is_whole:
                    # The first transactional batch decides: the batches after it are not checked here.
                    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    return ErrorCode.NONE if may_be_transactional else refused
        return ErrorCode.NONE

    def _unauthorized_topics(self) -> Collection[str | bytes]:
        """Keys of topics that the client may not write to; ids that no topic has are not among them."""
        context = self._context
        if context.api_version < TOPIC_ID_VERSION:
            return {topic.key for topic in self._topics if not context.authorize(WRITE, TOPIC, topic.name)}
        images = [context.services.metadata.topic_by_id(topic.topic_id) for topic in self._topics]
        return {
            image.topic_id for image in images if image is not None and not context.authorize(WRITE, TOPIC, image.name)
        }

    # Verify

    async def verify(self) -> None:
        """Verifies the partitions of transactional batches with the transaction coordinator."""
        transactional_id = self._request.transactional_id
        assert transactional_id is not None, "other requests have no transaction"
        if self._error:
            return
        producers: set[tuple[int, int]] = set()
        first_sequences: dict[Partition, int] = {}
        for topic in self._topics:
            if topic.key in self._unauthorized:
                continue
            for index, records in topic.partitions:
                partition = self._find(topic, index)
                # zstd below v7 is refused, and not a part of the transaction.
                if partition is None or records.is_zstd_before(self._context.api_version):
                    continue
                header = records.header
                if header is not None and header.is_transactional and header.producer_id >= 0:
                    producers.add((header.producer_id, header.producer_epoch))
                    first_sequences[partition] = header.base_sequence
        if len(producers) > 1:
            self._error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return
        if producers:
            from pykbroker.requests.transaction_verification import verify_and_retry
            from pykbroker.transactions.states import ProducerIdentity

            identity = ProducerIdentity(transactional_id, *producers.pop())
            services, client = self._context.services, self._client_generation()
            self._verified = await verify_and_retry(services, identity, first_sequences, client)

    def _client_generation(self) -> ClientGeneration:
        from pykbroker.requests.transaction_verification import ClientGeneration

        if self._context.api_version >= EPOCH_BUMP_VERSION:
            return ClientGeneration.EPOCH_BUMPS
        if self._context.api_version >= ABORTABLE_VERSION:
            return ClientGeneration.NEW_ERRORS
        return ClientGeneration.OLD_ERRORS

    # Append

    async def append(self) -> None:
        """Appends each partition's batch."""
        now_ms = self._context.services.clock.now_ms()
        # A request of one batch cannot yield in between, and need not look at the clock.
        has_turns = self._verified is None and (len(self._topics) != 1 or len(self._topics[0].partitions) > 1)
        turn_ends = trio.current_time() + TURN_S if has_turns else 0.0
        for topic in self._topics:
            error = self._error
            if not error and topic.key in self._unauthorized:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results = []
            for index, records in topic.partitions:
                if has_turns and trio.current_time() > turn_ends:
                    # A few kilobytes may decompress to very many bytes, and many such batches to minutes of work.
                    await trio.lowlevel.checkpoint()
                    turn_ends = trio.current_time() + TURN_S
                result = _refusal(index, error) if error else self._append_one(topic, index, records, now_ms)
                if result.error_code:
                    self._last_error = ErrorCode(result.error_code)
                results.append(result)
            if self._has_repeats:
                results = list({result.index: result for result in results}.values())
            if results:
                self._response.responses.append(
                    TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
                )

    def _append_one(
        self, topic: ProducedTopic, index: int, records: ProducedRecords, now_ms: int
    ) -> PartitionProduceResponse:
        partition = self._find(topic, index)
        if partition is None or partition.leadership is None:
            return self._not_led_here(topic, index, records)
        verified, verification = self._verified, None
        try:
            if not records.is_plain:
                records.check_single(self._context.api_version)
            if verified is not None:
                topic_partition = (partition.topic, partition.partition)
                if topic_partition in verified.errors:
                    return verification_failure(index, verified.errors[topic_partition], self._client_generation())
                verification = verified.verifications.get(topic_partition)
            self._check(partition.topic, partition)
            result = partition.append_as_leader(records.data, now_ms, header=records.header, verification=verification)
        except (KafkaError, LogError, RecordError) as error:
            return append_failure(index, error, partition)
        response = PartitionProduceResponse(
            index=index,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        leadership = partition.leadership
        if self._request.acks == ACKS_ALL and leadership.followers:
            self._awaited.append(AwaitedAppend(partition, result.last_offset + 1, leadership, response))
        return response

    def _check(self, topic: str, partition: Partition | None) -> None:
        """Checks of acks and of the topic that do not need the log; `partition` is None if its leader is elsewhere.

        Raises:
            KafkaError: the partition is refused.
        """
        acks = self._request.acks
        if acks not in ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}")
        if topic in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker only")
        if acks == ACKS_ALL and partition is not None:
            partition.check_enough_replicas()

    def _find(self, topic: ProducedTopic, index: int) -> Partition | None:
        partitions = self._context.services.partitions
        if self._context.api_version >= TOPIC_ID_VERSION:
            return partitions.get_by_id(topic.topic_id, index)
        return partitions.get(topic.name, index)

    def _not_led_here(self, topic: ProducedTopic, index: int, records: ProducedRecords) -> PartitionProduceResponse:
        """Error of a partition that does not exist, or whose leader is another broker.

        If the partition exists, Kafka checks the records, acks and the topic before the leader (P-376).
        """
        services = self._context.services
        if self._context.api_version >= TOPIC_ID_VERSION:
            image = services.metadata.topic_by_id(topic.topic_id)
            if image is None:
                return failure(index, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            image = services.metadata.topic(topic.name)
        found = image.partitions.get(index) if image is not None else None
        if image is None or found is None:
            return failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            records.check_single(self._context.api_version)
            self._check(image.name, None)
        except (KafkaError, RecordError) as error:
            return failure(index, error_code_for(error))
        if services.partitions.is_offline(image.name, index):
            return failure(index, ErrorCode.KAFKA_STORAGE_ERROR)
        response = failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._hints.name_leader(response, found)
        return response

    # Finish

    async def finish(self) -> ProduceResponse | UnfinishedResponse | None:
        """Returns the response, with acks=all after replication (or as UnfinishedResponse); None with acks=0.

        Raises:
            CloseConnection: a partition of a request with acks=0 has an error.
        """
        if self._request.acks == 0:
            if self._last_error:
                name = self._last_error.name
                raise CloseConnection(f"Produce with acks=0 failed with {name}; closing tells the client")
            return None
        self._response.node_endpoints = self._hints.endpoints
        if not self._awaited:
            return self._response
        deadline = trio.current_time() + max(self._request.timeout_ms, 0) / 1000
        # Keeps no reference to the request, whose records are no longer needed.
        replication = AwaitedReplication(self._context, self._response, self._awaited, self._hints, deadline)
        if self._context.may_be_unfinished:
            return UnfinishedResponse(self._response, replication.finish)
        await replication.finish()
        return self._response


class AwaitedAppend(NamedTuple):
    """Appended records that are not replicated yet, and the partition's response, which waits for that."""

    partition: Partition
    end_offset: int
    leadership: Leadership | None
    response: PartitionProduceResponse


class AwaitedReplication:
    """Replication of all appends of one request with acks=all."""

    def __init__(
        self,
        context: BrokerContext,
        response: ProduceResponse,
        appends: list[AwaitedAppend],
        hints: LeaderHints,
        deadline: float,
    ) -> None:
        self._context = context
        self._response = response
        self._appends = appends
        self._hints = hints
        self._deadline = deadline

    async def finish(self) -> None:
        """Waits for the in-sync replicas; partitions that are not replicated by the deadline get an error (P-46)."""
        for partition, end_offset, leadership, response in self._appends:
            # Waiting for one after the other takes no longer than for all at once: they have one deadline.
            response.error_code = await partition.wait_replicated(end_offset, self._deadline, leadership)
            if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._hints.name_leader_of(partition, response)
        self._response.node_endpoints = self._hints.endpoints


def _decoded(topic: TopicProduceData) -> ProducedTopic:
    partitions = [(data.index, ProducedRecords(data.records)) for data in topic.partition_data]
    return ProducedTopic(topic.name, topic.topic_id, partitions)


def _has_repeats(topics: list[ProducedTopic]) -> bool:
    """True if the request has a topic, or a partition of a topic, twice."""
    if len(topics) > 1 and len({topic.key for topic in topics}) < len(topics):
        return True
    for topic in topics:
        partitions = topic.partitions
        if len(partitions) > 1 and len({index for index, _ in partitions}) < len(partitions):
            return True
    return False


def _merged(topics: list[ProducedTopic], api_version: int) -> list[ProducedTopic]:
    """Merges duplicate topics and partitions. Kafka appends the last batch of a partition that passes its checks.

    The partition's response is that of the last batch that fails them, which therefore comes second here.
    """
    merged: dict[str | bytes, dict[int, dict[bool, ProducedRecords]]] = {}
    first: dict[str | bytes, ProducedTopic] = {}
    for topic in topics:
        by_index = merged.setdefault(topic.key, {})
        first.setdefault(topic.key, topic)
        for index, records in topic.partitions:
            try:
                records.check_single(api_version)
            except RecordError:
                is_bad = True
            else:
                is_bad = False
            by_index.setdefault(index, {})[is_bad] = records
    return [
        topic._replace(
            partitions=[
                (index, by_kind[is_bad]) for index, by_kind in merged[key].items() for is_bad in sorted(by_kind)
            ]
        )
        for key, topic in first.items()
    ]


def _refusal(index: int, error: ErrorCode) -> PartitionProduceResponse:
    """Response for a partition of a request, or of a topic, that is refused."""
    response = failure(index, error)
    if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        response.error_message = "Transactional records contained more than one producer ID"
    return response
