"""Replies to Produce requests of one kind: those that differ only in correlation id and records.

All but the correlation id and three offsets of such a reply is encoded once. Errors are encoded as any response.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import trio

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.headers import read_request_header, response_header
from pykbroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykbroker.requests.api_table import FLEXIBLE_FROM
from pykbroker.requests.context import RequestContext
from pykbroker.requests.produce_responses import LeaderHints

if TYPE_CHECKING:
    from pykbroker.logstore.loaded_log import AppendResult
    from pykbroker.replication.leadership import Leadership
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerServices
    from pykbroker.security.connection_info import ConnectionInfo

_OFFSETS: Final = Struct(">qqq")
"""Base offset, log append time and log start offset of a partition's response, which stand side by side."""
_PLACEHOLDER: Final = (0x5A5A5A5A5A5A5A5A, 0x3C3C3C3C3C3C3C3C, 0x6969696969696969)


class KindOfRequest:
    """Common parts of all requests with the same bytes before their records.

    Attributes:
        topic, topic_id, index: the partition, as the requests name it.
        api_version: version of the requests.
        acks: 1 or `ACKS_ALL`.
        timeout_ms: longest wait for the in-sync replicas.
        size: size of the response, as the four bytes that begin it.
        before, after: bytes of the response around its offsets, without size and correlation id.
    """

    __slots__ = ("acks", "after", "api_version", "before", "index", "size", "timeout_ms", "topic", "topic_id")

    def __init__(self, request: ProduceRequest, api_version: int) -> None:
        topic = request.topic_data[0]
        self.topic = topic.name
        self.timeout_ms = request.timeout_ms
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.api_version = api_version
        self.acks = request.acks
        base_offset, log_append_time_ms, log_start_offset = _PLACEHOLDER
        response = PartitionProduceResponse(
            index=self.index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        reply = response_header(0, True) + encode(self.response(response), api_version)
        before, after = reply.rsplit(_OFFSETS.pack(*_PLACEHOLDER), 1)
        self.size = len(reply).to_bytes(4, "big")
        self.before, self.after = before[4:], after

    def reply(self, correlation_id: bytes, result: AppendResult) -> list[Any]:
        """The reply to a request whose records were appended."""
        offsets = _OFFSETS.pack(result.first_offset, result.log_append_time_ms, result.log_start_offset)
        return [b"".join((self.size, correlation_id, self.before, offsets, self.after))]

    def response(self, partition: PartitionProduceResponse) -> ProduceResponse:
        """A response with the result of the partition."""
        topic = TopicProduceResponse(name=self.topic, topic_id=self.topic_id, partition_responses=[partition])
        return ProduceResponse(responses=[topic])


class UnfinishedProduceReply:
    """An UnfinishedReply to a repeated request with acks=all: the records are appended, the replicas fetch them.

    Args:
        head: the request up to its records.
        leadership: that under which the records were appended.
        result: of the append.
    """

    __slots__ = ("_connection", "_deadline", "_head", "_kind", "_leadership", "_partition", "_result", "_services")

    def __init__(
        self,
        services: BrokerServices,
        connection: ConnectionInfo,
        head: bytes,
        kind: KindOfRequest,
        partition: Partition,
        leadership: Leadership,
        result: AppendResult,
    ) -> None:
        self._services = services
        self._connection = connection
        self._head = head
        self._kind = kind
        self._partition = partition
        self._leadership = leadership
        self._result = result
        self._deadline = trio.current_time() + max(kind.timeout_ms, 0) / 1000

    async def finish(self) -> list[Any]:
        """Waits for the in-sync replicas; the chunks of the reply, with an error after the deadline (P-46)."""
        error = await self._partition.wait_replicated(self._result.last_offset + 1, self._deadline, self._leadership)
        if error is ErrorCode.NONE:
            return self._kind.reply(self._head[4:8], self._result)
        return self._failed(error)

    def _failed(self, error: ErrorCode) -> list[Any]:
        header = read_request_header(memoryview(self._head), FLEXIBLE_FROM)
        version = header.api_version
        partition = PartitionProduceResponse(
            index=self._kind.index,
            error_code=error,
            base_offset=self._result.first_offset,
            log_append_time_ms=self._result.log_append_time_ms,
            log_start_offset=self._result.log_start_offset,
        )
        response = self._kind.response(partition)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            context = RequestContext(
                self._services,
                self._connection,
                ApiKey.PRODUCE,
                version,
                header.correlation_id,
                header.client_id or "",
            )
            hints = LeaderHints(context)
            hints.name_leader_of(self._partition, partition)
            response.node_endpoints = hints.endpoints
        reply = response_header(header.correlation_id, True) + encode(response, version)
        return [len(reply).to_bytes(4, "big") + reply]
