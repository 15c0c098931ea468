"""The client at the other end of a connection: its address, its principal, and the listener that it dialled."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.security.sasl import SaslSession


class ListenerKind(Enum):
    """A broker's listener or a controller's."""

    BROKER = "broker"
    CONTROLLER = "controller"

    # Enum's own is Python code, and every request looks its API up by this.
    __hash__ = object.__hash__


class ConnectionInfo:
    """The client at the other end of a connection, and the address that it dialled.

    Attributes:
        listener_name, listener_kind: name of the listener, such as ``PLAINTEXT``, and whose it is.
        client_host, client_port: the client's address.
        local_host, local_port: the address the client reached us by; what Metadata advertises when no
            ``advertised.listeners`` is set.
        principal: ``User:ANONYMOUS`` until a SASL exchange says otherwise.
        sasl: the SASL exchange on listeners that require one, else None.
        close_reason: set by a handler after whose answer the connection must end; goes into the log.
        when_closed: set by a handler that wants to hear of the connection's end; called once.
    """

    __slots__ = (
        "client_host",
        "client_port",
        "close_reason",
        "listener_kind",
        "listener_name",
        "local_host",
        "local_port",
        "principal",
        "sasl",
        "when_closed",
    )

    def __init__(
        self,
        listener_name: str,
        client_address: tuple[str, int],
        local_address: tuple[str, int],
        sasl: SaslSession | None,
        listener_kind: ListenerKind = ListenerKind.BROKER,
    ) -> None:
        self.listener_name = listener_name
        self.listener_kind = listener_kind
        self.client_host, self.client_port = client_address
        self.local_host, self.local_port = local_address
        self.principal = "User:ANONYMOUS"
        self.close_reason: str | None = None
        self.when_closed: Callable[[], None] | None = None
        self.sasl = sasl
