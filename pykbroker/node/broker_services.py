"""The parts of a broker: logs, partitions, coordinators and their tasks, built from the leaves to the root."""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from pykbroker.coordination.runtime import CoordinatorEnvironment
from pykbroker.errors import KafkaError
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.metadata.producer_ids import ProducerIds
from pykbroker.named_tuple import NamedTuple
from pykbroker.node.node_parts import make_authorizer, make_principal_builder
from pykbroker.node.quorum_node import LocalCall, make_channel, opener
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
    from collections.abc import Callable, Collection

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.image_publisher import ImageCallback
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.broker_sender import NodeConnection
    from pykbroker.coordination.internal_topic import InternalTopic
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.metadata.broker_clients import BrokerClients
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.node.node_parts import NodeParts
    from pykbroker.replication.directory_moves import DirectoryMoves
    from pykbroker.replication.directory_reports import DirectoryReports
    from pykbroker.replication.failed_directories import FailedDirectories
    from pykbroker.replication.full_disk import FullDisk
    from pykbroker.replication.replication_tasks import ReplicationTasks
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.share_partitions.registry import SharePartitions
    from pykbroker.share_state.persister import SharePersister

log = logging.getLogger(__name__)

INTERNAL_TOPIC_TIMEOUT_MS = 30_000


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
        from pykbroker.share_state.persister import SharePersister

        connect = partial(_connect, broker_clients, purpose="share")
        return SharePersister(
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


def directory_tasks(
    parts: NodeParts, directories: LogDirectories, call: LocalCall, send_heartbeat: Callable[[], None] | None
) -> DirectoryTasks:
    """The tasks of several log directories; `send_heartbeat` is None on a single node, which sends none."""
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
