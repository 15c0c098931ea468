"""Produce requests that differ from an earlier one only in correlation id and records, which is what producers send.

A producer that sends one batch to one partition begins every request with the same bytes, up to the records. These
bytes are decoded once: afterwards they are a key, under which the partition and the bytes of the response are found.
The general path, `dispatch` and `handlers.produce`, serves everything else: `serve` changes nothing before it is
certain that the request is of this kind, and its responses are those of the general path, byte for byte.

Only requests of version 9 and later (flexible versions) with one partition, acks of 1 or all, no transaction and no
tagged fields are served here, and only while there are no quotas. None are served with an authorizer of the user's,
which would be called twice for each refused request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.acl_codes import TOPIC, WRITE
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.codec_source import Malformed, read_uvarint
from pykbroker.protocol.headers import read_request_header, response_header
from pykbroker.protocol.messages.produce import ProduceRequest
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.layout import (
    FLAGS_POSITION,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    read_header,
)
from pykbroker.protocol.records.single_batch import MAGIC
from pykbroker.requests.api_table import FLEXIBLE_FROM
from pykbroker.requests.context import RequestContext
from pykbroker.requests.invocation import failed
from pykbroker.requests.produce_kind import KindOfRequest, UnfinishedProduceReply
from pykbroker.requests.produce_responses import TOPIC_ID_VERSION, append_failure

if TYPE_CHECKING:
    from pykbroker.protocol.headers import RequestHeader
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerServices
    from pykbroker.security.connection_info import ConnectionInfo

ACKS_ALL: Final = -1
FLEXIBLE_VERSION: Final = 9

KINDS_MAX: Final = 2_000
"""Number of kinds of requests, of about 1 KB each, at which all are dropped; the frequent ones are soon noted again."""

_NO_TAGS_SIZE: Final = 3
"""Bytes behind the records: no tagged fields of the partition, of the topic and of the request."""

_CLIENT_ID_POSITION: Final = 10
_TO_TOPIC_SIZE: Final = 9
"""Bytes between the client id and the topic: no tagged fields of the header, no transactional id, acks, timeout, number
of topics."""
_TO_RECORDS_SIZE: Final = 5
"""Bytes between the topic and the length of the records: the number of partitions and the index of the one."""


class RepeatedProduce:
    """Kinds of Produce requests that the clients of one node have sent."""

    __slots__ = ("_kinds", "_partitions", "_quotas", "_services", "_wall_clock")

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._partitions = services.partitions
        self._wall_clock = services.clock
        self._quotas = services.quotas
        # By the bytes before the records, without the correlation id.
        self._kinds: dict[bytes, KindOfRequest] = {}

    def note(self, frame: memoryview, header: RequestHeader, request: Any) -> None:
        """Keeps the kind of a request that was answered, if others of this kind can be served by `serve`."""
        if len(request.topic_data) != 1 or request.acks not in (1, ACKS_ALL):
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1 or request.transactional_id is not None:
            return
        version, body = header.api_version, header.body_position
        # Null for the transactional id, acks, timeout, one topic; then its name or id, one partition, and its index.
        topic_position = body + 8
        if (
            topic_position - _TO_TOPIC_SIZE != _CLIENT_ID_POSITION + frame[_CLIENT_ID_POSITION - 1]
            or frame[body]
            or frame[topic_position - 1] != 2
        ):
            return
        if version < TOPIC_ID_VERSION:
            # A name's length plus one, as a varint of one byte.
            topic_size = frame[topic_position]
            if topic_size > 127 or topic.name in INTERNAL_TOPICS:
                return
        else:
            topic_size = 16
            image = self._services.metadata.topic_by_id(topic.topic_id)
            if image is None or image.name in INTERNAL_TOPICS:
                return
        if frame[topic_position + topic_size] != 2:
            return
        head = frame[: topic_position + topic_size + _TO_RECORDS_SIZE].tobytes()
        key = head[:4] + head[8:]
        if key not in self._kinds:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            self._kinds[key] = KindOfRequest(request, version)

    def serve(self, connection: ConnectionInfo, frame: memoryview) -> list[Any] | UnfinishedProduceReply | None:
        """Serves a request of a known kind; None for any other, with no effect.

        Returns:
            The chunks of the reply, as of `dispatch`; with acks=all, if there are followers, in waiting.

        Raises:
            CloseConnection: from the general handling of a failure.
        """
        end = len(frame) - _NO_TAGS_SIZE
        if end < HEADER_SIZE or frame[0] or frame[1]:
            return None
        # Where the records begin if this is a request of a known kind; the key has all bytes that decide it.
        topic_position = _CLIENT_ID_POSITION + frame[_CLIENT_ID_POSITION - 1] + _TO_TOPIC_SIZE
        if topic_position >= end:
            return None
        topic_size = frame[topic_position] if frame[3] < TOPIC_ID_VERSION else 16
        size = topic_position + topic_size + _TO_RECORDS_SIZE
        if size >= end:
            return None
        head = frame[:size].tobytes()
        kind = self._kinds.get(head[:4] + head[8:])
        if kind is None or self._quotas.active is not None:
            return None
        if connection.sasl is not None and not connection.sasl.allows_requests:
            return None
        # Size of the records plus one, as a varint.
        length, position = frame[size], size + 1
        if length > 127:
            try:
                length, position = read_uvarint(frame, position, length)
            except (IndexError, Malformed):
                return None
        if (
            position + length - 1 != end
            or length <= HEADER_SIZE
            or frame[end]
            or frame[end + 1]
            or frame[end + 2]
            or frame[position + MAGIC_POSITION] != MAGIC
            or frame[position + FLAGS_POSITION] & TRANSACTIONAL_FLAG
        ):
            return None
        data = frame[position:end]
        header = read_header(data)
        if header.length + LENGTH_OVERHEAD != length - 1:
            return None
        if kind.api_version < TOPIC_ID_VERSION:
            partition = self._partitions.get(kind.topic, kind.index)
        else:
            partition = self._partitions.get_by_id(kind.topic_id, kind.index)
        if partition is None:
            return None
        leadership = partition.leadership
        if leadership is None:
            return None
        authorizer = self._services.authorizer
        if authorizer is not None and not authorizer.allows(
            connection.principal, connection.client_host, WRITE, TOPIC, partition.topic
        ):
            return None
        try:
            if kind.acks == ACKS_ALL:
                partition.check_enough_replicas()
            result = partition.append_as_leader(data, self._wall_clock.now_ms(), header=header)
        except Exception as error:
            return self._failed(connection, frame, kind, partition, error)
        if kind.acks == ACKS_ALL and leadership.followers:
            return UnfinishedProduceReply(self._services, connection, head, kind, partition, leadership, result)
        return kind.reply(head[4:8], result)

    def _failed(
        self, connection: ConnectionInfo, frame: memoryview, kind: KindOfRequest, partition: Partition, error: Exception
    ) -> list[Any]:
        """The reply of the general path to an append that failed."""
        header = read_request_header(frame, FLEXIBLE_FROM)
        version = header.api_version
        if isinstance(error, (KafkaError, LogError, RecordError)):
            response = kind.response(append_failure(kind.index, error, partition))
        else:
            request, _ = decode_from(ProduceRequest, version, frame, header.body_position)
            context = RequestContext(
                self._services, connection, ApiKey.PRODUCE, version, header.correlation_id, header.client_id or ""
            )
            response = failed(context, request, error)
        reply = response_header(header.correlation_id, True) + encode(response, version)
        return [len(reply).to_bytes(4, "big") + reply]


def note_produce(
    services: BrokerServices, connection: ConnectionInfo, frame: memoryview, header: RequestHeader, request: Any
) -> None:
    """Keeps the kind of a Produce request for the next one, if neither client nor broker needs the general path."""
    if header.api_version < FLEXIBLE_VERSION or not (
        services.authorizer is None or services.authorizer.may_be_asked_again
    ):
        return
    repeated = services.repeated_produce
    if repeated is None:
        repeated = services.repeated_produce = RepeatedProduce(services)
    connection.repeated_produce = repeated
    repeated.note(frame, header, request)
