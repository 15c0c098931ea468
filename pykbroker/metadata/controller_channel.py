"""ControllerChannel: this broker's requests to the active controller, and those that it forwards for clients.

Where the active controller is in this process, its handlers are called; nothing is encoded. Otherwise the request goes
to its listener, over a connection that nobody else waits on. When the controller moves, or is not known, the request is
made again until its time is up: as Kafka's NodeToControllerChannelManager, and like there it may then have been carried
out twice, which every such request allows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pykbroker.controller.node import ControllerNode
    from pykbroker.controller.node_client import NodeAddress, NodeClient, OpenStream
    from pykbroker.protocol.fields import Message
    from pykbroker.security.connection_info import ConnectionInfo

log = logging.getLogger(__name__)

FORWARD_TIMEOUT_MS = 60_000
"""Time limit, in ms, of the search for the active controller by a forwarded request; as in Kafka (BrokerServer)."""

CONNECTIONS_MAX = 16
"""Requests that are under way at the same time; others wait."""

RETRY_PAUSE_S = 0.05

MOVED_GRACE_S = 0.5
"""Seconds that a request to a controller still waits for its response after another controller became active. A deposed
controller that still runs answers or refuses at once."""

SERVER_ERROR_MESSAGE = "The server experienced an unexpected error when processing the request."

_MOVED = ErrorCode.NOT_CONTROLLER


class ControllerChannel:
    """See the module's text.

    Args:
        node: says who leads.
        addresses: where a controller listens, by node id; None if that is not known.
        open_stream: connects.
        call: carries a request out in this process, as the active controller's handlers do.
        client_id: names this node.
        request_timeout_ms: how long one attempt may take (`controller.socket.timeout.ms`).
    """

    def __init__(
        self,
        node: ControllerNode,
        addresses: Callable[[int], NodeAddress | None],
        open_stream: OpenStream,
        call: Callable[[Message], Awaitable[Any]],
        *,
        client_id: str,
        request_timeout_ms: int,
    ) -> None:
        self._node = node
        self._addresses = addresses
        self._open_stream = open_stream
        self._call = call
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._idle: list[NodeClient] = []
        self._slots: trio.Semaphore | None = None
        self._was_away = False

    @property
    def is_local(self) -> bool:
        """True if the active controller is in this process."""
        return self._node.is_leader

    async def request(self, message: Message, timeout_ms: int) -> Any:
        """The active controller's response; any error in it but NOT_CONTROLLER is the caller's.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when no controller answered in time; UNSUPPORTED_VERSION when it does not
                have this API in a version that we have.
        """
        failure = "no active controller is known"
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                if self._node.is_leader:
                    response = await self._call(message)
                    if not has_error(response, _MOVED):
                        return response
                else:
                    answered, failure = await self._ask(message)
                    if answered is not None:
                        return answered
                await trio.sleep(RETRY_PAUSE_S)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The active controller did not answer in time: {failure}.")

    async def forward(
        self, connection: ConnectionInfo, frame: bytes, timeout_ms: int = FORWARD_TIMEOUT_MS
    ) -> bytes | None:
        """The active controller's reply (header and body) to a client's request (header and body), as an Envelope.

        None if the active controller is in this process by now: its handler is to be called, which knows the client.

        Raises:
            KafkaError: what to answer instead, see `request`.
            CloseConnection: the controller does not have the version that the client uses; it will look again.
        """
        from pykbroker.protocol.messages.envelope import EnvelopeRequest
        from pykbroker.security.principal_data import address_to_bytes, principal_to_bytes

        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=principal_to_bytes(connection.principal),
            client_host_address=address_to_bytes(connection.client_host),
        )
        with trio.move_on_after(timeout_ms / 1000):
            while not self._node.is_leader:
                answer, _ = await self._ask(envelope)
                if answer is not None:
                    return _unwrapped(answer)
                await trio.sleep(RETRY_PAUSE_S)
            return None
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")

    async def close(self) -> None:
        """Closes the connections that nobody uses."""
        idle, self._idle = self._idle, []
        for client in idle:
            await client.close()

    async def _ask(self, message: Message) -> tuple[Any, str]:
        """The response of the controller that is known, or None and why there is none."""
        from pykbroker.controller.node_client import NodeUnreachable
        from pykbroker.protocol.errors import ProtocolError

        leader_id, _ = self._node.known_leader()
        address = self._addresses(leader_id) if leader_id >= 0 else None
        if address is None:
            return None, "no active controller is known"
        if self._slots is None:
            self._slots = trio.Semaphore(CONNECTIONS_MAX)
        async with self._slots:
            client = await self._client(address)
            try:
                response = await self._unless_moved(client, message)
            except NodeUnreachable as error:
                if not self._was_away:
                    log.warning("the active controller, node %d, does not answer: %s", leader_id, error)
                self._was_away = True
                return None, str(error)
            except ProtocolError as error:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
            self._was_away = False
            self._idle.append(client)
        if has_error(response, _MOVED):
            return None, f"node {leader_id} is not the active controller any more"
        return response, ""

    async def _unless_moved(self, client: NodeClient, message: Message) -> Any:
        """The response, unless another node leads by now and it still does not come.

        A node that stands still, or is cut off, keeps its connections: the request would wait for its whole time.

        Raises:
            NodeUnreachable, ProtocolError: as `NodeClient.request`.
        """
        from pykbroker.controller.node_client import NodeUnreachable
        from pykbroker.protocol.errors import ProtocolError

        known = self._node.known_leader()
        response: Any = None
        failure: Exception = NodeUnreachable(f"{client.address}: another controller leads by now")

        async def ask() -> None:
            nonlocal response, failure
            try:
                response = await client.request(message, self._request_timeout_ms)
            except (NodeUnreachable, ProtocolError) as error:
                failure = error
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while self._node.known_leader() == known:
                await self._node.leadership_changed()
            await trio.sleep(MOVED_GRACE_S)
            nursery.cancel_scope.cancel()
        if response is None:
            raise failure
        return response

    async def _client(self, address: NodeAddress) -> NodeClient:
        """A connection to this address that nobody uses; those to an earlier controller are closed."""
        from pykbroker.controller.node_client import NodeClient

        old = [client for client in self._idle if client.address != address]
        # All at once: while one is closed another request may come here.
        self._idle = [client for client in self._idle if client.address == address]
        for client in old:
            await client.close()
        for place, client in enumerate(self._idle):
            if client.address == address:
                return self._idle.pop(place)
        return NodeClient(address, self._open_stream, client_id=self._client_id, software_version=__version__)


def _unwrapped(answer: Any) -> bytes:
    """The reply inside an Envelope's response; raises as `ControllerChannel.forward`."""
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection("the active controller does not have this version of the request")
    if code is not ErrorCode.NONE or answer.response_data is None:
        # The client did not ask for an envelope, so it is not told of its errors.
        log.warning("the active controller refused a forwarded request: %s", code.name)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, SERVER_ERROR_MESSAGE)
    data: bytes = answer.response_data
    return data


def moved_code(api_key: int) -> ErrorCode:
    """Error codes in a response that mean that another controller is the active one."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if api_key == ApiKey.DESCRIBE_QUORUM else _MOVED


def has_error(message: Message, code: int) -> bool:
    """True if an error code stands anywhere in a response."""
    for field in message.FIELDS:
        value: Any = getattr(message, field.name)
        if field.name == "error_code" and value == code:
            return True
        is_structs = field.kind == "array" and field.element.kind == "struct" and value
        if is_structs and any(has_error(element, code) for element in value):
            return True
    return False
