"""Advertised addresses of a node's listeners, from the settings and the bound ports.

As in Kafka, the host is that of `advertised.listeners`, or of `listeners` if the former is not set; port 0 becomes the
bound port. So every node of a cluster gives the same address of a listener to every client.

A listener on every address has no host of its own. Kafka advertises the name of the machine for an empty host, and
refuses to start with 0.0.0.0; here both are advertised as the name of the machine. A single broker is an exception: it
gives each client the address that this client has dialled (`MetadataCache.endpoint`). That address works inside and
outside a container or virtual machine, where the machine's name often cannot be resolved. Several brokers cannot do
this: a broker does not know the address at which a client reaches another broker, and a client reconnects each time it
gets another address for a broker.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from pykbroker.config.listener_addresses import host_and_port, is_every_address
from pykbroker.controller.metadata.image import Endpoint
from pykbroker.controller.raft.quorum import VoterEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress


log = logging.getLogger(__name__)


def broker_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Advertised listeners of a broker, the inter-broker listener first, as in Kafka's registrations."""
    advertised = list(config.network.advertised_listeners.values()) or list(config.network.listeners)
    inter_broker = config.network.inter_broker_listener
    return sorted(advertised, key=lambda address: address.name != inter_broker)


def broker_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> list[Endpoint]:
    """Endpoints in the registration of a broker. `ports`: bound port of each of its listeners, by name."""
    endpoints = [_endpoint(address, ports) for address in broker_listeners(config)]
    for address, endpoint in zip(broker_listeners(config), endpoints, strict=True):
        if is_every_address(address.host) and not config.is_alone:
            log.info(
                "listener %s is on every address: %s, the name of this machine, is advertised to clients and nodes; "
                "advertised.listeners can name another host",
                endpoint.name,
                host_and_port(endpoint.host, endpoint.port),
            )
    return endpoints


def controller_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> list[Endpoint]:
    """Endpoints in the registration of a controller. `ports`: bound port of each of its listeners, by name."""
    return [_endpoint(address, ports) for address in _controller_listeners(config)]


def voter_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """Endpoints of this voter for other nodes of the quorum; none for a broker and for a single node."""
    endpoints = [
        VoterEndpoint(address.name.upper(), host_to_advertise(address), address.port)
        for address in _controller_listeners(config)
        if address.port
    ]
    configured = config.quorum.voters.get(config.node_id)
    if configured is not None and configured[1] and endpoints:
        # Other nodes connect to the address in their `controller.quorum.voters`.
        endpoints[0] = VoterEndpoint(endpoints[0].name, *configured)
    return tuple(endpoints)


def _controller_listeners(config: BrokerConfig) -> list[ListenerAddress]:
    """Advertised or configured listeners of the controller.

    If the first is on every address, its address in `controller.quorum.voters` takes its place.
    """
    listeners = [
        config.network.advertised_controller_listeners.get(own.name, own) for own in config.network.controller_listeners
    ]
    configured = config.quorum.voters.get(config.node_id)
    if listeners and listeners[0].name not in config.network.advertised_controller_listeners and configured is not None:
        host, port = configured
        if port and is_every_address(listeners[0].host):
            listeners[0] = listeners[0]._replace(host=host, port=port)
    return listeners


def _endpoint(address: ListenerAddress, ports: Mapping[str, int]) -> Endpoint:
    port = address.port or ports[address.name]
    return Endpoint(address.name, host_to_advertise(address), port, address.security_protocol_id)


def host_to_advertise(address: ListenerAddress) -> str:
    """Host that is advertised for a listener: the configured one, or the name of this machine for every address."""
    return socket.gethostname() if is_every_address(address.host) else address.host
