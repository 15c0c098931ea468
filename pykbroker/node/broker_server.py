"""The broker of a node: its registration, the tasks of its parts, and its ports, started in this order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.metadata.advertised_listeners import broker_endpoints
from pykbroker.network.listening_socket import bound_ports
from pykbroker.node.broker_registration import (
    Registration,
    refuse_unknown_features,
    register_again,
    register_at_once,
    report_cordoned_directories,
)
from pykbroker.node.broker_services import DirectoryTasks, Replication, directory_tasks, make_services
from pykbroker.node.housekeeping import high_watermarks, start_housekeeping, start_removal_of_tokens
from pykbroker.node.quorum_node import LocalCall, is_quorum_gone, make_channel
from pykbroker.node.running_listeners import RunningListeners
from pykbroker.requests.context import BrokerServices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.controller.metadata.image import Endpoint
    from pykbroker.network.listening_socket import BoundListener
    from pykbroker.node.node_parts import NodeParts


class BrokerServer:
    """The broker: call `start` with a nursery, `leave` before a stop, and `close` after the nursery's tasks have ended.

    Args:
        parts: parts of the node.
        bound: listeners for clients and other brokers.
        call: sends a request to the controller in this process.
    """

    def __init__(self, parts: NodeParts, bound: Sequence[BoundListener], call: LocalCall) -> None:
        self._parts = parts
        self._call = call
        self._bound = bound
        self._services: BrokerServices | None = None
        self._registration: Registration | None = None
        # None with one log directory.
        self._directories: DirectoryTasks | None = None

    @property
    def is_started(self) -> bool:
        """True once the logs are loaded."""
        return self._services is not None

    async def start(self, nursery: trio.Nursery) -> None:
        """Starts the broker's tasks in the nursery; returns when the broker serves clients.

        Raises:
            StorageError, RegistrationFailed: the broker cannot start.
        """
        parts = self._parts
        config, controller = parts.config, parts.controller
        endpoints = broker_endpoints(config, bound_ports(self._bound))
        if config.is_alone:
            refuse_unknown_features(config, controller.image, parts.directory)
        if parts.peers is None:
            await self._register_alone(nursery, endpoints)
        else:
            await self._register(nursery, endpoints)
        if parts.several_directories is not None:
            send_heartbeat = None if self._registration is None else self._registration.send_heartbeat_now
            self._directories = directory_tasks(parts, parts.several_directories, self._call, send_heartbeat)
        self._services, replication = make_services(parts, self._call, self._directories)
        await self._start_parts(nursery, self._services, replication)
        running = RunningListeners(parts, self._services, self._bound)
        parts.controller.subscribe(running.on_metadata_change)
        replicas = None if replication is None else replication.replicas
        start_housekeeping(nursery, self._services, running.listeners, replicas)
        if parts.peers is None:
            # With a controllers' port, `start_controller_housekeeping` starts this. A single node has no such port.
            start_removal_of_tokens(nursery, self._services)
        # Before the controller unfences this broker, so that clients that find it in the metadata can connect.
        await nursery.start(running.run)
        if self._registration is not None:
            await self._registration.serve()

    async def _register_alone(self, nursery: trio.Nursery, endpoints: Sequence[Endpoint]) -> None:
        """Registers the broker where no other node can reach its controller: no other broker will ever join."""
        parts = self._parts
        config, controller = parts.config, parts.controller
        registration = await register_at_once(
            controller,
            config,
            endpoints,
            parts.directory,
            parts.online_directory_ids(),
            parts.host,
            is_clean_restart=parts.log_directories.was_clean,
        )
        if controller.image.metadata_version < DIRECTORY_ASSIGNMENT:  # pragma: no cover: tested with processes
            nursery.start_soon(register_again, controller, registration)
        nursery.start_soon(report_cordoned_directories, controller, config.node_id, parts.cordoned_directory_ids)

    async def _register(self, nursery: trio.Nursery, endpoints: Sequence[Endpoint]) -> None:
        """Registers the broker with the active controller, and waits until it has the cluster's metadata."""
        parts = self._parts
        self._registration = Registration(
            parts.config,
            endpoints,
            parts.identity,
            parts,
            parts.controller,
            make_channel(parts, self._call, "heartbeat"),
            parts.host,
            parts.log_directories.clean_broker_epoch,
            partial(is_quorum_gone, parts),
        )
        parts.controller.subscribe(self._registration.on_metadata_change)
        nursery.start_soon(self._registration.run)
        await self._registration.caught_up()

    async def _start_parts(
        self, nursery: trio.Nursery, services: BrokerServices, replication: Replication | None
    ) -> None:
        """Starts the tasks of coordinators, replication and log directories."""
        await nursery.start(services.groups.runtime.run)
        await nursery.start(services.background.run)
        nursery.start_soon(services.producer_ids.run)
        # After the groups: completing a loaded transaction may commit or abort offsets of groups.
        await nursery.start(services.transactions.runtime.run)
        await nursery.start(services.share_state.runtime.run)
        await nursery.start(services.shares.run)
        if replication is not None:
            await nursery.start(replication.replicas.run)
            if replication.full_disk is not None:
                nursery.start_soon(replication.full_disk.run)
        if self._directories is not None:
            nursery.start_soon(self._directories.failed.run, services.partitions)
            nursery.start_soon(self._directories.reports.run)
        if services.directory_moves is not None:
            nursery.start_soon(services.directory_moves.run)

    async def leave(self) -> None:
        """Controlled shutdown: moves leaderships to other brokers, if there are any (`controlled.shutdown.enable`)."""
        if self._registration is not None and self._parts.config.broker.controlled_shutdown_enable:
            await self._registration.leave()

    def close(self) -> None:
        """Closes the logs and writes the mark of a clean stop."""
        services = self._services
        assert services is not None
        for coordinator in (services.groups, services.transactions, services.share_state):
            coordinator.runtime.stop()
        self._parts.log_directories.close(services.metadata.broker_epoch(), dict(high_watermarks(services)))
