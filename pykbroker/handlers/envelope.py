"""Envelope (key 58): a request that a broker forwards to the controller for a client (KIP-590).

Version 0. It holds the request with its header, and the client's principal and address. The request is served as if
that client had connected to the controller itself, and its response is returned with its header. Errors of the
Envelope itself: CLUSTER_AUTHORIZATION_FAILED, PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST (address, or an API
that may not be forwarded), UNSUPPORTED_VERSION (the request cannot be parsed), NOT_CONTROLLER (in place of any response
with that error: the broker retries at the next controller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import in_turns
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.metadata.controller_channel import not_active_code
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import chunks_in_steps, decode_in_steps
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_fields import error_codes
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.headers import RequestHeader, read_request_header, response_header
from pykbroker.protocol.messages.envelope import EnvelopeResponse
from pykbroker.requests.api_table import CONTROLLER_APIS, FLEXIBLE_FROM, Api
from pykbroker.requests.context import ControllerContext
from pykbroker.requests.invocation import ELEMENTS_MAX, audit, failed, handlers_of, load
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from pykbroker.security.principal_data import address_from_bytes, principal_from_bytes

if TYPE_CHECKING:
    from pykbroker.protocol.messages.envelope import EnvelopeRequest


async def handle_envelope(context: ControllerContext, request: EnvelopeRequest) -> EnvelopeResponse:
    """Serves the request inside with the principal and address of the client that sent it."""
    context.require_cluster(CLUSTER_ACTION)
    connection = _client(context, request)
    frame = memoryview(request.request_data)
    header, api = _header(frame)
    request_type, handler = handlers_of[ListenerKind.CONTROLLER].get(api.key) or load(api, ListenerKind.CONTROLLER)
    try:
        forwarded = await in_turns(
            decode_in_steps(request_type, header.api_version, frame, header.body_position, ELEMENTS_MAX)
        )
    except DecodeError as error:
        raise _unreadable(str(error)) from None
    inner = ControllerContext(
        context.services, connection, api.key, header.api_version, header.correlation_id, header.client_id or ""
    )
    if (quotas := context.services.quotas.active) is not None:
        # Mutations and the handler's time count here (P-312). The broker that forwarded the request mutes the client;
        # its own connection stays open.
        from pykbroker.quotas.throttling import quota_of_request

        size_bytes = len(request.request_data)
        inner.quota = quota_of_request(quotas, connection, inner.client_id, api.key, header.api_version, size_bytes)
    try:
        work = handler(inner, forwarded)
        response = await (inner.quota.timed(work) if inner.quota is not None and inner.quota.is_timed else work)
    except CloseConnection:
        raise
    except Exception as error:
        response = failed(inner, forwarded, error)
    if inner.quota is not None:
        inner.quota.answer(forwarded, response)
    await in_turns(audit(inner, forwarded, response))
    # The client must not get this error: the broker that forwarded the request has to find the controller.
    if not_active_code(api.key) in error_codes(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    head = response_header(header.correlation_id, header.api_version >= api.flexible_from)
    chunks = await in_turns(chunks_in_steps(response, header.api_version))
    return EnvelopeResponse(response_data=b"".join((head, *chunks)))


def _client(context: ControllerContext, request: EnvelopeRequest) -> ConnectionInfo:
    principal, is_token_authenticated = principal_from_bytes(request.request_principal)
    host = address_from_bytes(request.client_host_address)
    broker = context.connection
    local = (broker.local_host, broker.local_port)
    connection = ConnectionInfo(broker.listener_name, (host, 0), local, None, ListenerKind.CONTROLLER)
    connection.principal = principal
    connection.is_token_authenticated = is_token_authenticated
    connection.is_forwarded = True
    return connection


def _header(frame: memoryview) -> tuple[RequestHeader, Api]:
    try:
        header = read_request_header(frame, FLEXIBLE_FROM)
        key = ApiKey(header.api_key)
    except (DecodeError, ValueError):
        raise _unreadable("Failed to parse request header from envelope") from None
    api = CONTROLLER_APIS.get(key)
    if api is None or not api.is_forwardable:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {key.name} is not enabled or is not eligible for forwarding")
    if not api.lowest <= header.api_version <= api.highest:
        raise _unreadable(f"{key.name} version {header.api_version} is not supported")
    return header, api


def _unreadable(message: str) -> KafkaError:
    # Another code than for errors of the Envelope's own fields, as in Kafka.
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
