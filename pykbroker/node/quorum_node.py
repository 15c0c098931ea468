"""Builds this process's node of the metadata quorum from its settings: `ControllerNode`, and `Peers` for other nodes.

The node is a voter if `process.roles` contains controller, and an observer otherwise. A single voter without a
controller's listener has no peers and does not import their modules.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.config.controller_rules import ServerConfigRules
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS, default_levels, supported_features
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION_UNSTABLE
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.metadata.advertised_listeners import voter_endpoints
from pykbroker.metadata.controller_channel import ControllerChannel
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.uuids import uuid_from_text
from pykbroker.version import __version__

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.node_client import NodeAddress, OpenStream
    from pykbroker.controller.peer_links import PeerLinks
    from pykbroker.controller.peers import Peers
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.logstore.meta_properties import MetaProperties
    from pykbroker.node.host import Host
    from pykbroker.node.node_parts import NodeParts
    from pykbroker.protocol.fields import Message

log = logging.getLogger(__name__)

LocalCall = Callable[["Message"], Awaitable[Any]]
"""Function that sends a request to the controller of this process and returns its response."""

FETCH_WAIT_MAX_MS = 500
APPEND_LINGER = "controller.quorum.append.linger.ms"
LOST_LEADER_MS = 100
RESERVE_BYTES = 4 << 20
"""Bytes reserved for metadata on a full disk: at least some hundreds of changes, each of which may take a page."""
ASK_TIMEOUT_MS = 2000
ASK_PAUSE_S = 0.2
RUNNING_TICK_MIN_MS, RUNNING_TICK_MAX_MS = 20, 500
CONTROLLER_ENDPOINTS = 2
"""Endpoint type of controllers in DescribeCluster (KIP-919)."""


class QuorumNode(NamedTuple):
    """The quorum's node of this process, and the links to its peers; `peers` is None on a single node."""

    controller: ControllerNode
    peers: Peers | None


def make_quorum_node(config: BrokerConfig, directory: LogDirectory, identity: MetaProperties, host: Host) -> QuorumNode:
    """Builds the node without opening any file or connection."""
    links: PeerLinks | None = None
    if config.has_peers:
        from pykbroker.controller.node_client import NodeAddress
        from pykbroker.controller.peer_links import PeerLinks

        links = PeerLinks(
            config.node_id,
            identity.cluster_id,
            {node_id: NodeAddress(*address) for node_id, address in config.quorum.voters.items()},
            controller_opener(config, host),
            software_version=__version__,
            request_timeout_ms=config.quorum.request_timeout_ms,
            snapshot_piece_bytes=config.quorum.fetch_snapshot_max_bytes,
            bootstrap=[NodeAddress(*address) for address in config.quorum.bootstrap_servers],
            endpoints=voter_endpoints(config),
            listener_name=config.network.controller_listener,
        )
    controller = ControllerNode(
        _settings(config, directory.path, identity),
        filesystem=directory.filesystem,
        config_rules=ServerConfigRules(config),
        random=host.random,
        wall_clock_ms=host.clock.now_ms,
        run_in_thread=host.run_in_thread,
        transport=links,
        observer=host.quorum_observer,
    )
    if links is None:
        return QuorumNode(controller, None)
    from pykbroker.controller.peers import Peers

    return QuorumNode(controller, Peers(controller, links, fetch_wait_max_ms=_fetch_wait_max_ms(config)))


