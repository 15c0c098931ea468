"""Parts of a Fetch response: partitions with an error or without records, and the leaders named in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from pykbroker.replication.fetch_sessions import FetchedPartition, PartitionKey
from pykbroker.requests.leader_hints import HINTED_ERRORS, add_endpoint, leader_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.controller.metadata.image import TopicImage
    from pykbroker.protocol.messages.fetch import FetchRequest
    from pykbroker.replication.fetch_sessions import FetchContext
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext

SIZE_BYTES = 4
NO_SESSION = 0
STORAGE_ERROR_VERSION = 6
TOPIC_ID_VERSION = 13
ERRORS_OF_LOGS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""Errors of a partition that exists in the metadata and that this broker cannot read."""
LEADER_HINT_VERSION = 16


class ResponseParts:
    """The partitions of a response that the session must carry, and the leaders named in them (KIP-951)."""

    __slots__ = ("_fetch", "_leaders", "_topics")

    def __init__(self, fetch: FetchContext) -> None:
        self._fetch = fetch
        self._topics: list[FetchableTopicResponse] = []
        # In order, without duplicates.
        self._leaders: dict[int, None] = {}

    def add(self, asked: FetchedPartition, data: PartitionData) -> None:
        """Adds a partition, unless the session has nothing new of it."""
        fetch = self._fetch
        if fetch.is_in_response(asked, data):
            fetch.note_answer(asked, data)
            _add(self._topics, asked.key, data)
            if data.current_leader.leader_id >= 0:
                self._leaders[data.current_leader.leader_id] = None

    def response(self, context: BrokerContext) -> FetchResponse:
        """The response with these partitions."""
        response = FetchResponse(session_id=self._fetch.session_id, responses=self._topics)
        _name_leaders(context, response, self._leaders)
        return response


def response_size(
    context: BrokerContext, fetch: FetchContext, partitions: Iterable[tuple[FetchedPartition, PartitionData]]
) -> int:
    """Size in bytes, as Kafka counts it for a quota, of the response with these partitions.

    The session is not changed: a response that exceeds the quota is not sent.
    """
    from pykbroker.protocol.codec import encode_chunks

    topics: list[FetchableTopicResponse] = []
    for asked, data in partitions:
        if fetch.is_in_response(asked, data):
            _add(topics, asked.key, data)
    return SIZE_BYTES + sum(map(len, encode_chunks(FetchResponse(responses=topics), context.api_version)))


def throttled_response(
    context: BrokerContext,
    fetch: FetchContext,
    partitions: Iterable[tuple[FetchedPartition, PartitionData]],
    throttle_ms: int,
) -> FetchResponse:
    """The empty response in place of one that exceeds a quota. It carries the leaders of partitions with errors."""
    response = FetchResponse(
        throttle_time_ms=throttle_ms, session_id=fetch.session_id if fetch.is_incremental else NO_SESSION
    )
    leaders = {data.current_leader.leader_id: None for _, data in partitions if data.current_leader.leader_id >= 0}
    _name_leaders(context, response, leaders)
    return response


def _add(topics: list[FetchableTopicResponse], key: PartitionKey, data: PartitionData) -> None:
    """Adds a partition: to the last topic if the partition is of that topic, else to a new one."""
    last = topics[-1] if topics else None
    if last is None or (last.topic, last.topic_id) != (key.topic, key.topic_id):
        last = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id)
        topics.append(last)
    last.partitions.append(data)


def _name_leaders(context: BrokerContext, response: FetchResponse, leaders: Iterable[int]) -> None:
    for leader_id in leaders:
        add_endpoint(context, response.node_endpoints, leader_id, NodeEndpoint)


def unknown_isolation(context: BrokerContext, request: FetchRequest) -> FetchResponse:
    """Response to an unknown isolation level: UNKNOWN_SERVER_ERROR as in Kafka, before v13 in each partition too."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if context.api_version < TOPIC_ID_VERSION:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    failure(
                        context,
                        FetchedPartition(PartitionKey(topic.topic, b"", asked.partition), asked),
                        error,
                        None,
                        is_refused=True,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def failure(
    context: BrokerContext,
    asked: FetchedPartition,
    error_code: ErrorCode,
    partition: Partition | None,
    is_refused: bool,
) -> PartitionData:
    """A partition with an error: offsets -1 and empty, never null, records (P-66).

    `is_refused` is true if no log was to be read; the list of aborted transactions is then empty, else null.
    """
    key = asked.key
    if error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version < STORAGE_ERROR_VERSION:
        error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = PartitionData(
        partition_index=key.partition,
        error_code=error_code,
        high_watermark=-1,
        aborted_transactions=[] if is_refused else None,
        records=b"",
    )
    if error_code in HINTED_ERRORS and context.api_version >= LEADER_HINT_VERSION:
        topic = topic_of(context, asked) if partition is None else None
        topic_id = key.topic_id if topic is None else topic.topic_id
        leader_id, leader_epoch = leader_of(context, topic_id, key.partition, partition)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return data


def at_preferred_replica(partition: Partition, preferred: int) -> PartitionData:
    """A partition without records, with the follower that the consumer should fetch from (KIP-392)."""
    return PartitionData(
        partition_index=partition.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


def topic_of(context: BrokerContext, asked: FetchedPartition) -> TopicImage | None:
    """The topic of a partition, by its id from v13 on, by its name before; None if there is none.

    When a topic is deleted, a session goes on with its name, which another topic may have by now.
    """
    metadata = context.services.metadata
    if context.api_version >= TOPIC_ID_VERSION:
        topic = metadata.topic_by_id(asked.key.topic_id)
        if topic is not None:
            asked.topic_name = topic.name
            return topic
    return metadata.topic(asked.topic_name) if asked.topic_name else None


def not_here(context: BrokerContext, asked: FetchedPartition) -> KafkaError:
    """The error of a partition that this broker does not hold (P-71)."""
    topic = topic_of(context, asked)
    by_id, key = context.api_version >= TOPIC_ID_VERSION, asked.key
    if by_id and not asked.topic_name:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    place = f"{asked.topic_name}-{key.partition}"
    partitions = context.services.partitions
    if topic is None or key.partition not in topic.partitions:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{place} does not exist")
    if partitions.is_offline(topic.name, key.partition):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {place} cannot be opened")
    if by_id and partitions.get(topic.name, key.partition) is not None:
        return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{place} is of a new topic with the name")
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{place} is on another broker")
