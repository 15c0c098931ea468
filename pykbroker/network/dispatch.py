"""Path from a request's frame to its reply: header, version check, decode, handler, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.controller.turns import in_turns
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.metadata.controller_channel import not_active_code
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import chunks_in_steps, decode_from, decode_in_steps, encode_chunks
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_fields import error_codes
from pykbroker.protocol.headers import RequestHeader, read_request_header, response_header
from pykbroker.protocol.steps import finished
from pykbroker.requests.api_table import APIS_OF, FLEXIBLE_FROM, camel_case
from pykbroker.requests.context import RequestContext, UnfinishedResponse
from pykbroker.requests.invocation import ELEMENTS_MAX, audit, failed, handlers_of, load
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.sasl import State

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pykbroker.quotas.node_quotas import NodeQuotas
    from pykbroker.requests.api_table import Api
    from pykbroker.requests.context import NodeContext, NodeServices
    from pykbroker.security.connection_info import ConnectionInfo

    Handler = Callable[[Any, Any], Coroutine[Any, Any, Any]]

FORWARDED_IN_PART = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""APIs whose handlers on the broker check a part of the request and forward the rest: changes of broker settings, and
the client's connection for delegation tokens. Other requests for the active controller are forwarded unchanged
(KIP-590)."""


LARGE_FRAME_BYTES = 2048
"""Size from which on a request is decoded, and its response encoded, in turns with other requests. 100 kB may name
10,000 partitions, whose decoding takes 10 to 40 ms."""

LARGE_PRODUCE_BYTES = 128 * 1024
"""As `LARGE_FRAME_BYTES`, for decoding Produce: most of its bytes are records, but 450 kB may be the batches of 5,000
partitions. Its handler says if the response is long."""

JOINED_MAX = 1 << 17
"""Bytes of a response up to which they are copied behind its header, to be sent by one call."""

LONG_RESPONSES = frozenset(
    {
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ELECT_LEADERS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_GROUPS,
    }
)
"""APIs that answer a short request with all that there is. Fetch says for each response if it is long."""


class UnfinishedHandlerReply:
    """An UnfinishedReply with the response of a handler, which is encoded when it is finished."""

    __slots__ = ("_has_tags", "_header", "_is_long", "_unfinished")

    def __init__(self, unfinished: UnfinishedResponse, header: RequestHeader, has_tags: bool, is_long: bool) -> None:
        self._unfinished = unfinished
        self._header = header
        self._has_tags = has_tags
        self._is_long = is_long

    async def finish(self) -> list[Any]:
        """Waits until the reply is complete; returns its chunks as `dispatch` does."""
        await self._unfinished.finish()
        response, version = self._unfinished.response, self._header.api_version
        if self._is_long:
            return _framed(self._header, await in_turns(chunks_in_steps(response, version)), self._has_tags)
        return _reply(self._header, response, version, self._has_tags)


