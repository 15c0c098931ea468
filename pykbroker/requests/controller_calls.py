"""Calls of handlers to the controller: commands, forwarded requests, and requests of the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, CommandRefused
from pykbroker.controller.metadata.topics import no_charge
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.controller.active_controller import ActiveController
    from pykbroker.controller.metadata.commands import Command
    from pykbroker.controller.metadata.topics import Charge
    from pykbroker.controller.peers import Peers
    from pykbroker.protocol.fields import Message
    from pykbroker.requests.context import ControllerContext, NodeContext

R = TypeVar("R")


async def submit(context: NodeContext, command: Command[R], timeout_ms: int) -> tuple[R | None, ApiError]:
    """The command's result and `NO_ERROR`; or None and the error if the whole command was refused or timed out."""
    try:
        return await context.services.controller.submit(command, timeout_ms), NO_ERROR
    except CommandRefused as refused:
        return None, refused.error


def is_too_late(timeout_ms: int) -> bool:
    """True for a client's timeout that is over at once: Kafka's controller then does nothing (P-487).

    The error is REQUEST_TIMED_OUT without a text.
    """
    return timeout_ms <= 0


async def forwarded(context: NodeContext, request: Message) -> Any:
    """Forwards a request to the active controller and returns its response.

    `request` is the client's own or a part of it. None if this process is the active controller: the caller then
    executes the request itself.

    Raises:
        KafkaError: REQUEST_TIMED_OUT: no controller was found.
        CloseConnection: the controller does not support this version.
    """
    channel = context.services.channel
    if channel is None or channel.is_local:
        return None
    from pykbroker.protocol.codec import decode_from, encode
    from pykbroker.protocol.fields import response_class
    from pykbroker.protocol.headers import read_response_header, request_header

    version = context.api_version if context.api_key == request.KEY else request.VERSIONS.highest
    is_flexible = version in request.FLEXIBLE_VERSIONS
    head = request_header(request.KEY, version, context.correlation_id, context.client_id, is_flexible)
    reply = await channel.forward(context.connection, head + encode(request, version))
    if reply is None:
        return None
    _, position = read_response_header(reply, is_flexible)
    return decode_from(response_class(type(request)), version, reply, position)[0]


def charge_of(context: NodeContext) -> Charge:
    """Counts partitions for the quota on mutations of the client (KIP-599)."""
    return no_charge if context.quota is None else context.quota.charge_mutations


async def forwarded_or_submitted(
    context: NodeContext, request: Message, command: Callable[[], Command[R]]
) -> tuple[Any, R | None, ApiError]:
    """Makes a change at the active controller, and again at its successor if this process stops being active.

    Args:
        context: the client's request.
        request: forwarded if the active controller is another process.
        command: makes the command that is submitted if it is this process.

    Returns:
        The response to the forwarded request, None, `NO_ERROR`; or None with the command's result and error, as
        `submit` returns them.

    Raises:
        KafkaError, CloseConnection: as `forwarded`.
    """
    channel = context.services.channel
    while True:
        response = await forwarded(context, request)
        if response is not None:
            return response, None, NO_ERROR
        result, error = await submit(context, command(), context.services.config.request_timeout_ms)
        if error.code != ErrorCode.NOT_CONTROLLER or channel is None or channel.is_local:
            return None, result, error


async def submit_command(context: NodeContext, command: Command[R], timeout_ms: int | None = None) -> R:
    """Submits a command and returns its result. A timeout of None is `request.timeout.ms`.

    Raises:
        KafkaError: the whole command was refused or timed out.
    """
    try:
        limit_ms = context.services.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await context.services.controller.submit(command, limit_ms)
    except CommandRefused as refused:
        raise KafkaError(refused.error.code, refused.error.message) from None


def active_controller_of(context: ControllerContext) -> ActiveController:
    """The node's ActiveController.

    Raises:
        KafkaError: NOT_CONTROLLER: this node has none, and never leads.
    """
    active = context.services.active_controller
    if active is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    return active


def quorum_of(context: ControllerContext) -> Peers:
    """This node's connections to the other nodes of the quorum.

    Raises:
        CloseConnection: this node is not part of a quorum of several nodes.
    """
    peers = context.services.peers
    if peers is None:
        raise CloseConnection("this node takes no part in a quorum of several nodes")
    return peers


def inconsistent_cluster(context: NodeContext, cluster_id: str | None) -> str | None:
    """Error text for a request that names another cluster; None for one that names this cluster or none."""
    own = context.services.cluster_id
    if cluster_id is None or cluster_id == own:
        return None
    return f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'


async def answer_of_quorum(context: ControllerContext, request: Any) -> Any:
    """Response of the quorum's state machine to a request of another node.

    Raises:
        CloseConnection: the state machine has no response; the other node will repeat its request.
    """
    response = await quorum_of(context).answer(request, context.api_version)
    if response is None:
        raise CloseConnection(f"the quorum has no answer to {context.api_key.name} of {context.connection.client_host}")
    return response
