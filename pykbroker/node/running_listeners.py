"""RunningListeners: the listeners of a broker, those of its start and those that are added while it runs (P-484).

As in Kafka's DynamicListenerConfig a change of `listeners` closes the listeners whose names are gone, with their
connections, and opens those with new names. Another address under the same name has no effect. The broker's
registration stays that of the start, so a client of an added listener finds no brokers in the metadata.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.config.definitions import ConfigError
from pykbroker.network.listener import BindError, Listener, ListenerLimits
from pykbroker.node.node_parts import sasl_maker, tls_of, with_builder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.network.listening_socket import BoundListener, ListeningSocket
    from pykbroker.node.node_parts import NodeParts
    from pykbroker.requests.context import BrokerServices
    from pykbroker.security.tls.node_tls import NodeTls

log = logging.getLogger(__name__)


class RunningListeners:
    """The listeners of one broker. `run` serves them; `on_metadata_change` is a subscriber of the metadata.

    Args:
        parts: parts of the node.
        services: services of the handlers.
        bound: the listeners of the start.

    Attributes:
        listeners: those that are open now.
    """

    def __init__(self, parts: NodeParts, services: BrokerServices, bound: Sequence[BoundListener]) -> None:
        self._parts = parts
        self._services = services
        self._limits = ListenerLimits(services)
        self._scopes: dict[str, trio.CancelScope] = {}
        self._settings_changed = trio.Event()
        self._seen: BrokerConfig = parts.config
        self.listeners = [self._make(parts, address, sockets) for address, sockets in bound]

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Applies changed limits, and has changed listeners applied."""
        self._limits.connections.settings_changed()
        if old.configs is not new.configs:
            self._settings_changed.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Opens the ports and serves until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for listener in self.listeners:
                listener.open()
                self._begin(listener, nursery)
            self._apply(nursery)
            task_status.started()
            while True:
                await self._settings_changed.wait()
                self._settings_changed = trio.Event()
                self._apply(nursery)

    def _begin(self, listener: Listener, nursery: trio.Nursery) -> None:
        scope = self._scopes[listener.name] = trio.CancelScope()
        nursery.start_soon(_serve, listener, scope)

    def _make(self, parts: NodeParts, address: ListenerAddress, sockets: Sequence[ListeningSocket]) -> Listener:
        sasl = sasl_maker(parts, address, is_controller=False)
        return Listener(address.name, sockets, self._services, sasl, self._limits, tls=tls_of(parts, address))

    def _apply(self, nursery: trio.Nursery) -> None:
        """Removes and adds listeners, if the settings have changed."""
        config = self._services.metadata.config
        if config is self._seen:
            return
        self._seen = config
        wanted = {address.name: address for address in config.network.listeners}
        for listener in [running for running in self.listeners if running.name not in wanted]:
            self._remove(listener)
        open_names = {listener.name for listener in self.listeners}
        for name, address in wanted.items():
            if name not in open_names:
                self._add(address, config, nursery)

    def _remove(self, listener: Listener) -> None:
        log.info("listener %s is closed: the setting listeners no longer has it", listener.name)
        self._scopes.pop(listener.name).cancel()
        self.listeners.remove(listener)
        self._limits.connections.remove_listener(listener)

    def _add(self, address: ListenerAddress, config: BrokerConfig, nursery: trio.Nursery) -> None:
        """Opens a listener. One that cannot be opened is logged; it is tried again when a setting changes."""
        sockets: Sequence[ListeningSocket] = ()
        try:
            parts = self._parts._replace(config=config)
            if address.security_protocol.endswith("SSL"):
                parts = parts._replace(host=parts.host._replace(tls=self._tls_with(address.name, config, nursery)))
            sockets = self._parts.host.bind(address.host, address.port)
            listener = self._make(parts, address, sockets)
            builders = with_builder_of(address.name, config, self._services.principal_builder)
            listener.open()
        except (BindError, ConfigError) as error:
            for socket in sockets:
                socket.close()
            log.error("listener %s is not opened: %s", address.name, error)
            return
        self._services.principal_builder = builders
        self.listeners.append(listener)
        self._begin(listener, nursery)
        log.info("listener %s is opened on port %d", address.name, listener.port)

    def _tls_with(self, name: str, config: BrokerConfig, nursery: trio.Nursery) -> NodeTls:
        """The TLS of this node's listeners, with that of an added one.

        Raises:
            ConfigError: the listener's key store or trust store cannot be used.
        """
        tls = self._services.tls
        if tls is None:
            from pykbroker.node.certificates import keep_up_to_date
            from pykbroker.security.tls.node_tls import NodeTls

            tls = self._services.tls = NodeTls(config)
            keep_up_to_date(tls, self._parts.controller, self._parts.metadata, nursery)
        else:
            tls.add(name, config)
        return tls


async def _serve(listener: Listener, scope: trio.CancelScope) -> None:
    """Serves a listener and its connections until the scope or the task is cancelled."""
    with scope:
        async with trio.open_nursery() as connections:
            await listener.serve(connections)
