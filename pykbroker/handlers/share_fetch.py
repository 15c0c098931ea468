"""ShareFetch (key 78): acquires records for a member of a share group, and acknowledges earlier ones (KIP-932).

Versions 1 and 2. v2 record-limit mode (KIP-1206) and renewal of acquisition locks (KIP-1222). Needs READ on the group
and on the topics.

The steps: the share session; acknowledgements, which begin to be stored; records, for which the request may wait; the
response, when the acknowledgements are stored. Records are sent as ranges of segment files, like those of a Fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.errors import KafkaError
from pykbroker.protocol.codec import chunks_in_steps
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.replication.fetch_sessions import INITIAL_EPOCH
from pykbroker.requests.share_requests import (
    RENEW_VERSION,
    Acknowledged,
    Acknowledgements,
    check_member,
    exists,
    member_of,
    name_leader,
    refused_topics,
    release_if_final,
    topic_of,
    watch_connection,
)
from pykbroker.share_partitions.fetch import Fetched, FetchLimits, ShareFetch
from pykbroker.share_partitions.sessions import ShareFetchContext, TopicIdPartition

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext

RECORD_LIMIT = 1
"""Acquire mode in which a member never gets more than max_records."""
ACQUIRE_MODES = (0, RECORD_LIMIT)
SIZE_BYTES = 4
"""Bytes in front of a response that have its size; quotas count them."""


async def handle_share_fetch(context: BrokerContext, request: ShareFetchRequest) -> ShareFetchResponse:
    """Acquires records of the session's partitions (P-180 to P-186)."""
    check_member(context, request)
    is_renewal = context.api_version >= RENEW_VERSION and request.is_renew_ack
    if is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        # Fetching may take longer than a renewed lock lasts.
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    shares = context.services.shares.get()
    member = member_of(request)
    named: dict[TopicIdPartition, str | None] = {}
    async for topic in EachInTurns(request.topics):
        name = topic_of(context, topic.topic_id)
        for asked in topic.partitions:
            named[TopicIdPartition(topic.topic_id, asked.partition_index)] = name
    forgotten = [TopicIdPartition(t.topic_id, number) for t in request.forgotten_topics_data for number in t.partitions]
    acknowledges = any(asked.acknowledgement_batches for topic in request.topics for asked in topic.partitions)
    try:
        session = shares.sessions.resolve(
            member, request.share_session_epoch, named, forgotten, context.connection, acknowledges=acknowledges
        )
    except KafkaError as refused:
        if refused.error_code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # The client would repeat the request at once.
            await trio.sleep(max(request.max_wait_ms, 0) / 1000)
        raise
    if request.share_session_epoch == INITIAL_EPOCH:
        watch_connection(context, shares)
    with Acknowledgements(context, shares, request) as acknowledgements:
        if acknowledges:
            await acknowledgements.begin(request.topics)
        fetched = {} if is_renewal else await _fetch(context, request, session, acknowledgements)
        await acknowledgements.store()
        outcomes = await acknowledgements.outcomes()
    response = await _response(context, session, fetched, outcomes)
    if len(fetched) + len(outcomes) > PIECE:
        context.has_long_response = True
    if context.quota is not None:
        chunks = await in_turns(chunks_in_steps(response, context.api_version))
        throttle_ms = context.quota.throttle_fetch(SIZE_BYTES + sum(map(len, chunks)))
        if throttle_ms:
            # As in Kafka, the acquired records become available again when their locks expire.
            for found in fetched.values():
                if found.records is not None:
                    found.records.release()
            response = await _response(context, session, {}, outcomes)
            response.throttle_time_ms = throttle_ms
    response.acquisition_lock_timeout_ms = shares.settings_of(member.group_id).record_lock_duration_ms
    release_if_final(shares, request)
    return response


async def _fetch(
    context: BrokerContext,
    request: ShareFetchRequest,
    session: ShareFetchContext,
    acknowledgements: Acknowledgements,
) -> dict[TopicIdPartition, Fetched]:
    """Acquires records of those partitions of the session that the client may read.

    Raises:
        KafkaError: the acquire mode does not exist.
    """
    refused = await refused_topics(context, session.topics.values())
    topic_partitions: list[TopicIdPartition] = []
    fetched: dict[TopicIdPartition, Fetched] = {}
    async for topic_partition, topic in EachInTurns(session.topics.items()):
        if topic is None:
            fetched[topic_partition] = Fetched(ErrorCode.UNKNOWN_TOPIC_ID)
        elif topic in refused:
            fetched[topic_partition] = Fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif not exists(context, topic, topic_partition.partition):
            fetched[topic_partition] = Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic_partitions.append(topic_partition)
    if not topic_partitions:
        return fetched
    if request.share_acquire_mode not in ACQUIRE_MODES:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown share acquire mode {request.share_acquire_mode}")
    if request.share_session_epoch > 0:
        # Each request begins with another partition, so that all get their share.
        turn = request.share_session_epoch % len(topic_partitions)
        topic_partitions = topic_partitions[turn:] + topic_partitions[:turn]
    max_bytes = min(request.max_bytes, context.services.config.fetch.max_bytes)
    if context.quota is not None:
        max_bytes = min(max_bytes, context.quota.fetch_bytes_max())
    limits = FetchLimits(
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == RECORD_LIMIT,
    )
    fetch = ShareFetch(context.services.shares.get(), member_of(request), topic_partitions, limits)
    # As in Kafka, which stores acknowledgements meanwhile: records that the request releases are not acquired with the
    # first attempt (P-635).
    found = await fetch.run(before_wait=acknowledgements.store)
    return {**found, **fetched}


async def _response(
    context: BrokerContext,
    session: ShareFetchContext,
    fetched: Mapping[TopicIdPartition, Fetched],
    outcomes: Mapping[TopicIdPartition, Acknowledged],
) -> ShareFetchResponse:
    """The response with those partitions that the session must name, and those with acknowledgements."""
    response = ShareFetchResponse()
    if session.session is not None and session.session.epoch != session.epoch:
        # A later request of the member was served meanwhile.
        response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        fetched = {}
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    all_fetched = dict(fetched)
    all_fetched.update((topic_partition, Fetched()) for topic_partition in outcomes if topic_partition not in fetched)
    async for topic_partition, found in EachInTurns(all_fetched.items()):
        outcome = outcomes.get(topic_partition)
        is_named = topic_partition in fetched and (
            session.session is None
            or session.session.must_respond(
                topic_partition, has_records=found.records is not None, is_error=found.error is not ErrorCode.NONE
            )
        )
        if not is_named and outcome is None:
            continue
        data = _partition_data(context, response, topic_partition, found)
        if outcome is not None:
            data.acknowledge_error_code = outcome.error
            data.acknowledge_error_message = outcome.message
        topic = topics.get(topic_partition.topic_id)
        if topic is None:
            topic = topics[topic_partition.topic_id] = ShareFetchableTopicResponse(topic_id=topic_partition.topic_id)
            response.responses.append(topic)
        topic.partitions.append(data)
    return response


def _partition_data(
    context: BrokerContext, response: ShareFetchResponse, topic_partition: TopicIdPartition, found: Fetched
) -> PartitionData:
    data = PartitionData(
        partition_index=topic_partition.partition,
        error_code=found.error,
        records=b"" if found.records is None else found.records,
        acquired_records=[
            AcquiredRecords(first_offset=a.first_offset, last_offset=a.last_offset, delivery_count=a.delivery_count)
            for a in found.acquired
        ],
    )
    name_leader(context, response, data, topic_partition, LeaderIdAndEpoch, NodeEndpoint)
    return data
