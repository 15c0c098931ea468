"""A listener: binds its port, accepts connections within the limits, closes idle ones."""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.config.listener_addresses import host_and_port
from pykbroker.network.connection import SocketConnection
from pykbroker.network.connection_limits import ConnectionLimits
from pykbroker.network.connection_loop import ConnectionLoop
from pykbroker.network.request_memory import RequestMemory, limit_bytes
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from pykbroker.security.principals import (
    PLAINTEXT,
    AuthenticationContext,
    CheckedPrincipalBuilder,
    PrincipalBuilderFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykbroker.network.connection import Connection
    from pykbroker.network.listening_socket import ListeningSocket
    from pykbroker.network.reply import Connected
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.sasl import SaslSession
    from pykbroker.security.tls.listener_tls import ListenerTls

log = logging.getLogger(__name__)

ACCEPT_PAUSE_S = 0.1
"""Pause in seconds after accept failed because descriptors or memory ran out; clients wait in the backlog meanwhile."""

ACCEPTS_PER_TURN = 16
"""Connections that are accepted in a row before other tasks get their turn."""

BUFFER_KEPT_S = 30.0
"""Seconds without a request after which a connection's receive buffer shrinks to the smallest size."""

HANDSHAKE_CHECK_S = 2.0
"""Seconds between two checks of a listener with TLS or SASL for clients that take too long to authenticate."""

LOGIN_TIMEOUT_S = 60.0
"""Seconds from the accepted connection to the end of its SASL login, even if bytes arrive meanwhile (P-290)."""

_BUSY_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

PORT_MAX = 65535


class BindError(Exception):
    """A listener's address cannot be bound; the text names the address and the remedy."""


class ListenerLimits:
    """Limits that the listeners of one broker share: the number of connections and the memory of their requests."""

    __slots__ = ("connections", "request_memory")

    def __init__(self, services: NodeServices) -> None:
        self.connections = ConnectionLimits(lambda: services.metadata.config, services.quotas)
        self.request_memory = RequestMemory(limit_bytes(services.config))


class Listener:
    """One named listener: its listening sockets and its connections.

    Args:
        name: the listener's name, such as ``PLAINTEXT``.
        sockets: bound non-blocking sockets, from `bind` or from the `Host` of a simulation.
        services: services of the handlers.
        make_sasl: makes the SASL exchange of a connection; None for a listener without authentication.
        limits: the limits that all listeners of the broker share; new ones by default.
        kind: BROKER or CONTROLLER, which decides the APIs that are served.
        tls: certificates and trust; None for a listener without TLS.
    """

    def __init__(
        self,
        name: str,
        sockets: Sequence[ListeningSocket],
        services: NodeServices,
        make_sasl: Callable[[], SaslSession] | None = None,
        limits: ListenerLimits | None = None,
        kind: ListenerKind = ListenerKind.BROKER,
        tls: ListenerTls | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.sockets = sockets
        self.connections: set[Connection] = set()
        self._loop = ConnectionLoop()
        # Time of acceptance of those that have not authenticated, oldest first, as far as the last check has seen.
        self._unauthenticated: dict[Connection, float] = {}
        self._services = services
        self._make_sasl = make_sasl
        self._tls = tls
        self._limits = limits or ListenerLimits(services)
        self._limits.connections.add_listener(self)

    @property
    def port(self) -> int:
        port: int = self.sockets[0].getsockname()[1]
        return port

    def open(self) -> None:
        """Opens the port. Clients can connect from now on, so every handler must be able to answer.

        Raises:
            BindError: another process has opened the port since it was bound.
        """
        for listening in self.sockets:
            try:
                listening.listen(self._services.config.sockets.listen_backlog_size)
            except OSError as error:
                host, port = listening.getsockname()[:2]
                raise BindError(_cannot_listen(host, port, error)) from None

    async def serve(self, connection_nursery: trio.Nursery) -> None:
        """Accepts on all sockets until it is cancelled; connections are served by tasks of `connection_nursery`."""
        connection_nursery.start_soon(self._serve_connections)
        try:
            async with trio.open_nursery() as nursery:
                for listening in self.sockets:
                    nursery.start_soon(self._accept, listening, connection_nursery)
                if self._authenticates:
                    nursery.start_soon(self._close_unauthenticated)
        finally:
            for listening in self.sockets:
                if isinstance(listening, socket.socket):
                    trio.lowlevel.notify_closing(listening)
                listening.close()

    async def _serve_connections(self) -> None:
        try:
            await self._loop.run()
        finally:
            for connection in list(self.connections):
                connection.end()

    async def _accept(self, listening: ListeningSocket, connection_nursery: trio.Nursery) -> None:
        limits = self._limits.connections
        accepted = 0
        while True:
            await limits.wait_for_slot(self)
            try:
                connected, address = listening.accept()
            except BlockingIOError:
                accepted = 0
                await _wait_readable(listening)
            except OSError as error:
                if error.errno in _BUSY_ERRORS:
                    log.warning("listener %s cannot accept connections for now: %s", self.name, error)
                    await trio.sleep(ACCEPT_PAUSE_S)
                else:
                    # Other errors belong to one connection, which ended before it was accepted. There may be many.
                    await trio.lowlevel.checkpoint()
            else:
                accepted += 1
                try:
                    await limits.throttle_creation(self)
                    if accepted % ACCEPTS_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()
                except trio.Cancelled:
                    _close_unserved(connected, connection_nursery)
                    raise
                self._start(connected, address, listening, connection_nursery)

    def _start(
        self, connected: Connected, address: tuple[str, int], listening: ListeningSocket, nursery: trio.Nursery
    ) -> None:
        """Has the connection served, or closes it when a limit refuses it."""
        host = address[0]
        throttle_ms = self._limits.connections.address_throttle_ms(self, host)
        if throttle_ms:
            log.debug(
                "closing a connection from %s in %d ms: its address exceeds its connection rate", host, throttle_ms
            )
            nursery.start_soon(_drop_later, connected, nursery, throttle_ms / 1000)
            return
        refused = self._limits.connections.admit(self, host)
        if refused is not None:
            log.warning("listener %s refuses a connection from %s: %s", self.name, host, refused)
            _close_unserved(connected, nursery)
            return
        try:
            local = self._prepare(connected) if isinstance(connected, socket.socket) else listening.getsockname()
        except OSError:
            _close_unserved(connected, nursery)
            self._limits.connections.leave(host)
            return
        sasl = self._make_sasl() if self._make_sasl is not None else None
        info = ConnectionInfo(self.name, (host, address[1]), (local[0], local[1]), sasl, self.kind)
        if sasl is None and self._tls is None and self._services.principal_builder is not None:
            try:
                info.principal = self._built_principal(self._services.principal_builder, info)
            except PrincipalBuilderFailed as error:
                log.warning("closing the connection from %s: %s", host, error)
                _close_unserved(connected, nursery)
                self._limits.connections.leave(host)
                return
        shared = (
            info,
            self._services.config.sockets.request_max_bytes,
            self._limits.request_memory,
            self._remove_connection,
        )
        if not isinstance(connected, socket.socket):
            assert self._tls is None, "TLS needs sockets"
            from pykbroker.network.stream_connection import StreamConnection

            of_stream = StreamConnection(self._services, connected, *shared)
            nursery.start_soon(of_stream.run)
            self._add(of_stream)
            return
        if self._tls is None:
            connection = SocketConnection(self._services, connected, *shared)
        else:
            from pykbroker.network.tls_connection import TlsConnection

            connection = TlsConnection(self._services, connected, *shared, tls=self._tls)
        self._loop.add(connection)
        self._add(connection)

    def _built_principal(self, builder: CheckedPrincipalBuilder, info: ConnectionInfo) -> str:
        """The principal of a client without TLS and SASL: the builder may go by listener and address (P-331)."""
        return builder.build(AuthenticationContext(self.name, info.client_host, PLAINTEXT, info.principal, {}))

    @property
    def _authenticates(self) -> bool:
        return self._tls is not None or self._make_sasl is not None

    def _add(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._authenticates:
            self._unauthenticated[connection] = trio.current_time()

    async def _close_unauthenticated(self) -> None:
        """Closes connections whose TLS handshake or first login takes too long, also those that still send bytes."""
        while True:
            await trio.sleep(HANDSHAKE_CHECK_S)
            now = trio.current_time()
            for connection, accepted in list(self._unauthenticated.items()):
                if connection.is_authenticated:
                    del self._unauthenticated[connection]
                elif (reason := connection.lateness(now)) is not None:
                    connection.close(reason)
                elif now - accepted > LOGIN_TIMEOUT_S:
                    connection.close(f"its login took longer than {LOGIN_TIMEOUT_S:.0f} s")

    def _prepare(self, connected: socket.socket) -> Any:
        """Sets the options of a connection's socket; returns its local address. Raises OSError."""
        config = self._services.config
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Kafka's default of 100 KiB would slow sendfile: the system sizes the buffers unless the settings give a size.
        for key, option, size in (
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, config.sockets.send_buffer_bytes),
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, config.sockets.receive_buffer_bytes),
        ):
            if key in config.static_properties and size > 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)
        return connected.getsockname()

    def _remove_connection(self, connection: Connection) -> None:
        if isinstance(connection, SocketConnection):
            self._loop.remove(connection)
        self.connections.discard(connection)
        self._unauthenticated.pop(connection, None)
        self._limits.connections.leave(connection.info.client_host)

    def close_idle(self, used_before: float) -> None:
        """Closes the connections that have received nothing since `used_before`, in seconds of trio's clock (P-11)."""
        for connection in list(self.connections):
            if connection.last_used < used_before and not connection.is_sending:
                connection.close()

    def shrink_idle(self) -> None:
        """Shrinks the receive buffers of connections that have received nothing for `BUFFER_KEPT_S`."""
        quiet_since = trio.current_time() - BUFFER_KEPT_S
        for connection in self.connections:
            if connection.last_used < quiet_since:
                connection.shrink()


