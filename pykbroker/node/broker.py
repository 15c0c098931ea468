"""The composition root: builds the parts of one node in order, runs their tasks, and closes the parts when these end.

A node is a broker, a controller, or both (`process.roles`). A start has these steps: file descriptors and addresses (so
that a taken port is reported at once), data directory, this process's part in the metadata quorum, the controllers'
port, and the broker (`broker_server`): registration, logs, coordinators, its ports. A port opens only when its requests
can be answered.

A stop is a cancellation of all tasks together. It interrupts only waits: every change of state is synchronous, so the
logs are consistent. Then the coordinators stop, the logs are flushed and closed, then the controller, its connections
and the listening sockets. A node whose `stop` is set hands over its leaderships before that.
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.config.listener_addresses import is_every_address
from pykbroker.config.parsing import listeners_with_tls
from pykbroker.logstore.log_directory import CLEAN_SHUTDOWN, LogDirectory
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.named_tuple import NamedTuple
from pykbroker.node.broker_server import BrokerServer
from pykbroker.node.host import Host
from pykbroker.node.node_directory import identify, open_directories, raise_descriptor_limit
from pykbroker.node.node_parts import NodeParts
from pykbroker.node.quorum_node import StoppedEarly, ask_cluster_id, is_quorum_gone, make_quorum_node
from pykbroker.quotas.switch import QuotaSwitch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.meta_properties import MetaProperties
    from pykbroker.network.listening_socket import BoundListener
    from pykbroker.node.controller_server import ControllerServer
    from pykbroker.protocol.fields import Message

log = logging.getLogger(__name__)

DESCRIPTORS_KEPT = 4096
"""Largest number of open segment files, if the process's limit allows it; other descriptors are for connections."""

CHECK_INTERVAL_S = 0.1
"""Seconds between two checks if another voter can lead, while this node gives up the leadership of the quorum."""


class ReadyAddress(NamedTuple):
    """Address of the first listener of a node that is ready, for clients on this machine."""

    host: str
    port: int