async def dispatch(
    services: NodeServices, connection: ConnectionInfo, frame: memoryview, *, may_be_unfinished: bool = False
) -> list[Any] | UnfinishedHandlerReply | None:
    """Serves one request; returns the chunks of the reply, beginning with its size, or None for no reply (acks=0).

    With `may_be_unfinished` a reply that waits for other brokers may be returned before it is complete.

    Raises:
        CloseConnection: the request cannot be answered (P-4), or its handler closes the connection (P-10, P-15).
        DecodeError: the bytes are not a request of the API and version in their header.

    Any other exception of a handler becomes an error response, as in Kafka.
    """
    if connection.sasl is not None and connection.sasl.state is State.RAW_TOKEN:
        return await _raw_token(services, connection, bytes(frame))
    header = read_request_header(frame, FLEXIBLE_FROM)
    key, version = header.api_key, header.api_version
    if connection.sasl is not None:
        try:
            connection.sasl.check_allowed(key)
        except KafkaError as error:
            return await _refuse_instead_of_token(services, connection, header, frame, error)
    kind = connection.listener_kind
    api = APIS_OF[kind].get(key)
    if api is None:
        raise CloseConnection(f"API key {key} version {version} is not known to this {kind.value}")
    if not api.lowest <= version <= api.highest and not _is_enabled_unstable(services, api, version):
        return _unsupported_version_reply(header, api, kind)
    request_type, handler = handlers_of[kind].get(key) or load(api, kind)
    is_large = len(frame) >= (LARGE_FRAME_BYTES if key != ApiKey.PRODUCE else LARGE_PRODUCE_BYTES)
    if is_large:
        request = await in_turns(decode_in_steps(request_type, version, frame, header.body_position, ELEMENTS_MAX))
    else:
        request, _ = decode_from(request_type, version, frame, header.body_position, ELEMENTS_MAX)
    context = RequestContext(services, connection, api.key, version, header.correlation_id, header.client_id or "")
    has_tags = version >= api.flexible_from and key != ApiKey.API_VERSIONS
    context.has_long_response = key in LONG_RESPONSES or (is_large and key != ApiKey.PRODUCE)
    context.may_be_unfinished = may_be_unfinished
    is_forwarded = api.is_forwardable and kind is ListenerKind.BROKER and key not in FORWARDED_IN_PART
    if services.quotas.active is not None:
        _give_quota(services.quotas.active, context, len(frame))
    try:
        # The time to forward a request counts for its client's quota, too (P-312).
        work = (
            _handle_or_forward(context, request, handler, bytes(frame)) if is_forwarded else handler(context, request)
        )
        response = await (work if context.quota is None or not context.quota.is_timed else context.quota.timed(work))
        if is_forwarded and isinstance(response, bytes):
            return _forwarded_reply(context, request, response, has_tags)
        unfinished: UnfinishedResponse | None = None
        if isinstance(response, UnfinishedResponse):
            # The client has no quota, or one that does not depend on the response.
            unfinished, response = response, response.response
        elif (quota := context.quota) is not None:
            quota.answer(request, response)
            if response is not None and quota.is_timed:
                connection.timed = quota
        if context.refusals is not None or api.is_forwardable:
            await in_turns(audit(context, request, response))
        if response is None:
            return None
        if key == ApiKey.PRODUCE:
            _note_produce(services, connection, frame, header, request)
        if unfinished is not None:
            return UnfinishedHandlerReply(unfinished, header, has_tags, context.has_long_response)
        if context.has_long_response:
            return _framed(header, await in_turns(chunks_in_steps(response, version)), has_tags)
        return _reply(header, response, version, has_tags)
    except CloseConnection:
        raise
    except Exception as error:
        return _reply(header, _failed(context, request, error), version, has_tags)


