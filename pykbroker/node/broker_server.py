"""The broker of a node: its registration, its logs and coordinators, and its ports, built in this order."""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.coordination.runtime import CoordinatorEnvironment
from pykbroker.errors import KafkaError
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.metadata.advertised_listeners import broker_endpoints
from pykbroker.metadata.producer_ids import ProducerIds
from pykbroker.named_tuple import NamedTuple
from pykbroker.network.listening_socket import bound_ports
from pykbroker.node.broker_registration import (
    Registration,
    refuse_unknown_features,
    register_again,
    register_at_once,
    report_cordoned_directories,
)
from pykbroker.node.housekeeping import high_watermarks, start_housekeeping, start_removal_of_tokens
from pykbroker.node.node_parts import make_authorizer, make_principal_builder
from pykbroker.node.quorum_node import LocalCall, is_quorum_gone, make_channel, opener
from pykbroker.node.running_listeners import RunningListeners
from pykbroker.node.share_states import GroupShareStates
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.uuids import uuid_from_text
from pykbroker.replication.fetch_sessions import FetchSessions
from pykbroker.replication.leadership import RegisteredBrokers
from pykbroker.replication.partitions import Partitions, directory_of
from pykbroker.replication.replica_environment import ReplicaEnvironment
from pykbroker.replication.transaction_markers import MarkerWriter
from pykbroker.requests.background_tasks import BackgroundTasks
from pykbroker.requests.context import BrokerServices, NodeServices
from pykbroker.share_partitions.lazy import LazySharePartitions
from pykbroker.share_state.coordinator import ShareCoordinator
from pykbroker.telemetry.client_telemetry import ClientTelemetry
from pykbroker.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.image_publisher import ImageCallback
    from pykbroker.controller.metadata.image import ClusterImage, Endpoint
    from pykbroker.coordination.broker_sender import NodeConnection
    from pykbroker.coordination.internal_topic import InternalTopic
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.metadata.broker_clients import BrokerClients
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.network.listening_socket import BoundListener
    from pykbroker.node.node_parts import NodeParts
    from pykbroker.replication.directory_moves import DirectoryMoves
    from pykbroker.replication.directory_reports import DirectoryReports
    from pykbroker.replication.failed_directories import FailedDirectories
    from pykbroker.replication.full_disk import FullDisk
    from pykbroker.replication.replication_tasks import ReplicationTasks
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.share_partitions.registry import SharePartitions
    from pykbroker.share_state.state import SharePersister

log = logging.getLogger(__name__)

INTERNAL_TOPIC_TIMEOUT_MS = 30_000


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
            self._directories = _directory_tasks(parts, parts.several_directories, self._call, send_heartbeat)
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
        await nursery.start(services.groups.run)
        await nursery.start(services.background.run)
        nursery.start_soon(services.producer_ids.run)
        # After the groups: completing a loaded transaction may commit or abort offsets of groups.
        await nursery.start(services.transactions.run)
        await nursery.start(services.share_state.run)
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
        services.groups.stop()
        services.transactions.stop()
        services.share_state.stop()
        self._parts.log_directories.close(services.metadata.broker_epoch(), dict(high_watermarks(services)))


class Replication(NamedTuple):
    """Tasks of a broker whose cluster can have other brokers."""

    replicas: ReplicationTasks
    full_disk: FullDisk | None


class DirectoryTasks(NamedTuple):
    """Tasks of a broker with several log directories. Such a broker has no `FullDisk`: a full directory has failed."""

    failed: FailedDirectories
    reports: DirectoryReports