def _settings(config: BrokerConfig, directory: str, identity: MetaProperties) -> ControllerSettings:
    unstable = config.broker.unstable_feature_versions_enable
    return ControllerSettings(
        node_id=config.node_id,
        data_directory=directory,
        voters=VoterSet(map(ReplicaKey, config.quorum.voters)),
        directory_id=uuid_from_text(identity.directory_id),
        endpoints=voter_endpoints(config),
        bootstrap_count=len(config.quorum.bootstrap_servers),
        partition_count_default=config.topics.num_partitions,
        replication_factor_default=config.topics.default_replication_factor,
        snapshot_bytes=config.metadata_log.max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log.max_snapshot_interval_ms,
        storage=StorageSettings(
            segment_bytes=config.metadata_log.segment_bytes,
            segment_ms=config.metadata_log.segment_ms,
            reserve_bytes=RESERVE_BYTES if config.has_peers else 0,
        ),
        raft=RaftSettings(
            election_timeout_ms=config.quorum.election_timeout_ms,
            fetch_timeout_ms=config.quorum.fetch_timeout_ms,
            request_timeout_ms=config.quorum.request_timeout_ms,
            # With a pause of 0 a node that searches for the leader would use a whole processor.
            retry_backoff_ms=max(1, config.quorum.retry_backoff_ms),
            auto_join=config.quorum.auto_join_enable,
            lost_leader_ms=LOST_LEADER_MS if config.quorum.election_on_refusal else 0,
            fetch_wait_max_ms=_fetch_wait_max_ms(config),
            fetch_max_bytes=config.quorum.fetch_max_bytes,
            election_backoff_max_ms=config.quorum.election_backoff_max_ms,
        ),
        append_linger_ms=_append_linger_ms(config),
        running_tick_ms=_running_tick_ms(config),
        supported_features=supported_features(unstable=unstable),
        bootstrap_levels=default_levels(METADATA_VERSION_UNSTABLE) if unstable else BOOTSTRAP_LEVELS,
        min_insync_replicas=int(config.topics.defaults["min.insync.replicas"]),
        unclean_election=config.topics.defaults["unclean.leader.election.enable"] == "true",
    )