def _failed(context: NodeContext, request: Any, error: Exception) -> Any:
    """Error response to a request whose handler failed, with its quota and its line in the audit log."""
    response = failed(context, request, error)
    if context.quota is not None:
        context.quota.is_refused = getattr(error, "error_code", None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        context.quota.answer(request, response)
    if context.refusals is not None:
        # The audit log has no line for a change that failed, but one for operations that the authorizer has refused.
        finished(audit(context, request, response))
    return response


def _note_produce(
    services: Any, connection: ConnectionInfo, frame: memoryview, header: RequestHeader, request: Any
) -> None:
    from pykbroker.requests.repeated_produce import note_produce

    note_produce(services, connection, frame, header, request)


def _give_quota(quotas: NodeQuotas, context: NodeContext, size_bytes: int) -> None:
    """Gives the request its client's quota, if there is one."""
    from pykbroker.quotas.throttling import quota_of_request

    quota = quota_of_request(
        quotas, context.connection, context.client_id, context.api_key, context.api_version, size_bytes
    )
    if quota is not None:
        context.quota = quota
        context.may_be_unfinished = context.may_be_unfinished and quota.may_be_unfinished


def _forwarded_reply(context: NodeContext, request: Any, reply: bytes, has_tags: bool) -> list[Any]:
    """The active controller's reply, with the throttle time of this broker if that is longer."""
    if context.quota is not None:
        from pykbroker.protocol.codec import encode
        from pykbroker.protocol.fields import response_class
        from pykbroker.protocol.headers import read_response_header

        _, position = read_response_header(reply, has_tags)
        response, _ = decode_from(response_class(type(request)), context.api_version, reply, position)
        context.quota.answer(request, response)
        if context.quota.is_timed:
            context.connection.timed = context.quota
        reply = reply[:position] + encode(response, context.api_version)
    return [len(reply).to_bytes(4, "big") + reply]


async def _handle_or_forward(context: NodeContext, request: Any, handler: Handler, frame: bytes) -> Any:
    """Response of the handler if this process is the active controller, else the active controller's reply as bytes.

    The client never gets the NOT_CONTROLLER of a controller that stopped being active meanwhile; the request is tried
    again instead.
    """
    channel = context.services.channel
    if channel is None:
        return await handler(context, request)
    while True:
        if not channel.is_local:
            reply = await channel.forward(context.connection, frame)
            if reply is not None:
                return reply
        try:
            response = await handler(context, request)
        except KafkaError as error:
            if error.error_code is not ErrorCode.NOT_CONTROLLER or channel.is_local:
                raise
            continue
        if channel.is_local or not_active_code(context.api_key) not in error_codes(response):
            return response


def _unsupported_version_reply(header: RequestHeader, api: Api, kind: ListenerKind) -> list[Any]:
    """Reply to ApiVersions in a version that is too new: the body of version 0 with the error and our range (P-2).

    Raises:
        CloseConnection: the request is of another API.
    """
    if header.api_key != ApiKey.API_VERSIONS:
        raise _unsupported_version(api, header.api_version, kind)
    from pykbroker.handlers.api_versions import unsupported_version_response

    return _reply(header, unsupported_version_response(), 0, False)


def _is_enabled_unstable(services: NodeServices, api: Api, version: int) -> bool:
    """True for the version of an API that may still change, if this node serves such versions (P-440)."""
    return version == api.unstable and services.config.broker.unstable_api_versions_enable


def _unsupported_version(api: Api, version: int, kind: ListenerKind) -> CloseConnection:
    return CloseConnection(
        f"{camel_case(api.name)} version {version} is not supported; this {kind.value} has "
        f"{api.lowest} to {api.highest}"
    )


async def _refuse_instead_of_token(
    services: NodeServices, connection: ConnectionInfo, header: RequestHeader, frame: memoryview, error: KafkaError
) -> list[Any]:
    """Error response to another request in place of SaslAuthenticate; the connection is closed after it.

    Kafka decodes any request for this response: on a broker's listener also one that only controllers serve, and
    ApiVersions of an unknown version, whose response has version 0.
    """
    key, version = header.api_key, header.api_version
    kind = connection.listener_kind
    if key not in APIS_OF[kind]:
        kind = next((other for other in APIS_OF if key in APIS_OF[other]), kind)
    api = APIS_OF[kind].get(key)
    if api is None:
        raise CloseConnection(str(error))
    request_type, _ = handlers_of[kind].get(key) or load(api, kind)
    if api.lowest <= version <= api.highest or _is_enabled_unstable(services, api, version):
        request, _ = decode_from(request_type, version, frame, header.body_position, ELEMENTS_MAX)
    elif key == ApiKey.API_VERSIONS:
        request, version = request_type(), 0
    else:
        raise _unsupported_version(api, version, kind)
    context = RequestContext(services, connection, api.key, version, header.correlation_id, header.client_id or "")
    response = failed(context, request, error)
    from pykbroker.requests.login import delay_failed_login

    await delay_failed_login(services, connection, str(error))
    return _reply(header, response, version, version >= api.flexible_from and key != ApiKey.API_VERSIONS)


async def _raw_token(services: NodeServices, connection: ConnectionInfo, token: bytes) -> list[Any]:
    """SASL exchange after SaslHandshake v0: tokens without headers; a failure closes the connection (P-14)."""
    from pykbroker.requests.login import answer_token, delay_failed_login

    try:
        answer, _ = await answer_token(services, connection, token)
    except KafkaError as error:
        await delay_failed_login(services, connection, str(error))
        raise CloseConnection(str(error)) from None
    return [len(answer).to_bytes(4, "big") + answer]


def _reply(header: RequestHeader, response: Any, version: int, is_flexible: bool) -> list[Any]:
    return _framed(header, encode_chunks(response, version), is_flexible)


def _framed(header: RequestHeader, chunks: list[Any], is_flexible: bool) -> list[Any]:
    head = response_header(header.correlation_id, is_flexible)
    size = len(head) + sum(map(len, chunks))
    framing = size.to_bytes(4, "big") + head
    # The first chunk is never a file range. Joined with size and header it saves a system call, but a copy of a large
    # one takes more time than that.
    if len(chunks[0]) > JOINED_MAX:
        return [framing, *chunks]
    chunks[0] = b"".join((framing, chunks[0]))
    return chunks
