"""The composition root: builds the parts of one broker in order, nests their tasks, and takes them apart again.

Order of a start: descriptors and addresses (so that a taken port is said at once), data directory, controller (metadata
is replayed and this broker registered), logs, groups, and only then the ports open: who can connect is answered.
A stop is the same backwards. It comes as a cancellation: nothing is interrupted but waits, since everything that
changes state is synchronous, so the logs can be closed as they stand.
"""

from __future__ import annotations

import logging
import resource
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from pykbroker.config_rules import ServerConfigRules
from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import Endpoint
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.errors import KafkaError
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.groups.settings import GroupSettings
from pykbroker.host import Host
from pykbroker.housekeeping import high_watermarks, start_housekeeping
from pykbroker.listener import Listener, ListenerLimits
from pykbroker.logstore.errors import InconsistentDirectory, StorageError
from pykbroker.logstore.log_directory import CLEAN_SHUTDOWN, METADATA_TOPIC, LogDirectory
from pykbroker.logstore.meta_properties import FILE_NAME, MetaProperties
from pykbroker.metadata_cache import MetadataCache
from pykbroker.producer_ids import ProducerIds
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.uuids import random_uuid, uuid_from_text, uuid_to_text
from pykbroker.replication.fetch_sessions import FetchSessions
from pykbroker.replication.partitions import Partitions
from pykbroker.request_context import Services
from pykbroker.transactions.coordinator import TransactionCoordinator
from pykbroker.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from pykbroker.config import BrokerConfig
    from pykbroker.coordination.broker_sender import NodeConnection
    from pykbroker.coordination.internal_topic import InternalTopic
    from pykbroker.host import Listening
    from pykbroker.listener_addresses import ListenerAddress
    from pykbroker.security.sasl import SaslSession
    from pykbroker.security.standard_authorizer import StandardAuthorizer
    from pykbroker.transaction_markers import AppendedMarker
    from pykbroker.transactions.markers import MarkerToWrite
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

REGISTRATION_TIMEOUT_MS = 60_000
INTERNAL_TOPIC_TIMEOUT_MS = 30_000
DESCRIPTORS_TRIED = (1 << 20, 1 << 16, 10_240, 4096, 1024)
DESCRIPTORS_KEPT = 4096
"""Open segment files at most, if the limit of the process allows; the rest of the limit is for connections."""


EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound


class BrokerAddress(NamedTuple):
    """Where clients on this machine reach the first listener."""

    host: str
    port: int


