"""Addresses that clients and other nodes are told of a node's listeners: from its settings and the ports it has bound.

As in Kafka it is the host of `advertised.listeners`, where that is not set the host of `listeners`, and for port 0 the
port that was bound. So every node of a cluster says the same of each, whatever address a client has dialled.

A listener on every address has no host that could be told. Kafka tells the name of the machine for an empty host, and
refuses to start with 0.0.0.0; here both get the name of the machine. One case differs: a broker that is
its whole cluster tells each client the address which that client has dialled (`MetadataCache.endpoint`). That address
works for that client, from inside and from outside a container or virtual machine, where the machine's name often means
nothing. Several brokers cannot do so: none of them knows at which address a client reaches another one, and a client
that hears different addresses of a broker connects anew each time.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pykbroker.config.listener_addresses import host_and_port, is_every_address
from pykbroker.controller.metadata.image import Endpoint
from pykbroker.controller.raft.quorum import VoterEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress


class BoundSocket(Protocol):
    """The part of a listening socket that is asked here."""

    def getsockname(self) -> Any:
        """(host, port, ...)."""


Bound: TypeAlias = "tuple[ListenerAddress, Sequence[BoundSocket]]"
"""A listener as configured, with the sockets that it has bound: one for each address of its host."""

log = logging.getLogger(__name__)


def broker_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Listeners that clients are told of, as configured: that for other brokers first, as in Kafka's registrations."""
    told = list(config.network.advertised_listeners.values()) or list(config.network.listeners)
    inter_broker = config.network.inter_broker_listener
    return sorted(told, key=lambda address: address.name != inter_broker)


def broker_endpoints(config: BrokerConfig, bound: Iterable[Bound]) -> list[Endpoint]:
    """Addresses with which a broker registers. `bound`: its listeners with their sockets."""
    ports = _bound_ports(bound)
    endpoints = [_endpoint(address, ports) for address in broker_listeners(config)]
    for address, endpoint in zip(broker_listeners(config), endpoints, strict=True):
        if is_every_address(address.host) and not config.is_alone:
            log.info(
                "listener %s is on every address: clients and other nodes are told %s, the name of this machine; "
                "advertised.listeners can name another host",
                endpoint.name,
                host_and_port(endpoint.host, endpoint.port),
            )
    return endpoints


def controller_endpoints(config: BrokerConfig, bound: Iterable[Bound]) -> list[Endpoint]:
    """Addresses with which a controller registers. `bound`: its listeners with their sockets."""
    ports = _bound_ports(bound)
    return [_endpoint(address, ports) for address in _controller_listeners(config)]


def voter_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """Addresses at which the other nodes of the quorum reach this one; none for a broker and for a node alone."""
    endpoints = [
        VoterEndpoint(address.name.upper(), told_host(address), address.port)
        for address in _controller_listeners(config)
        if address.port
    ]
    configured = config.quorum.voters.get(config.node_id)
    if configured is not None and configured[1] and endpoints:
        # The others dial what their settings say of this node.
        endpoints[0] = VoterEndpoint(endpoints[0].name, *configured)
    return tuple(endpoints)


def _controller_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """As advertised, else as configured. A first one on every address is where `controller.quorum.voters` has it."""
    told = [
        config.network.advertised_controller_listeners.get(own.name, own) for own in config.network.controller_listeners
    ]
    configured = config.quorum.voters.get(config.node_id)
    if told and told[0].name not in config.network.advertised_controller_listeners and configured is not None:
        host, port = configured
        if port and is_every_address(told[0].host):
            told[0] = told[0]._replace(host=host, port=port)
    return told


def _bound_ports(bound: Iterable[Bound]) -> dict[str, int]:
    return {address.name: sockets[0].getsockname()[1] for address, sockets in bound}


def _endpoint(address: ListenerAddress, ports: dict[str, int]) -> Endpoint:
    port = address.port or ports[address.name]
    return Endpoint(address.name, told_host(address), port, address.security_protocol_id)


def told_host(address: ListenerAddress) -> str:
    """Host that is told of a listener: as configured, else the name of this machine."""
    return socket.gethostname() if is_every_address(address.host) else address.host