def make_services(
    parts: NodeParts, call: LocalCall, directories: DirectoryTasks | None = None
) -> tuple[BrokerServices, Replication | None]:
    """Loads the logs, builds the parts of the broker, and subscribes them to changes of the metadata."""
    config, host, metadata, controller = parts.config, parts.host, parts.metadata, parts.controller
    _load_logs(parts)
    broker_clients = _broker_clients(parts)
    partitions, replication = _make_partitions(parts, call, broker_clients, directories)
    channel = make_channel(parts, call, "forwarding")
    coordinators = _make_coordinators(parts, channel, partitions, broker_clients)
    moves = None if directories is None else _directory_moves(parts, directories.reports, partitions)
    for subscriber in _subscribers(parts, partitions, replication, directories, moves, coordinators):
        controller.subscribe(subscriber, partitions.prepare if subscriber == partitions.apply else None)
    telemetry = ClientTelemetry(metadata)
    telemetry.load()
    node = NodeServices(
        config=config,
        cluster_id=parts.identity.cluster_id,
        node_id=config.node_id,
        metadata=metadata,
        controller=controller,
        log_directory=parts.log_directories,
        clock=host.clock,
        random=host.random,
        run_in_thread=host.run_in_thread,
        authorizer=make_authorizer(config, metadata),
        principal_builder=make_principal_builder(config),
        tls=host.tls,
        channel=channel,
        quotas=parts.quotas,
    )
    services = BrokerServices(
        node,
        partitions=partitions,
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        share_state=coordinators.share_state,
        shares=coordinators.shares,
        producer_ids=coordinators.producer_ids,
        fetch_sessions=FetchSessions(config.fetch.max_incremental_session_cache_slots, host.random),
        telemetry=telemetry,
        background=BackgroundTasks(),
        broker_clients=broker_clients,
        directory_moves=moves,
        leader_throttle=None if replication is None else _throttle(metadata, config, "leader"),
    )
    return services, replication


def _subscribers(
    parts: NodeParts,
    partitions: Partitions,
    replication: Replication | None,
    directories: DirectoryTasks | None,
    moves: DirectoryMoves | None,
    coordinators: Coordinators,
) -> list[ImageCallback]:
    """The broker's subscribers of metadata changes, in the order of their calls, after the metadata cache.

    Partitions come first, because fetchers and coordinators use them: a coordinator loads the log of a partition.
    """
    found: list[ImageCallback] = []
    if parts.several_directories is not None:
        found.append(partial(_cordon, parts, parts.several_directories))
    found.append(partitions.apply)
    if replication is not None:
        found.append(replication.replicas.apply)
        if replication.full_disk is not None:
            found.append(replication.full_disk.apply)
    if directories is not None and moves is not None:
        found += [moves.apply, directories.reports.apply]
    found += [
        partial(_follow_config, coordinators.groups, parts.metadata),
        coordinators.groups.on_metadata_change,
        coordinators.transactions.on_metadata_change,
        coordinators.share_state.on_metadata_change,
        coordinators.shares.on_metadata_change,
    ]
    return found


def _load_logs(parts: NodeParts) -> None:
    """Loads the broker's logs with the settings of their topics."""
    image, several = parts.controller.image, parts.several_directories
    load = parts.log_directories.load_logs
    if several is not None:
        load = partial(several.load_logs, assigned_directory=partial(directory_of, image, parts.config.node_id))
        _cordon(parts, several, image, image)
    load(lambda topic: parts.metadata.settings.log_config(image, topic), parts.host.clock.now_ms(), log.warning)