async def run_broker(
    config: BrokerConfig,
    *,
    cluster_id: str | None = None,
    on_ready: Callable[[BrokerAddress], None] = lambda address: None,
    host: Host | None = None,
) -> None:
    """Runs a broker until it is cancelled, then stops it in order.

    Args:
        config: its settings; `log_dirs[0]` is created and formatted when it is empty.
        cluster_id: id for a new cluster, 22 characters; a random one by default. An existing directory keeps its own
            and must agree.
        on_ready: called once, when every request can be answered.
        host: the machine; the real one by default.

    Raises:
        BindError: a listener's address cannot be bound.
        StorageError: the data directory cannot be used; names the file and what is wrong.
    """
    host = host or Host.real()
    descriptor_limit = _raise_descriptor_limit()
    bound = [(address, host.bind(address.host, address.port)) for address in config.listeners]
    directory: LogDirectory | None = None
    try:
        directory = LogDirectory.open(
            config.log_dirs[0],
            filesystem=host.filesystem,
            open_file_limit=min(DESCRIPTORS_KEPT, descriptor_limit // 4),
        )
        identity = _identify(directory, config, cluster_id, host.random)
        await _run_in_directory(config, bound, directory, identity, host, on_ready)
    finally:
        for _, sockets in bound:
            for listening in sockets:
                listening.close()
        if directory is not None:
            directory.abandon()


def _raise_descriptor_limit() -> int:
    """Takes all descriptors that the system allows, as a broker has many files and connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where nothing limits them, as on macOS, the system still refuses more than it can have.
    for wanted in (hard, *DESCRIPTORS_TRIED):
        if wanted == soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        soft = wanted
        break
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _identify(
    directory: LogDirectory, config: BrokerConfig, cluster_id: str | None, generator: random.Random
) -> MetaProperties:
    """Whose the data directory is; an empty one becomes ours (no format step).

    Raises:
        InconsistentDirectory: it belongs to another node or cluster.
    """
    identity = directory.meta_properties()
    path = f"{directory.path}/{FILE_NAME}"
    if identity is None:
        chosen = cluster_id or uuid_to_text(random_uuid(generator.randbytes(16)))
        directory_id = uuid_to_text(random_uuid(generator.randbytes(16)))
        identity = MetaProperties(chosen, config.node_id, directory_id)
        directory.format(identity)
    if identity.node_id != config.node_id:
        raise InconsistentDirectory(
            path,
            f"belongs to node {identity.node_id}, this is node {config.node_id}; set node.id or use another folder",
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise InconsistentDirectory(
            path, f"belongs to cluster {identity.cluster_id}, not {cluster_id}; use another folder"
        )
    if not identity.directory_id:
        identity = identity._replace(directory_id=uuid_to_text(random_uuid(generator.randbytes(16))))
        directory.format(identity)
    return identity


async def _run_in_directory(
    config: BrokerConfig,
    bound: Sequence[tuple[ListenerAddress, Sequence[Listening]]],
    directory: LogDirectory,
    identity: MetaProperties,
    host: Host,
    on_ready: Callable[[BrokerAddress], None],
) -> None:
    controller = ControllerNode(
        _controller_settings(config, directory.path, identity),
        filesystem=directory.filesystem,
        config_rules=ServerConfigRules(config),
        random=host.random,
        wall_clock_ms=host.clock.now_ms,
        run_in_thread=host.run_in_thread,
    )
    # From here on only a clean stop makes the logs clean: the controller writes before the other logs are looked at.
    directory.filesystem.remove(f"{directory.path}/{CLEAN_SHUTDOWN}")
    controller.open(is_clean=directory.was_clean)
    services: Services | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            await _register(controller, config, bound, directory, identity, host.random)
            services = _make_services(config, controller, directory, identity, host)
            await nursery.start(services.groups.run)
            # After the groups: a transaction that goes on to its end may end offsets of theirs.
            await nursery.start(services.transactions.run)
            limits = ListenerLimits(services)
            controller.subscribe(lambda old, new: limits.connections.look_again())
            listeners = [
                Listener(address.name, sockets, services, _sasl_maker(config, address), limits)
                for address, sockets in bound
            ]
            start_housekeeping(nursery, services, listeners)
            await _serve(listeners, config, on_ready)
    except BaseException as stop:
        # Anything but the cancellation that is a stop leaves no mark of a clean one: the next start looks at every log.
        if services is not None and _is_cancellation(stop):
            services.groups.stop()
            services.transactions.stop()
            directory.close(services.metadata.broker_epoch(), high_watermarks(services))
        raise
    finally:
        controller.close()


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    return isinstance(error, trio.Cancelled)


def _controller_settings(config: BrokerConfig, folder: str, identity: MetaProperties) -> ControllerSettings:
    return ControllerSettings(
        node_id=config.node_id,
        data_directory=folder,
        voters=VoterSet(map(ReplicaKey, config.quorum_voters)),
        directory_id=uuid_from_text(identity.directory_id),
        partition_count_default=config.num_partitions,
        replication_factor_default=config.default_replication_factor,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        storage=StorageSettings(
            segment_bytes=config.metadata_log_segment_bytes, segment_ms=config.metadata_log_segment_ms
        ),
        raft=RaftSettings(
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        ),
    )


async def _register(
    controller: ControllerNode,
    config: BrokerConfig,
    bound: Sequence[tuple[ListenerAddress, Sequence[Listening]]],
    directory: LogDirectory,
    identity: MetaProperties,
    generator: random.Random,
) -> None:
    """Tells the controller, which is in this process, that this broker serves."""
    endpoints = []
    for address, sockets in bound:
        advertised = config.advertised_listeners.get(address.name, address)
        port = advertised.port or sockets[0].getsockname()[1]
        endpoints.append(Endpoint(address.name, advertised.host, port, address.security_protocol_id))
    try:
        await controller.submit(
            RegisterBroker(
                broker_id=config.node_id,
                incarnation_id=random_uuid(generator.randbytes(16)),
                endpoints=endpoints,
                features=SUPPORTED_FEATURES,
                log_dirs=[uuid_from_text(identity.directory_id)],
                rack=config.broker_rack,
                is_fenced=False,
                is_clean_restart=directory.was_clean,
            ),
            REGISTRATION_TIMEOUT_MS,
        )
    except CommandRefused as refused:
        if refused.error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageError(f"{directory.path}/{METADATA_TOPIC}-0", f"cannot be written: {refused}") from None
        if refused.error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        # Apache Kafka's format step finalizes features that do not exist here yet.
        raise InconsistentDirectory(
            f"{directory.path}/{METADATA_TOPIC}-0", f"{refused} Use another folder, or go on with Apache Kafka there."
        ) from None


def _make_services(
    config: BrokerConfig,
    controller: ControllerNode,
    directory: LogDirectory,
    identity: MetaProperties,
    host: Host,
) -> Services:
    """Builds what follows the metadata, in the order in which it must follow: cache, partitions, coordinators."""
    image = controller.image
    metadata = MetadataCache(config, config.node_id, image)
    directory.load_logs(lambda topic: metadata.log_config(image, topic), host.clock.now_ms(), log.warning)
    partitions = Partitions(config.node_id, directory, metadata.log_config, host.clock)
    partitions.set_strays_aside(image)
    create_internal_topic = partial(_create_internal_topic, controller)
    groups = GroupCoordinator(
        GroupSettings.from_config(config),
        config.node_id,
        host.clock,
        partitions,
        metadata,
        create_internal_topic,
        host.random,
    )
    producer_ids = ProducerIds(controller, metadata, config.node_id)
    transactions = TransactionCoordinator(
        TransactionSettings.from_config(config),
        config.node_id,
        host.clock,
        partitions,
        metadata,
        next_producer_id=producer_ids.next,
        create_internal_topic=create_internal_topic,
        write_marker=partial(_write_marker, partitions, groups, host.clock),
        connect=_connect,
    )
    controller.subscribe(metadata.apply)
    controller.subscribe(partitions.apply)
    controller.subscribe(groups.on_metadata_change)
    controller.subscribe(transactions.on_metadata_change)
    return Services(
        config=config,
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        metadata=metadata,
        partitions=partitions,
        controller=controller,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, host.random),
        log_directory=directory,
        clock=host.clock,
        random=host.random,
        run_in_thread=host.run_in_thread,
        authorizer=_authorizer(config, metadata),
    )


async def _create_internal_topic(controller: ControllerNode, topic: InternalTopic) -> None:
    # Imported when the first coordinator is looked for: a start is faster without.
    from pykbroker.controller.metadata.topics import CreateTopics, NewTopic

    new = NewTopic(topic.name, topic.partition_count, topic.replication_factor, configs=tuple(topic.configs.items()))
    (result,) = await controller.submit(CreateTopics([new]), INTERNAL_TOPIC_TIMEOUT_MS)
    if result.error.is_failure and result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(result.error.code, result.error.message or "")


def _connect(broker_id: int) -> NodeConnection:
    raise NodeUnreachable(f"the address of broker {broker_id} is not known")


def _write_marker(
    partitions: Partitions,
    groups: GroupCoordinator,
    clock: WallClock,
    marker: MarkerToWrite,
    topic: str,
    partition: int,
) -> ErrorCode | AppendedMarker:
    from pykbroker.transaction_markers import MarkerWriter, TransactionMarker

    return MarkerWriter(partitions, groups, clock).write(TransactionMarker(*marker), topic, partition)


def _authorizer(config: BrokerConfig, metadata: MetadataCache) -> StandardAuthorizer | None:
    """What decides who may do what; None where everybody may do everything."""
    if not config.authorizer_class_name:
        return None
    from pykbroker.security.standard_authorizer import StandardAuthorizer

    return StandardAuthorizer(lambda: metadata.image.acls, config.super_users, config.allow_everyone_if_no_acl_found)


def _sasl_maker(config: BrokerConfig, address: ListenerAddress) -> Callable[[], SaslSession] | None:
    """What gives each connection of a SASL listener its exchange; None for a plain one."""
    if not address.security_protocol.startswith("SASL"):
        return None
    from pykbroker.security.sasl import SaslSession, passwords_from_jaas

    jaas = config.listener_property(address.name, "plain.sasl.jaas.config")
    passwords = passwords_from_jaas(jaas or config.listener_property(address.name, "sasl.jaas.config") or "")
    return lambda: SaslSession(passwords, config.sasl_server_max_receive_size)


async def _serve(
    listeners: Sequence[Listener], config: BrokerConfig, on_ready: Callable[[BrokerAddress], None]
) -> None:
    """Opens the ports and serves until cancelled."""
    async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
        for listener in listeners:
            listener.open()
            accepting.start_soon(listener.serve, connections)
        first = config.listeners[0]
        host = "localhost" if first.host in EVERY_ADDRESS else first.host
        on_ready(BrokerAddress(host, listeners[0].port))