async def run_broker(
    config: BrokerConfig,
    *,
    cluster_id: str | None = None,
    on_ready: Callable[[ReadyAddress], None] = lambda address: None,
    host: Host | None = None,
    stop: trio.Event | None = None,
) -> None:
    """Runs a node until it is cancelled or `stop` is set, then stops it in order.

    Args:
        config: settings of the node; its directories are created and formatted when they are empty.
        cluster_id: id for a new cluster, 22 characters; `node_directory` describes the default. The id of an existing
            directory must be the same.
        on_ready: called once, when every request can be answered, with the address of the first listener: for clients,
            or on a node that is only a controller for other nodes.
        host: the machine; the real one by default.
        stop: event. When it is set, the node hands over its leaderships, as far as other nodes can take them, and
            returns.

    Raises:
        ConfigError: a key store or trust store cannot be used.
        BindError: a listener's address cannot be bound.
        StorageError: the data directory cannot be used; the text names the file and the defect.
        RegistrationFailed, ClusterUnknown: the cluster refused this broker, or no controller answered.
    """
    host = _with_tls(host or Host.real(), config)
    descriptor_limit = raise_descriptor_limit()
    bound: list[BoundListener] = []
    directory: LogDirectory | None = None
    directories: LogDirectories | None = None
    try:
        bound += ((address, host.bind(address.host, address.port)) for address in config.network.all_listeners)
        open_file_limit = min(DESCRIPTORS_KEPT, descriptor_limit // 4) // len(config.log.dirs)
        directory = LogDirectory.open(
            config.log.metadata_dir or config.log.dirs[0],
            filesystem=host.filesystem,
            open_file_limit=open_file_limit,
        )
        ask = partial(ask_cluster_id, config, host, trio.Event() if stop is None else stop)
        is_new = directory.meta_properties() is None
        identity = await identify(directory, config, cluster_id, host.random, ask)
        if config.log.dirs != (directory.path,) and config.is_broker:
            directories = open_directories(config, directory, identity, host, open_file_limit, is_new=is_new)
        logs = directory if directories is None else directories
        await _run_in_directory(config, bound, directory, logs, identity, host, on_ready, stop)
    except StoppedEarly:  # pragma: no cover: in a process that waits for its cluster
        pass
    finally:
        for _, sockets in bound:
            for listening in sockets:
                listening.close()
        if directory is not None:
            directory.abandon()
        if directories is not None:
            directories.abandon()


async def _run_in_directory(
    config: BrokerConfig,
    bound: list[BoundListener],
    directory: LogDirectory,
    log_directories: LogDirectory | LogDirectories,
    identity: MetaProperties,
    host: Host,
    on_ready: Callable[[ReadyAddress], None],
    stop: trio.Event | None,
) -> None:
    quorum = make_quorum_node(config, directory, identity, host)
    controller = quorum.controller
    # The controller writes before the other logs are opened, so the mark of the last clean stop goes now.
    directory.filesystem.remove(f"{directory.path}/{CLEAN_SHUTDOWN}")
    controller.open(is_clean=directory.was_clean)
    metadata = MetadataCache(config, config.node_id, controller.image)
    controller.subscribe(metadata.apply)
    quotas = QuotaSwitch(config)
    quotas.apply(None, controller.image)
    controller.subscribe(quotas.apply, quotas.prepare)
    parts = NodeParts(
        config, host, directory, log_directories, identity, controller, quorum.peers, metadata, quotas, []
    )
    for_clients = [listener for listener in bound if listener[0] in config.network.listeners]
    for_nodes = [listener for listener in bound if listener[0] in config.network.controller_listeners]
    local = LocalController(parts, for_nodes)
    broker = BrokerServer(parts, for_clients, local.call) if config.is_broker else None
    try:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if host.tls is not None:  # pragma: no cover: TLS is tested with processes
                    from pykbroker.node.certificates import keep_up_to_date

                    keep_up_to_date(host.tls, controller, metadata, nursery)
                quotas.begin(nursery)
                if stop is not None:
                    nursery.start_soon(_stop_when_asked, stop, broker, parts, scope)
                await nursery.start(controller.run)
                if config.is_controller and config.metadata_log.max_idle_interval_ms:
                    from pykbroker.controller.idle_records import write_no_ops

                    nursery.start_soon(write_no_ops, controller, config.metadata_log.max_idle_interval_ms)
                if quorum.peers is not None:
                    nursery.start_soon(quorum.peers.run)
                    await nursery.start(local.server.run)
                if broker is not None:
                    await broker.start(nursery)
                on_ready(_address_of((for_clients or for_nodes)[0]))
        _close(parts, broker)
    except BaseException as error:
        # After any other error there is no mark of a clean stop, and the next start recovers every log.
        if _is_cancellation(error):
            _close(parts, broker)
        raise
    finally:
        controller.close()
        with trio.CancelScope(shield=True):
            for channel in parts.channels:
                await channel.close()


def _with_tls(host: Host, config: BrokerConfig) -> Host:
    """The host with the certificates of the node, if one of its listeners or connections has TLS."""
    if not listeners_with_tls(config):
        return host
    from pykbroker.security.tls.node_tls import NodeTls

    return host._replace(tls=NodeTls(config))


class LocalController:
    """The controller of this process: called by its own broker and, where there are other nodes, served on a port."""

    def __init__(self, parts: NodeParts, for_nodes: list[BoundListener]) -> None:
        self._parts = parts
        self._for_nodes = for_nodes

    @cached_property
    def server(self) -> ControllerServer:
        """The server, made at its first use: a single broker in a test rarely sends a request to its controller."""
        from pykbroker.node.controller_server import ControllerServer

        return ControllerServer(self._parts, () if self._parts.peers is None else self._for_nodes)

    async def call(self, message: Message) -> Any:
        """Response of the controller in this process to a request of its own broker."""
        return await self.server.call(message)


async def _stop_when_asked(
    stop: trio.Event, broker: BrokerServer | None, parts: NodeParts, scope: trio.CancelScope
) -> None:
    """Waits for `stop`, hands over leaderships, then cancels `scope`.

    Leaderships of partitions go first, because that needs an active controller; leadership of the quorum goes last.
    """
    await stop.wait()
    if broker is not None:
        await broker.leave()
    if parts.peers is not None and parts.controller.is_leader:
        await _hand_over_leadership(parts)
    scope.cancel()


async def _hand_over_leadership(parts: NodeParts) -> None:
    """Hands the leadership of the quorum to another voter, if one answers."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_when_alone, parts, nursery.cancel_scope)
        await parts.controller.hand_over(parts.config.quorum.fetch_timeout_ms)
        nursery.cancel_scope.cancel()


async def _cancel_when_alone(parts: NodeParts, scope: trio.CancelScope) -> None:
    while not is_quorum_gone(parts):  # noqa: ASYNC110  the return of a voter sets no event
        await trio.sleep(CHECK_INTERVAL_S)
    scope.cancel()


def _close(parts: NodeParts, broker: BrokerServer | None) -> None:
    """Closes the logs and marks a clean stop; the logs of a broker that never finished its start were not opened."""
    if broker is None:
        parts.directory.close()
    elif broker.is_started:
        broker.close()
        if parts.directory.path not in parts.config.log.dirs:
            parts.directory.close()


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    return isinstance(error, trio.Cancelled)


def _address_of(bound: BoundListener) -> ReadyAddress:
    """Address of a listener, for clients on this machine."""
    address: ListenerAddress = bound[0]
    port: int = bound[1][0].getsockname()[1]
    return ReadyAddress("localhost" if is_every_address(address.host) else address.host, port)
