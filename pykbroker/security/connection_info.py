"""ConnectionInfo: the client of a connection, with its address, principal and listener."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from pykbroker.protocol.headers import RequestHeader
    from pykbroker.security.sasl import SaslSession


class ReplyTimer(Protocol):
    """Measures the time that a reply takes."""

    def timed(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """Awaits a coroutine and measures the time in which it runs."""

    def count_rest(self) -> None:
        """Counts what was measured."""


class UnfinishedReply(Protocol):
    """An incomplete reply. Later requests of the connection may begin meanwhile; their replies are sent after it."""

    async def finish(self) -> list[Any]:
        """Waits until the reply is complete; returns its chunks."""
        ...


class RepeatedRequests(Protocol):
    """Serves requests that differ from earlier ones only in their records."""

    def serve(self, connection: ConnectionInfo, frame: memoryview) -> list[Any] | UnfinishedReply | None:
        """Chunks of the reply, also in waiting; None for a request that has to be served in full."""

    def note(self, frame: memoryview, header: RequestHeader, request: Any) -> None:
        """Notes a request that was served in full, for later ones like it."""


class ListenerKind(Enum):
    """Kind of a listener: of a broker or of a controller."""

    BROKER = "broker"
    CONTROLLER = "controller"

    # Enum.__hash__ is Python code, and every request needs the hash to find its API.
    __hash__ = object.__hash__


class ConnectionInfo:
    """The client of a connection, and the local address to which it is connected.

    Attributes:
        listener_name, listener_kind: name of the listener, such as ``PLAINTEXT``, and its kind.
        client_host, client_port: the client's address.
        local_host, local_port: local address of the connection; a single broker that listens on every address
            advertises it to this client.
        principal: ``User:ANONYMOUS`` until SASL authentication.
        is_forwarded: True for the client of a request in an Envelope (KIP-590).
        is_token_authenticated: True after a login by delegation token (KIP-48).
        repeated_produce: the Produce requests that are served like earlier ones; None before the first one.
        sasl: the SASL exchange on a listener that requires one, else None.
        muted_until: time on trio's clock until which no further request is read, as a quota is exceeded; 0 for none.
        timed: quota by which the sending of the present reply is timed; None for none.
        software_name, software_version: the client's library, from ApiVersions (KIP-511).
        close_reason: set by a handler to close the connection after its response; it is logged.
        follow_up: work of the present request that its reply does not wait for; None for none.
    """

    __slots__ = (
        "_closings",
        "client_host",
        "client_port",
        "close_reason",
        "follow_up",
        "is_forwarded",
        "is_token_authenticated",
        "listener_kind",
        "listener_name",
        "local_host",
        "local_port",
        "muted_until",
        "principal",
        "repeated_produce",
        "sasl",
        "software_name",
        "software_version",
        "timed",
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
        self.muted_until = 0.0
        self.timed: ReplyTimer | None = None
        self.is_forwarded = False
        self.is_token_authenticated = False
        self.close_reason: str | None = None
        self.follow_up: Callable[[], None] | None = None
        self._closings: dict[str, Callable[[], None]] | None = None
        self.sasl = sasl
        self.repeated_produce: RepeatedRequests | None = None
        self.software_name = self.software_version = "unknown"

    def after_reply(self, work: Callable[[], None]) -> None:
        """Has a part of the present request done once its reply is sent, before any other request is served.

        If the reply has to wait until the socket takes it, the work is done before that; also if the client is gone.
        The handler must not wait, or raise an exception, after this call.
        """
        assert self.follow_up is None, "a request has one follow-up"
        self.follow_up = work

    def run_follow_up(self) -> None:
        """Does the work of `after_reply`, if there is some."""
        work, self.follow_up = self.follow_up, None
        if work is not None:
            work()

    def when_closed(self, owner: str, callback: Callable[[], None]) -> None:
        """Registers a callback for the end of the connection; it replaces an earlier one of the same owner."""
        if self._closings is None:
            self._closings = {}
        self._closings[owner] = callback

    def call_when_closed(self) -> None:
        """Calls the callbacks of handlers."""
        closings, self._closings = self._closings, None
        for callback in () if closings is None else closings.values():
            callback()
