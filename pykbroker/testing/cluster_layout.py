"""Layout of several nodes on one machine: ports, directories and settings of each node. Pure but for `free_ports`.

`pykbroker start --nodes` and `LocalCluster` write these settings as a server.properties for each node, with which that
node can also be started by hand.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from pykbroker.config.listener_addresses import is_every_address
from pykbroker.named_tuple import NamedTuple

__all__ = ["LOCAL_CLUSTER_DEFAULTS", "LayoutError", "NodePorts", "free_ports", "properties_of_nodes"]

INTERNAL_HOST = "127.0.0.1"
"""Host by which nodes of one machine reach each other; the advertised address for clients may be another one."""

LOCAL_CLUSTER_DEFAULTS = {
    # A dead node is replaced within a second: the voters notice at once that the port of the quorum's leader refuses
    # connections, and the new leader gives each broker a whole session. The quorum's election and fetch timeouts matter
    # when a node stands still.
    "broker.heartbeat.interval.ms": "150",
    "broker.session.timeout.ms": "750",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    # As many replicas as a cluster of Apache Kafka in production has, so that it behaves as one.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Each partition of these costs a file and a replica on every node.
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "10",
}
"""Default settings of nodes on one machine: Kafka's defaults are made for networks and Java's pauses."""

_WRITTEN_HERE = (
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
)


class LayoutError(Exception):
    """The settings cannot be those of a cluster on one machine; the text says what to do instead."""


class NodePorts(NamedTuple):
    """The ports of one node: for clients, for the quorum, and for the other brokers where clients must log in."""

    port: int
    controller_port: int
    internal_port: int


def free_ports(count: int) -> list[NodePorts]:
    """Ports of nodes that were free a moment ago, all different."""
    # All sockets stay open until all ports are known, so that no port is given twice.
    sockets = [socket.create_server((INTERNAL_HOST, 0)) for _ in range(3 * count)]
    ports = iter([holder.getsockname()[1] for holder in sockets])
    for holder in sockets:
        holder.close()
    return [NodePorts(next(ports), next(ports), next(ports)) for _ in range(count)]


def properties_of_nodes(
    base: Mapping[str, str], ports: Sequence[NodePorts], directory: str, *, has_tls: bool = False
) -> dict[int, dict[str, str]]:
    """The settings of nodes 1 to n.

    Args:
        base: settings of all nodes, with one listener, whose port is replaced; they override the defaults here.
        ports: those of node 1, 2, ...
        directory: node n has its data in directory/node-n.
        has_tls: True if nodes use TLS among themselves, as they do with clients; `base` has its settings.

    Raises:
        LayoutError: `base` has a setting that is written here, or several listeners.
    """
    for key in _WRITTEN_HERE:
        if key in base:
            raise LayoutError(f"{key} is set for each node by --nodes itself: leave it out")
    name, host = _address("listeners", base.get("listeners", "PLAINTEXT://localhost:9092"))
    advertised = base.get("advertised.listeners")
    advertised_host = _address("advertised.listeners", advertised)[1] if advertised else ""
    count = len(ports)
    replicas = str(min(count, 3))
    defaults = {
        key: replicas if key.endswith("replication.factor") else text for key, text in LOCAL_CLUSTER_DEFAULTS.items()
    }
    if count < 3:
        # A single node could never have two replicas in sync. Two nodes have no quorum without each other, so that
        # requiring both would protect nothing.
        defaults |= {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}
    shared = {key: text for key, text in base.items() if key not in ("log.dir", "log.dirs")}
    # Nodes have no password, so they cannot use a listener on which clients must log in.
    needs_internal = not has_tls and _protocol(name, base) != "PLAINTEXT"
    controller_protocol = "SSL" if has_tls else "PLAINTEXT"
    voters = ",".join(
        f"{node_id}@{INTERNAL_HOST}:{of_node.controller_port}" for node_id, of_node in enumerate(ports, 1)
    )
    nodes = {}
    for node_id, of_node in enumerate(ports, 1):
        listeners = [f"{name}://{host}:{of_node.port}"]
        protocols = [f"{name}:{_protocol(name, base)}"]
        # Without a host every node advertises the name of this machine.
        host_of_clients = advertised_host or ("" if is_every_address(host.strip("[]")) else host)
        advertises = [f"{name}://{host_of_clients}:{of_node.port}"]
        if needs_internal:
            listeners.append(f"INTERNAL://{INTERNAL_HOST}:{of_node.internal_port}")
            protocols.append("INTERNAL:PLAINTEXT")
            advertises.append(f"INTERNAL://{INTERNAL_HOST}:{of_node.internal_port}")
        own = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL" if needs_internal else name,
            "listeners": ",".join([*listeners, f"CONTROLLER://{INTERNAL_HOST}:{of_node.controller_port}"]),
            "listener.security.protocol.map": ",".join([*protocols, f"CONTROLLER:{controller_protocol}"]),
            "advertised.listeners": ",".join(advertises),
            "log.dirs": f"{directory}/node-{node_id}",
        }
        nodes[node_id] = {**defaults, **shared, **own}
    return nodes


def text_of_properties(properties: Mapping[str, str]) -> str:
    """Text of a server.properties file."""
    return "".join(f"{key}={_escaped(text)}\n" for key, text in properties.items())


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return "\\" + text if text.startswith(" ") else text


def _address(key: str, text: str) -> tuple[str, str]:
    """Name and host of the one listener in a text."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) != 1:
        raise LayoutError(f"{key}={text}: with --nodes each node has one listener for clients; name one")
    name, separator, address = parts[0].partition("://")
    if not separator:
        raise LayoutError(f"{key}={text}: expected NAME://host:port, for example PLAINTEXT://localhost:9092")
    return name.upper(), address.rpartition(":")[0]


def _protocol(name: str, base: Mapping[str, str]) -> str:
    """The security protocol of a listener."""
    for pair in base.get("listener.security.protocol.map", "").split(","):
        left, _, right = pair.partition(":")
        if left.strip().upper() == name:
            return right.strip().upper()
    return name
