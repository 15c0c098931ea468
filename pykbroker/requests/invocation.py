"""Invocation of handlers: the loaded handlers, the limit of a request's elements, the response to a failed one, audit.

A request comes directly over a client's connection (`dispatch`) or inside an Envelope (`handlers.envelope`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.api_table import camel_case, load_handler
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pykbroker.protocol.steps import Steps
    from pykbroker.requests.api_table import Api
    from pykbroker.requests.context import NodeContext

log = logging.getLogger(__name__)

ELEMENTS_MAX = 50_000
"""Largest number of elements of one request: topics, partitions and all others. Kafka has no such limit: there a frame
of `socket.request.max.bytes` may become gigabytes of objects. No client names so many partitions at once."""


Entry = tuple[type[Any], "Callable[[Any, Any], Coroutine[Any, Any, Any]]"]

handlers_of: dict[ListenerKind, dict[int, Entry]] = {ListenerKind.BROKER: {}, ListenerKind.CONTROLLER: {}}
"""Request class and handler of each API that has been called, by kind of listener and API key."""


def load(api: Api, kind: ListenerKind) -> Entry:
    """Imports request class and handler of an API, at its first call."""
    entry = handlers_of[kind][api.key] = load_handler(api, kind)
    return entry


def failed(context: NodeContext, request: Any, error: Exception) -> Any:
    """Error response to a request whose handler failed; as in Kafka the connection stays open.

    Raises:
        CloseConnection: the client expects no response.
    """
    from pykbroker.requests.error_responses import error_response

    what = f"{camel_case(context.api_key.name.lower())} v{context.api_version} of {context.connection.client_host}"
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    message: str | None = None
    if isinstance(error, KafkaError):
        code, message = error.error_code, error.message
    else:
        log.error("%s:%d failed with an internal error", what, context.connection.client_port, exc_info=error)
    response = error_response(request, context.api_version, code, message)
    if response is None:
        raise CloseConnection(f"{what} failed with {code.name} and has acks=0; closing tells the client")
    return response


def audit(context: NodeContext, request: Any, response: Any) -> Steps[None]:
    """Logs what was refused to the client, and what it has changed."""
    from pykbroker.security.audit import CHANGES, audit_change, audit_refusals

    if context.refusals and response is not None:
        audit_refusals(context.connection, context.api_key, context.refusals, request, response)
    if context.api_key in CHANGES and response is not None:
        yield from audit_change(context.connection, context.api_key, request, response)
