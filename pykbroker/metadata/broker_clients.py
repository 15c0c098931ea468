"""BrokerClients: connections of this broker to other brokers, by broker id, over the inter-broker listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.controller.node_client import OpenStream


class BrokerClients:
    """Makes connections; the caller owns each one and closes it.

    Args:
        image: returns the newest metadata image.
        listener_name: name of the inter-broker listener (`inter.broker.listener.name`).
        open_stream: opens a connection.
        node_id: id of this broker, which is part of the client id.
    """

    def __init__(
        self, image: Callable[[], ClusterImage], listener_name: str, open_stream: OpenStream, node_id: int
    ) -> None:
        self._image = image
        self._listener_name = listener_name
        self._open_stream = open_stream
        self._node_id = node_id

    def connect(self, broker_id: int, purpose: str = "broker", *, lends: bool = False) -> NodeClient:
        """A client of another broker, which connects at its first request.

        Args:
            broker_id: id of the other broker.
            purpose: part of the client id.
            lends: the bytes of a response are valid only until the next request, which saves a copy.

        Raises:
            NodeUnreachable: the broker is not registered, is fenced, or has no inter-broker listener.
        """
        return NodeClient(
            self.address(broker_id),
            self._open_stream,
            client_id=f"{purpose}-{self._node_id}-{broker_id}",
            software_version=__version__,
            lends=lends,
        )

    def address(self, broker_id: int) -> NodeAddress:
        """Current address of a broker's inter-broker listener.

        Raises:
            NodeUnreachable: as `connect`.
        """
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            raise NodeUnreachable(f"broker {broker_id} is not registered")
        if broker.is_fenced:
            raise NodeUnreachable(f"broker {broker_id} is fenced")
        for endpoint in broker.endpoints:
            if endpoint.name == self._listener_name:
                return NodeAddress(endpoint.host, endpoint.port)
        raise NodeUnreachable(f"broker {broker_id} has no listener {self._listener_name}")
