"""The controller's port of a node: its listeners and the services of their handlers.

Broker and controller of one process share metadata and quorum, nothing else: handlers of this port get
`ControllerServices`, which have no partitions and no coordinators.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.controller.active_controller import ActiveController, ActiveControllerSettings
from pykbroker.errors import KafkaError
from pykbroker.metadata.advertised_listeners import controller_endpoints
from pykbroker.network.listener import Listener, ListenerLimits
from pykbroker.network.listening_socket import bound_ports
from pykbroker.node.controller_registration import ControllerRegistration
from pykbroker.node.housekeeping import start_controller_housekeeping
from pykbroker.node.node_parts import make_authorizer, make_principal_builder, sasl_maker, tls_of
from pykbroker.node.quorum_node import make_channel
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.context import ControllerServices, NodeServices, RequestContext
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import Endpoint
    from pykbroker.network.listening_socket import BoundListener
    from pykbroker.node.host import Host
    from pykbroker.node.node_parts import NodeParts
    from pykbroker.protocol.fields import Message


PROBE_TIMEOUT_S = 1.0


def controller_services(parts: NodeParts, active_controller: ActiveController | None) -> ControllerServices:
    """Services of the handlers on a controller's listener."""
    node = NodeServices(
        config=parts.config,
        cluster_id=parts.identity.cluster_id,
        node_id=parts.config.node_id,
        metadata=parts.metadata,
        controller=parts.controller,
        log_directory=parts.directory,
        clock=parts.host.clock,
        random=parts.host.random,
        run_in_thread=parts.host.run_in_thread,
        authorizer=make_authorizer(parts.config, parts.metadata),
        quotas=parts.quotas,
        principal_builder=make_principal_builder(parts.config),
        tls=parts.host.tls,
    )
    return ControllerServices(node, peers=parts.peers, active_controller=active_controller)


class ControllerServer:
    """The controller of a node; `run` serves its port.

    Args:
        parts: parts of the node.
        bound: listeners for other nodes; none on a single broker.
    """

    def __init__(self, parts: NodeParts, bound: Sequence[BoundListener]) -> None:
        self._parts = parts
        # A node without peers has only its own broker, which sends no heartbeats.
        is_watching = parts.config.is_controller and parts.peers is not None
        refuses = partial(_refuses, parts.host) if parts.config.broker.session_end_on_refusal else None
        self._active = ActiveController(parts.controller, _settings(parts.config), refuses) if is_watching else None
        self._services = controller_services(parts, self._active)
        limits = ListenerLimits(self._services)
        self._listeners = [
            Listener(
                address.name,
                sockets,
                self._services,
                sasl_maker(parts, address, is_controller=True),
                limits,
                ListenerKind.CONTROLLER,
                tls_of(parts, address),
            )
            for address, sockets in bound
        ]
        self._registration: ControllerRegistration | None = None
        if bound:
            endpoints = controller_endpoints(parts.config, bound_ports(bound))
            channel = make_channel(parts, self.call, "controller-registration")
            self._registration = ControllerRegistration(
                parts.config.node_id, endpoints, parts.controller, channel, parts.host
            )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Opens the ports, serves, and does the duties of the active controller, until it is cancelled."""
        async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
            if self._active is not None:
                await accepting.start(self._active.run)
            for listener in self._listeners:
                listener.open()
                accepting.start_soon(listener.serve, connections)
            start_controller_housekeeping(accepting, self._services, self._listeners)
            if self._registration is not None:
                self._parts.controller.subscribe(self._registration.on_metadata_change)
                accepting.start_soon(self._registration.run)
            task_status.started()

    async def call(self, message: Message) -> Any:
        """Response of the controller in this process to a request of its own broker, without authorization.

        Raises:
            KafkaError: UNSUPPORTED_VERSION: the controller's port does not serve this API.
        """
        return await call(self._services.without_authorizer(), message)


async def call(services: ControllerServices, message: Message) -> Any:
    """Response of the handler of a controller's port with these services, called directly."""
    from pykbroker.requests.api_table import CONTROLLER_APIS
    from pykbroker.requests.invocation import failed, load

    api = CONTROLLER_APIS.get(message.KEY)
    if api is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve {type(message).__name__}")
    _, handler = load(api, ListenerKind.CONTROLLER)
    info = ConnectionInfo("", ("localhost", 0), ("localhost", 0), None, ListenerKind.CONTROLLER)
    context = RequestContext(services, info, api.key, api.highest, 0, "local")
    try:
        return await handler(context, message)
    except Exception as error:
        return failed(context, message, error)


async def _refuses(host: Host, endpoint: Endpoint) -> bool:
    """True if the machine refuses the connection, because nothing listens on the port."""
    from pykbroker.controller.node_client import is_refused

    with trio.move_on_after(PROBE_TIMEOUT_S):
        try:
            stream = await host.open_stream(endpoint.host, endpoint.port)
        except OSError as error:
            return is_refused(error)
        await trio.aclose_forcefully(stream)
    return False


def _settings(config: BrokerConfig) -> ActiveControllerSettings:
    is_balancing = config.replication.auto_leader_rebalance_enable
    return ActiveControllerSettings(
        session_timeout_ms=config.broker.session_timeout_ms,
        heartbeat_interval_ms=config.broker.heartbeat_interval_ms,
        balance_interval_ms=config.replication.leader_imbalance_check_interval_seconds * 1000 if is_balancing else 0,
        unclean_interval_ms=config.replication.unclean_leader_election_interval_ms,
        local_broker_id=config.node_id if config.is_alone and config.is_broker else None,
    )