class Coordinators(NamedTuple):
    """Coordinators of a broker, and the parts that use them."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_state: ShareCoordinator
    shares: LazySharePartitions
    producer_ids: ProducerIds


def _make_coordinators(
    parts: NodeParts, channel: ControllerChannel, partitions: Partitions, broker_clients: BrokerClients | None
) -> Coordinators:
    config, host, metadata = parts.config, parts.host, parts.metadata
    environment = CoordinatorEnvironment(
        config.node_id, host.clock, partitions, metadata, partial(_create_internal_topic, channel)
    )
    share_state = ShareCoordinator(config, environment)

    @cache
    def persister() -> SharePersister:
        from pykbroker.share_state.persister import CoordinatorPersister

        connect = partial(_connect, broker_clients, purpose="share")
        return CoordinatorPersister(
            share_state,
            config.node_id,
            connect,
            lambda: share_state.request_topic_creation(metadata.expected_broker_count),
        )

    def make_shares(nursery: trio.Nursery) -> SharePartitions:
        from pykbroker.share_partitions.registry import SharePartitions

        return SharePartitions(
            config.share_groups,
            lambda group_id: metadata.image.group_config(group_id),
            partitions,
            persister(),
            host.clock,
            nursery,
        )

    groups = GroupCoordinator(config, environment, host.random, GroupShareStates(persister))
    producer_ids = ProducerIds(channel, metadata, config.node_id)
    transactions = TransactionCoordinator(
        config,
        environment,
        next_producer_id=producer_ids.next,
        write_marker=MarkerWriter(partitions, groups, host.clock).write,
        connect=partial(_connect, broker_clients, purpose="transactions"),
    )
    return Coordinators(groups, transactions, share_state, LazySharePartitions(make_shares), producer_ids)


def _make_partitions(
    parts: NodeParts, call: LocalCall, broker_clients: BrokerClients | None, directories: DirectoryTasks | None
) -> tuple[Partitions, Replication | None]:
    """Partitions of a broker; on a single broker nothing replicates them."""
    config = parts.config
    brokers = RegisteredBrokers(config.node_id, config.replication.lag_time_max_ms / 1000)
    if broker_clients is not None:
        return _replicate(parts, call, brokers, broker_clients, directories)
    environment = ReplicaEnvironment(brokers, parts.controller.clock.now_s)
    if directories is not None:
        environment.storage_failures = directories.failed
    return _open_partitions(parts, environment), None


def _open_partitions(parts: NodeParts, environment: ReplicaEnvironment) -> Partitions:
    # Lag times are measured by the controller's clock, which stops while this process does not run: a leader that
    # stalled has received no fetches, and its followers do not lag because of that.
    partitions = Partitions(environment, parts.log_directories, parts.metadata.settings.log_config, parts.host.clock)
    partitions.mark_stray_logs(parts.controller.image)
    return partitions


def _broker_clients(parts: NodeParts) -> BrokerClients | None:
    """Connections to other brokers; None on a single node."""
    if parts.peers is None:
        return None
    from pykbroker.metadata.broker_clients import BrokerClients

    controller, config = parts.controller, parts.config
    name = config.network.inter_broker_listener
    return BrokerClients(lambda: controller.image, name, opener(config, parts.host, name), config.node_id)


def _replicate(
    parts: NodeParts,
    call: LocalCall,
    brokers: RegisteredBrokers,
    clients: BrokerClients,
    directories: DirectoryTasks | None,
) -> tuple[Partitions, Replication]:
    """Partitions of a broker with other brokers, and the tasks that replicate them."""
    from pykbroker.replication.alter_partition_manager import AlterPartitionManager
    from pykbroker.replication.full_disk import FullDisk, ReportedFailures
    from pykbroker.replication.replication_tasks import ReplicationSettings, ReplicationTasks

    node_id, controller = parts.config.node_id, parts.controller
    channel = make_channel(parts, call, "alter-partition")
    alter_partition = AlterPartitionManager(node_id, partial(brokers.epoch, node_id), channel)
    failures = ReportedFailures()
    environment = ReplicaEnvironment(
        brokers, controller.clock.now_s, alter_partition, failures if directories is None else directories.failed
    )
    partitions = _open_partitions(parts, environment)
    replicas = ReplicationTasks(
        partitions,
        parts.host.clock,
        alter_partition,
        partial(clients.connect, purpose="replica-fetcher", lends=True),
        ReplicationSettings.from_config(parts.config),
        _throttle(parts.metadata, parts.config, "follower"),
    )
    if directories is not None:
        return partitions, Replication(replicas, None)
    full_disk = FullDisk(
        failures,
        partitions,
        parts.directory,
        uuid_from_text(parts.identity.directory_id),
        lambda: controller.image,
        channel,
        replicas.follow_all,
    )
    return partitions, Replication(replicas, full_disk)


def _directory_tasks(
    parts: NodeParts, directories: LogDirectories, call: LocalCall, send_heartbeat: Callable[[], None] | None
) -> DirectoryTasks:
    from pykbroker.replication.directory_reports import DirectoryReports
    from pykbroker.replication.failed_directories import FailedDirectories

    controller = parts.controller

    def registered_ids() -> Collection[bytes]:
        broker = controller.image.brokers.get(parts.config.node_id)
        return () if broker is None or send_heartbeat is None else broker.log_dirs

    failed = FailedDirectories(
        directories,
        parts.directory.path,
        send_heartbeat or (lambda: None),
        registered_ids,
        parts.config.log.dir_failure_timeout_ms / 1000,
    )
    channel = make_channel(parts, call, "directories")
    return DirectoryTasks(
        failed, DirectoryReports(parts.config.node_id, directories, lambda: controller.image, channel)
    )


def _follow_config(groups: GroupCoordinator, metadata: MetadataCache, old: ClusterImage, new: ClusterImage) -> None:
    """Gives groups the broker's changed dynamic settings. A subscriber of metadata changes."""
    if old.configs is not new.configs:
        groups.follow_config(metadata.settings.under(new))


