"""ControllerChannel: this broker's requests to the active controller, and requests that it forwards for clients.

If the active controller is in this process, its handlers are called without encoding. Otherwise each request has a
connection of its own while it is in flight. While the active controller changes or is unknown, the request is repeated
until its time limit, as by Kafka's NodeToControllerChannelManager. The controller may therefore execute a request
twice; every request of this channel allows that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.error_fields import error_codes
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
"""Largest number of requests in flight at the same time; others wait."""

RETRY_PAUSE_S = 0.05

MOVED_GRACE_S = 0.5
"""Seconds that a request to a controller still waits for its response after another controller became active. A deposed
controller that still runs answers or refuses at once."""


_MOVED = ErrorCode.NOT_CONTROLLER


class ControllerChannel:
    """Sends requests to the active controller, in this process or on another node.

    Args:
        node: the quorum's node, which has the leader's id.
        addresses: returns a controller's address by its node id; None if it is unknown.
        open_stream: opens a connection.
        call: sends a request to the controller in this process.
        client_id: client id of the requests.
        request_timeout_ms: time limit of one attempt in ms (`controller.socket.timeout.ms`).
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
        """The active controller's response. It may have any error code except NOT_CONTROLLER.

        Raises:
            KafkaError: REQUEST_TIMED_OUT if no controller answered in time; UNSUPPORTED_VERSION if the controller has
                no version of this API that exists here.
        """
        failure = "no active controller is known"
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                if self._node.is_leader:
                    response = await self._call(message)
                    if _MOVED not in error_codes(response):
                        return response
                else:
                    answered, failure = await self._send_to_known(message)
                    if answered is not None:
                        return answered
                await trio.sleep(RETRY_PAUSE_S)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The active controller did not answer in time: {failure}.")

    async def forward(self, connection: ConnectionInfo, frame: bytes) -> bytes | None:
        """The active controller's reply (header and body) to a client's request (header and body), sent in an Envelope.

        None if the active controller is now in this process: the caller then calls the handler, with the client's
        identity.

        Raises:
            KafkaError: error for the client, as in `request`.
            CloseConnection: the controller does not support the client's version; the client then asks for versions
                again.
        """
        from pykbroker.protocol.messages.envelope import EnvelopeRequest
        from pykbroker.security.principal_data import address_to_bytes, principal_to_bytes

        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=principal_to_bytes(
                connection.principal, is_token_authenticated=connection.is_token_authenticated
            ),
            client_host_address=address_to_bytes(connection.client_host),
        )
        with trio.move_on_after(FORWARD_TIMEOUT_MS / 1000):
            while not self._node.is_leader:
                answer, _ = await self._send_to_known(envelope)
                if answer is not None:
                    return _unwrapped(answer)
                await trio.sleep(RETRY_PAUSE_S)
            return None
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")

    async def close(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, []
        for client in idle:
            await client.close()

    async def _send_to_known(self, message: Message) -> tuple[Any, str]:
        """(response of the known controller, ""), or (None, reason) if none is known or it did not answer."""
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
        if _MOVED in error_codes(response):
            return None, f"node {leader_id} is not the active controller any more"
        return response, ""

    async def _unless_moved(self, client: NodeClient, message: Message) -> Any:
        """The response; gives up `MOVED_GRACE_S` after the leader has changed.

        The connections of a stalled or isolated node stay open, so that the request would wait for its whole timeout.

        Raises:
            NodeUnreachable, ProtocolError: as `NodeClient.request`; NodeUnreachable also after the leader has changed.
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
        """An idle or new connection to this address; idle connections to other addresses are closed."""
        from pykbroker.controller.node_client import NodeClient

        old = [client for client in self._idle if client.address != address]
        # Removed before the first await: another request may come here while a connection is being closed.
        self._idle = [client for client in self._idle if client.address == address]
        for client in old:
            await client.close()
        for number, client in enumerate(self._idle):
            if client.address == address:
                return self._idle.pop(number)
        return NodeClient(address, self._open_stream, client_id=self._client_id, software_version=__version__)


def _unwrapped(answer: Any) -> bytes:
    """The reply inside an Envelope's response; raises as `ControllerChannel.forward`."""
    code = answered_error(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection("the active controller does not have this version of the request")
    if code is not ErrorCode.NONE or answer.response_data is None:
        # Errors of the envelope mean nothing to the client, which did not send one.
        log.warning("the active controller refused a forwarded request: %s", code.name)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    data: bytes = answer.response_data
    return data


def not_active_code(api_key: int) -> ErrorCode:
    """Error code by which a controller's response to this API says that it is not the active controller."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if api_key == ApiKey.DESCRIBE_QUORUM else _MOVED