async def _wait_readable(listening: Any) -> None:
    if isinstance(listening, socket.socket):
        await trio.lowlevel.wait_readable(listening)
    else:
        await listening.wait_readable()


def _close_unserved(connected: Connected, nursery: trio.Nursery) -> None:
    """Closes a connection before anything was read or written."""
    if isinstance(connected, socket.socket):
        connected.close()
    else:
        nursery.start_soon(trio.aclose_forcefully, connected)


async def _drop_later(connected: Connected, nursery: trio.Nursery, delay_s: float) -> None:
    """Closes a connection that is not served after a delay, so that its client does not try again at once."""
    try:
        await trio.sleep(delay_s)
    finally:
        _close_unserved(connected, nursery)


def bind(host: str, port: int) -> list[socket.socket]:
    """Non-blocking sockets bound to a host name; "" binds every address. `Listener.open` makes them listen.

    A name such as ``localhost`` gives one socket per address, all on the same port, also when `port` is 0.

    Raises:
        BindError: the name is unknown, or the port is taken or out of range.
    """
    if not 0 <= port <= PORT_MAX:
        raise BindError(f"cannot listen on {host_and_port(host or '*', port)}: port out of range")
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            try:
                listening = socket.socket(family, kind, protocol)
            except OSError as error:
                # A system without IPv6 may still resolve localhost to ::1.
                if error.errno == errno.EAFNOSUPPORT and sockets:
                    continue
                raise
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound_port = sockets[0].getsockname()[1] if len(sockets) > 1 else port
            try:
                listening.bind((address[0], bound_port, *address[2:]))
            except OSError as error:
                # The same happens where IPv6 exists and is switched off; one working address is enough.
                if error.errno == errno.EADDRNOTAVAIL and (len(sockets) > 1):
                    sockets.pop().close()
                    continue
                raise
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise BindError(_cannot_listen(host or "*", port, error)) from None
    return sockets


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    where = f"cannot listen on {host_and_port(host, port)}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use; stop what uses it, or choose another (--port 0 takes a free one)"
    return f"{where}: {error.strerror or error}"


def _addresses(host: str, port: int) -> list[Any]:
    # As bytes a name is not converted by Python's codec for international names, which is not loaded then.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: --port-file contains its port, and some clients try only the first address.
    return sorted(set(found), key=lambda entry: (entry[0] != socket.AF_INET, entry[4]))
