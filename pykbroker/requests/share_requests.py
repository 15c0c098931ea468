"""Common parts of ShareFetch and ShareAcknowledge: authorization, acknowledgements, leaders named in errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.controller.turns import EachInTurns, Turn
from pykbroker.errors import KafkaError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.acl_codes import GROUP, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.replication.fetch_sessions import FINAL_EPOCH
from pykbroker.requests.leader_hints import HINTED_ERRORS, add_endpoint, leader_of
from pykbroker.share_partitions.acknowledgement import NOT_FOUND, RENEW, AcknowledgedBatch
from pykbroker.share_partitions.leader import LeaderState, Outcome
from pykbroker.share_partitions.sessions import SessionKey, TopicIdPartition

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext
    from pykbroker.share_partitions.leader import ShareLeader
    from pykbroker.share_partitions.registry import SharePartitions

MEMBER_ID_LENGTH_MAX = 36
"""Length of a member id, which clients make: that of a UUID as text."""
RENEW_VERSION = 2


class MemberRequest(Protocol):
    """The fields that both requests have."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool


class Acknowledged(NamedTuple):
    """The outcome of the acknowledgements for one partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def check_member(context: BrokerContext, request: MemberRequest) -> None:
    """Checks group and member of a request.

    Raises:
        KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED.
    """
    if not share_groups_enabled(context.services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    context.require(READ, GROUP, request.group_id)
    if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def member_of(request: MemberRequest) -> SessionKey:
    """The member that has sent a request that was not refused."""
    assert request.group_id is not None
    assert request.member_id is not None
    return SessionKey(request.group_id, request.member_id)


async def refused_topics(context: BrokerContext, topics: Iterable[str | None]) -> frozenset[str]:
    """Names of topics that the client may not read."""
    names = dict.fromkeys(topic for topic in topics if topic is not None)
    return frozenset(await context.refused_in_turns(READ, TOPIC, names))


def topic_of(context: BrokerContext, topic_id: bytes) -> str | None:
    """The name of a topic; None if no topic has the id."""
    topic = context.services.metadata.topic_by_id(topic_id)
    return None if topic is None else topic.name


def exists(context: BrokerContext, topic: str, partition: int) -> bool:
    """True if the topic has this partition."""
    found = context.services.metadata.topic(topic)
    return found is not None and partition in found.partitions


class Acknowledgements:
    """The acknowledgements of one request: `begin`, `store`, and `outcomes` when they are needed.

    A context manager: the end of the block stores all acknowledgements that have begun, also after the client has
    disconnected.

    Args:
        context: the request.
        shares: the share partitions of this broker.
        request: its fields.
    """

    def __init__(self, context: BrokerContext, shares: SharePartitions, request: MemberRequest) -> None:
        self._context = context
        self._shares = shares
        self._member = member_of(request)
        self._is_renew = request.is_renew_ack
        self._highest_type = RENEW if context.api_version >= RENEW_VERSION else RENEW - 1
        self._outcomes: dict[TopicIdPartition, Outcome] = {}
        self._known: dict[TopicIdPartition, Acknowledged] = {}
        self._unstored: deque[ShareLeader] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        while self._unstored:
            self._unstored.popleft().store()

    async def store(self) -> None:
        """Begins to store the acknowledgements, in turns with other requests."""
        turn = Turn()
        while self._unstored:
            self._unstored.popleft().store()
            if turn.is_over:
                await turn.end_if_over()

    async def begin(self, topics: Iterable[Any]) -> None:
        """Acknowledges records of the topics of the request, in turns with other requests."""
        batches: dict[TopicIdPartition, Sequence[AcknowledgedBatch]] = {}
        names: dict[TopicIdPartition, str] = {}
        async for topic in EachInTurns(topics):
            name = topic_of(self._context, topic.topic_id)
            async for asked in EachInTurns(topic.partitions):
                topic_partition = TopicIdPartition(topic.topic_id, asked.partition_index)
                if name is None:
                    self._known[topic_partition] = Acknowledged(ErrorCode.UNKNOWN_TOPIC_ID)
                    continue
                names[topic_partition] = name
                batches[topic_partition] = [
                    AcknowledgedBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                    for batch in asked.acknowledgement_batches
                ]
        refused = await refused_topics(self._context, names.values())
        empty: list[TopicIdPartition] = []
        async for topic_partition, acknowledged in EachInTurns(batches.items()):
            error = self._error_of(names[topic_partition], topic_partition, acknowledged, refused)
            if error is not ErrorCode.NONE:
                self._known[topic_partition] = Acknowledged(error)
            elif acknowledged:
                self._acknowledge(topic_partition, acknowledged)
            else:
                empty.append(topic_partition)
        if self._outcomes:
            # As in Kafka, which has them in the response only then.
            self._known.update((topic_partition, Acknowledged()) for topic_partition in empty)

    def _error_of(
        self,
        name: str,
        topic_partition: TopicIdPartition,
        acknowledged: Sequence[AcknowledgedBatch],
        refused: frozenset[str],
    ) -> ErrorCode:
        if not self._is_well_formed(acknowledged):
            return ErrorCode.INVALID_REQUEST
        if name in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not exists(self._context, name, topic_partition.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _is_well_formed(self, acknowledged: Sequence[AcknowledgedBatch]) -> bool:
        """True if the batches ascend, and have known types for all their offsets."""
        previous = -1
        for first_offset, last_offset, types in acknowledged:
            if first_offset > last_offset or first_offset < previous or not types:
                return False
            if len(types) > 1 and last_offset - first_offset != len(types) - 1:
                return False
            if min(types) < 0 or max(types) > self._highest_type or (RENEW in types and not self._is_renew):
                return False
            previous = last_offset
        return True

    def _acknowledge(self, topic_partition: TopicIdPartition, acknowledged: Sequence[AcknowledgedBatch]) -> None:
        leader = self._shares.find(self._member.group_id, topic_partition)
        outcome = Outcome()
        if leader is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome.end(code, TEXTS[code])
        elif leader.state is not LeaderState.ACTIVE:
            # While its state is being read, nothing is in flight.
            outcome.end(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        else:
            outcome = leader.acknowledge(self._member.member_id, acknowledged)
            self._unstored.append(leader)
        self._outcomes[topic_partition] = outcome

    async def outcomes(self) -> Mapping[TopicIdPartition, Acknowledged]:
        """The outcome for each partition, when all of them are known."""
        found = dict(self._known)
        for topic_partition, outcome in self._outcomes.items():
            if not outcome.is_complete:
                await outcome.wait()
            found[topic_partition] = Acknowledged(outcome.error, outcome.message)
        return found


def watch_connection(context: BrokerContext, shares: SharePartitions) -> None:
    """Ends the share sessions that begin on a connection when it is closed; called when one has begun."""
    context.connection.when_closed("share sessions", partial(shares.connection_closed, context.connection))


def release_if_final(shares: SharePartitions, request: MemberRequest) -> None:
    """Ends the session with the final epoch; the release of the member's records goes on in the background."""
    if request.share_session_epoch == FINAL_EPOCH:
        shares.release_session(member_of(request))


def name_leader(
    context: BrokerContext,
    response: Any,
    data: Any,
    topic_partition: TopicIdPartition,
    make_leader: Callable[..., Any],
    make_endpoint: Callable[..., Any],
) -> None:
    """Names the leader in a partition's error, if a leader may help, and adds its address to the response (KIP-951).

    `make_leader` and `make_endpoint` are the response's classes LeaderIdAndEpoch and NodeEndpoint.
    """
    if data.error_code in HINTED_ERRORS:
        partition = context.services.partitions.get_by_id(topic_partition.topic_id, topic_partition.partition)
        leader_id, leader_epoch = leader_of(context, topic_partition.topic_id, topic_partition.partition, partition)
        data.current_leader = make_leader(leader_id=leader_id, leader_epoch=leader_epoch)
        add_endpoint(context, response.node_endpoints, leader_id, make_endpoint)