def _cordon(parts: NodeParts, directories: LogDirectories, old: ClusterImage, new: ClusterImage) -> None:
    """Applies `cordoned.log.dirs` to new logs. A subscriber of metadata changes, before the replicas."""
    directories.cordoned = frozenset(parts.cordoned_directory_ids())


def _directory_moves(parts: NodeParts, reports: DirectoryReports, partitions: Partitions) -> DirectoryMoves:
    from pykbroker.quotas.rates import QuotaWindows, SimpleWindowedRate
    from pykbroker.replication.directory_moves import DirectoryMoves
    from pykbroker.replication.throttle import ReplicationThrottle

    directories, controller, quotas = parts.several_directories, parts.controller, parts.config.quotas
    metadata = parts.metadata
    assert directories is not None
    throttle = ReplicationThrottle(
        lambda: metadata.settings.throttled_rate(metadata.image, "replica.alter.log.dirs.io.max.bytes.per.second"),
        lambda topic: "*",
        parts.config.node_id,
        SimpleWindowedRate(
            QuotaWindows(quotas.alter_log_dirs_window_num, quotas.alter_log_dirs_window_size_seconds * 1000)
        ),
    )
    moves = DirectoryMoves(
        directories,
        partitions,
        lambda: controller.image,
        reports.report_now,
        throttle,
        parts.host.run_in_thread,
        parts.host.clock,
        parts.config.replication.alter_log_dirs_threads or len(directories.online),
    )
    reports.target_of = moves.target_of
    return moves


def _throttle(metadata: MetadataCache, config: BrokerConfig, side: str) -> ReplicationThrottle:
    """The replication throttle of this broker as "leader" or as "follower"."""
    from pykbroker.quotas.rates import QuotaWindows, SimpleWindowedRate
    from pykbroker.replication.throttle import ReplicationThrottle

    return ReplicationThrottle(
        lambda: metadata.settings.throttled_rate(metadata.image, f"{side}.replication.throttled.rate"),
        lambda topic: metadata.image.topic_config(topic).get(f"{side}.replication.throttled.replicas", ""),
        config.node_id,
        SimpleWindowedRate(
            QuotaWindows(config.quotas.replication_window_num, config.quotas.replication_window_size_seconds * 1000)
        ),
    )


async def _create_internal_topic(channel: ControllerChannel, topic: InternalTopic) -> None:
    # Imported at the first FindCoordinator, which makes a start faster.
    from pykbroker.controller.metadata.topics import NewTopic
    from pykbroker.requests.auto_topic_creation import create_request

    new = NewTopic(topic.name, topic.partition_count, topic.replication_factor, configs=tuple(topic.configs.items()))
    answer = await channel.request(create_request([new], INTERNAL_TOPIC_TIMEOUT_MS), INTERNAL_TOPIC_TIMEOUT_MS)
    for result in answer.topics:
        code = answered_error(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code, result.error_message or "")


def _connect(clients: BrokerClients | None, broker_id: int, purpose: str) -> NodeConnection:
    """A connection to another broker; raises NodeUnreachable as `BrokerClients.connect`."""
    if clients is not None:
        return clients.connect(broker_id, purpose)
    from pykbroker.controller.node_client import NodeUnreachable

    raise NodeUnreachable(f"broker {broker_id} is not registered")