def _fetch_wait_max_ms(config: BrokerConfig) -> int:
    """Longest wait of a metadata Fetch for records, in ms: Kafka's 500 ms, but at most a quarter of the fetch timeout.

    After the fetch timeout a follower becomes prospective.
    """
    return min(FETCH_WAIT_MAX_MS, config.quorum.fetch_timeout_ms // 4)


def _running_tick_ms(config: BrokerConfig) -> int:
    """Interval in ms at which the running clock of this node is updated, 0 for a single node.

    An eighth of the shortest timeout that other nodes are held to, within bounds.
    """
    if config.is_alone and not config.network.controller_listeners:
        return 0
    shortest_ms = min(config.broker.session_timeout_ms, config.quorum.fetch_timeout_ms)
    return min(max(shortest_ms // 8, RUNNING_TICK_MIN_MS), RUNNING_TICK_MAX_MS)


def _append_linger_ms(config: BrokerConfig) -> int:
    """Time in ms that metadata writes are gathered: 0 unless `controller.quorum.append.linger.ms` is set.

    Kafka's default of 25 ms delays each new topic by as much. Records that arrive during a write are gathered anyway.
    """
    given = APPEND_LINGER in config.static_properties
    return config.quorum.append_linger_ms if given else 0


class StoppedEarly(Exception):
    """The stop of this node was requested before it knew its cluster id."""


class ClusterUnknown(Exception):
    """No controller gave the cluster id in time; the text has the last reason."""


async def ask_cluster_id(config: BrokerConfig, host: Host, stop: trio.Event) -> str:
    """Cluster id from the first controller of the settings that answers DescribeCluster.

    Raises:
        StoppedEarly: `stop` was set meanwhile.
        ClusterUnknown: none answered within `initial.broker.registration.timeout.ms`.
    """
    from pykbroker.controller.node_client import NodeAddress

    addresses = [NodeAddress(*a) for a in (*config.quorum.voters.values(), *config.quorum.bootstrap_servers)]
    give_up_at = trio.current_time() + config.broker.initial_registration_timeout_ms / 1000
    failure = ""
    while trio.current_time() < give_up_at:
        for address in addresses:
            cluster_id, why = None, f"{address} did not answer in time"
            with trio.move_on_at(give_up_at):
                cluster_id, why = await _cluster_id_at(address, config, host)
            if cluster_id is not None:
                return cluster_id
            if not failure:
                log.info("waiting for the cluster id from a controller: %s", why)
            failure = why
        with trio.move_on_after(ASK_PAUSE_S):
            await stop.wait()
            raise StoppedEarly  # pragma: no cover: in a process that waits for its cluster
    raise ClusterUnknown(f"no controller answered with the cluster id: {failure}")


async def _cluster_id_at(address: NodeAddress, config: BrokerConfig, host: Host) -> tuple[str | None, str]:
    """(cluster id, ""), or (None, reason)."""
    from pykbroker.controller.node_client import NodeClient, NodeUnreachable
    from pykbroker.protocol.error_codes import ErrorCode, answered_error
    from pykbroker.protocol.errors import ProtocolError
    from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest

    client = NodeClient(
        address, controller_opener(config, host), client_id=str(config.node_id), software_version=__version__
    )
    try:
        asked = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        answer = await client.request(asked, ASK_TIMEOUT_MS)
    except (NodeUnreachable, ProtocolError) as error:
        return None, str(error)
    finally:
        with trio.CancelScope(shield=True):
            await client.close()
    # At levels before controller registration the response has an error, and still the cluster id.
    if answer.error_code != ErrorCode.NONE and not answer.cluster_id:
        return None, f"{address}: {answer.error_message or answered_error(answer.error_code).name}"
    return answer.cluster_id, ""


def controller_opener(config: BrokerConfig, host: Host) -> OpenStream:
    """Function that connects to controllers, with TLS and a login if their listener has them."""
    return opener(config, host, config.network.controller_listener)


def opener(config: BrokerConfig, host: Host, listener_name: str) -> OpenStream:
    """Function that connects to the named listener of other nodes, with TLS and a login if that listener has them."""
    open_stream = host.open_stream
    tls = None if host.tls is None else host.tls.of(listener_name.upper())
    if tls is not None:  # pragma: no cover: TLS is tested with processes
        from pykbroker.security.tls.connecting import with_tls

        open_stream = with_tls(open_stream, tls)
    login = config.security.node_logins.get(listener_name.upper())
    if login is None:
        return open_stream
    from pykbroker.security.sasl_client import with_login

    return with_login(open_stream, login, host.secrets, host.clock.now_ms, host.run_in_thread)


def controller_address(config: BrokerConfig, node: ControllerNode, node_id: int) -> NodeAddress | None:
    """Address of a controller for other nodes: from `controller.quorum.voters`, the voter set, or its registration."""
    from pykbroker.controller.node_client import NodeAddress

    configured = config.quorum.voters.get(node_id)
    if configured is not None:
        return NodeAddress(*configured)
    name = config.network.controller_listener
    voter = node.voters.voter(node_id)
    recorded = None if voter is None else voter.endpoint(name)
    if recorded is not None:
        return NodeAddress(recorded.host, recorded.port)
    registered = node.image.controllers.get(node_id)
    if registered is not None:
        for endpoint in registered.endpoints:
            if endpoint.name == name:
                return NodeAddress(endpoint.host, endpoint.port)
    return None


def make_channel(parts: NodeParts, call: LocalCall, purpose: str) -> ControllerChannel:
    """A new channel to the active controller, with its own connections; `call` is used if that is in this process."""
    config, controller = parts.config, parts.controller
    channel = ControllerChannel(
        controller,
        partial(controller_address, config, controller),
        controller_opener(config, parts.host),
        call,
        client_id=f"{purpose}-{config.node_id}",
        request_timeout_ms=config.controller.socket_timeout_ms,
    )
    parts.channels.append(channel)
    return channel


def is_quorum_gone(parts: NodeParts) -> bool:
    """True if so few voters answer that none of them can be elected."""
    return parts.peers is not None and parts.peers.is_majority_silent(parts.controller.voters.ids)
