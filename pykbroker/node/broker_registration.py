"""Registration, heartbeats and controlled shutdown of a broker.

As in Kafka's BrokerLifecycleManager: a broker sends BrokerRegistration, and then a BrokerHeartbeat with its metadata
offset every `broker.heartbeat.interval.ms`. The heartbeats ask to stay fenced until the broker has caught up with its
own registration and has loaded its logs. When the broker stops, they ask for a controlled shutdown, which moves its
leaderships to other brokers.

A broker whose cluster cannot have another node, because its controller has no port, registers with one command and is
unfenced at once. It sends no heartbeats and stops without permission: no other broker could take over its leaderships.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Protocol

import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.endpoints_and_features import endpoints_as, features_as
from pykbroker.controller.metadata.features import supported_features
from pykbroker.controller.metadata.metadata_versions import CORDONED_LOG_DIRS, DIRECTORY_ASSIGNMENT
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import InconsistentDirectory, StorageError
from pykbroker.logstore.log_directory import METADATA_TOPIC
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.uuids import random_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.brokers import RegisterBroker
    from pykbroker.controller.metadata.image import ClusterImage, Endpoint
    from pykbroker.controller.node import ControllerNode
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.logstore.meta_properties import MetaProperties
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.node.host import Host

log = logging.getLogger(__name__)

LOCAL_TIMEOUT_MS = 60_000
"""Timeout in ms of a command to the controller of this process."""

STARTING_PAUSE_S = 0.01
SHUTDOWN_PAUSE_S = 0.05
AMEND_PAUSE_S = 1.0
RETRY_FIRST_S = 0.1
"""Pauses between requests in seconds, as in Kafka: while this broker starts, during a controlled shutdown, and after
the first failure (each further failure doubles it, up to the heartbeat interval)."""

CHECK_INTERVAL_S = 0.1
NO_QUORUM_TIMEOUT_S = 1.0
"""Times of controlled shutdown in seconds: the interval of checks that enough controllers answer, and the time without
a response after which a broker stops without permission if too few do."""

CONTROLLED_SHUTDOWN_MAX_S = 30.0
"""Time limit of controlled shutdown, in seconds; then the broker stops without the controller's permission."""


class RegistrationFailed(Exception):
    """This broker could not join its cluster; the text has the reason."""


class State(enum.Enum):
    """State of this broker (Kafka's BrokerState)."""

    STARTING = enum.auto()
    RECOVERY = enum.auto()
    RUNNING = enum.auto()
    PENDING_CONTROLLED_SHUTDOWN = enum.auto()


async def register_at_once(
    controller: ControllerNode,
    config: BrokerConfig,
    endpoints: Sequence[Endpoint],
    directory: LogDirectory,
    directory_ids: Sequence[bytes],
    host: Host,
    *,
    is_clean_restart: bool,
) -> RegisterBroker:
    """Registers this broker, unfenced, at the controller of its own process, which no other node can reach.

    `is_clean_restart`: the last stop was clean in all log directories.

    Returns the command, for `register_again`.

    Raises:
        StorageError: the metadata cannot be written.
    """
    from pykbroker.controller.metadata.brokers import RegisterBroker

    registration = RegisterBroker(
        broker_id=config.node_id,
        incarnation_id=random_uuid(host.random),
        endpoints=endpoints,
        features=supported_features(unstable=config.broker.unstable_feature_versions_enable),
        log_dirs=directory_ids,
        rack=config.broker.rack,
        is_fenced=False,
        is_clean_restart=is_clean_restart,
    )
    try:
        await controller.submit(registration, LOCAL_TIMEOUT_MS)
    except CommandRefused as refused:
        if refused.error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageError(f"{directory.path}/{METADATA_TOPIC}-0", f"cannot be written: {refused}") from None
        raise
    return registration


def refuse_unknown_features(config: BrokerConfig, image: ClusterImage, directory: LogDirectory) -> None:
    """Checks that a single node supports the cluster's features, before its broker registers.

    No other node could change them later.

    Raises:
        InconsistentDirectory: the cluster has features that do not exist here, such as those that Apache Kafka set.
    """
    from pykbroker.controller.metadata.brokers import reason_not_supported

    reason = reason_not_supported(image, supported_features(unstable=config.broker.unstable_feature_versions_enable))
    if reason is not None:
        raise InconsistentDirectory(
            f"{directory.path}/{METADATA_TOPIC}-0", f"{reason} Use another directory, or go on with Apache Kafka there."
        )


def lacks_directories(image: ClusterImage, broker_id: int) -> bool:
    """True if metadata.version now has log directories, and this broker's older registration has none.

    The broker then registers again, as in Kafka's BrokerRegistrationTracker.
    """
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.log_dirs and image.metadata_version >= DIRECTORY_ASSIGNMENT


async def register_again(controller: ControllerNode, registration: RegisterBroker) -> None:
    """Registers again with the log directories, once metadata.version allows them in a registration."""
    is_due = trio.Event()

    def check(old: ClusterImage, new: ClusterImage) -> None:
        if lacks_directories(new, registration.broker_id):
            is_due.set()

    controller.subscribe(check)
    await is_due.wait()
    while lacks_directories(controller.image, registration.broker_id):
        try:
            await controller.submit(registration, LOCAL_TIMEOUT_MS)
        except CommandRefused as refused:
            log.warning("the log directory of this broker could not be registered: %s", refused)
            await trio.sleep(AMEND_PAUSE_S)


async def report_cordoned_directories(
    controller: ControllerNode, broker_id: int, cordoned_directory_ids: Callable[[], Sequence[bytes]]
) -> None:
    """Reports cordoned log directories (KIP-1066) of a broker without heartbeats to the controller of its process."""
    from pykbroker.controller.metadata.brokers import CordonDirectories

    may_have_changed = trio.Event()

    def check(old: ClusterImage, new: ClusterImage) -> None:
        if old.configs is not new.configs or old.metadata_version != new.metadata_version:
            may_have_changed.set()

    controller.subscribe(check)
    while True:
        # None after UnregisterBroker: this broker registers no more until its next start, and has nothing to report.
        broker = controller.image.brokers.get(broker_id)
        cordoned = list(cordoned_directory_ids())
        if broker is not None and set(cordoned) != set(broker.cordoned_log_dirs or ()):
            try:
                await controller.submit(CordonDirectories(broker_id, broker.epoch, cordoned), LOCAL_TIMEOUT_MS)
            except CommandRefused as refused:
                log.warning("the cordoned log directories of this broker could not be reported: %s", refused)
                await trio.sleep(AMEND_PAUSE_S)
                continue
        await may_have_changed.wait()
        may_have_changed = trio.Event()


class DirectoryIds(Protocol):
    """Ids of this broker's log directories at present."""

    def online_directory_ids(self) -> Sequence[bytes]: ...

    def offline_directory_ids(self) -> Sequence[bytes]:
        """Those that have failed since the start."""

    def cordoned_directory_ids(self) -> Sequence[bytes]:
        """Those that get no new replicas (KIP-1066)."""


class Registration:
    """Registration and heartbeats of this broker. `run` sends the requests; other methods set the state they ask for.

    Args:
        config, endpoints, identity, directories: of this broker.
        controller: source of the metadata image that this node has applied.
        channel: connection to the active controller for these requests alone, so that no other request delays them.
        host: draws the incarnation id.
        previous_broker_epoch: broker epoch at the last stop, if it was clean in all log directories, else -1 (KIP-966).
        is_quorum_gone: returns True while too few controllers answer to elect a leader.
    """

    def __init__(
        self,
        config: BrokerConfig,
        endpoints: Sequence[Endpoint],
        identity: MetaProperties,
        directories: DirectoryIds,
        controller: ControllerNode,
        channel: ControllerChannel,
        host: Host,
        previous_broker_epoch: int,
        is_quorum_gone: Callable[[], bool],
    ) -> None:
        self._config = config
        self._endpoints = endpoints
        self._identity = identity
        self._directories = directories
        self._reported_cordoned: list[bytes] = []
        self._controller = controller
        self._channel = channel
        self._previous_broker_epoch = previous_broker_epoch
        self._features = supported_features(unstable=config.broker.unstable_feature_versions_enable)
        self._is_quorum_gone = is_quorum_gone
        self._incarnation_id = random_uuid(host.random)
        self.broker_epoch = -1
        self.state = State.STARTING
        self._is_registered = False
        self._must_amend = False
        self._is_ready = False
        self._failures = 0
        self._wake = trio.Event()
        self._caught_up = trio.Event()
        self._unfenced = trio.Event()
        self._may_stop = trio.Event()
        self._is_over = False
        self._answered_at = 0.0

    async def run(self) -> None:
        """Sends registrations and heartbeats until it is cancelled or the controller permits this broker's shutdown.

        Raises:
            RegistrationFailed: no registration succeeded within `initial.broker.registration.timeout.ms`.
        """
        give_up_at = trio.current_time() + self._config.broker.initial_registration_timeout_ms / 1000
        failure = "no controller answered"
        while not self._is_over:
            pause_s = self._retry_pause_s()
            try:
                if self.broker_epoch < 0:
                    # A request waits for a controller longer than this setting may say.
                    with trio.move_on_at(give_up_at):
                        pause_s = await self._register()
                else:
                    pause_s = await (
                        self._send_heartbeat() if self._is_registered and not self._must_amend else self._register()
                    )
                self._failures = 0
            except KafkaError as error:
                self._failures += 1
                failure = error.message or error.error_code.name
                if self._failures == 1:
                    log.warning("the controller does not accept this broker's %s: %s", self._request_name(), failure)
            if self.broker_epoch < 0 and trio.current_time() >= give_up_at:
                raise RegistrationFailed(
                    f"broker {self._config.node_id} could not register within "
                    f"{self._config.broker.initial_registration_timeout_ms} ms "
                    f"(initial.broker.registration.timeout.ms): {failure}"
                )
            with trio.move_on_after(pause_s):
                await self._wake.wait()
            self._wake = trio.Event()

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Registers again if the registration lacks log directories; reports changed `cordoned.log.dirs` at once.

        A subscriber of metadata changes.
        """
        node_id = self._config.node_id
        # As in Kafka's BrokerRegistrationTracker other changes do not ask again while the registration is on its way.
        may_lack = old.metadata_version != new.metadata_version or old.brokers.get(node_id) is not new.brokers.get(
            node_id
        )
        if self._is_registered and may_lack and lacks_directories(new, node_id):
            self._must_amend = True
            self._wake.set()
        is_caught_up = self._caught_up.is_set() and old.configs is not new.configs
        if is_caught_up and list(self._directories.cordoned_directory_ids()) != self._reported_cordoned:
            self._wake.set()

    def send_heartbeat_now(self) -> None:
        """Sends the next heartbeat at once: a log directory has failed."""
        self._wake.set()

    async def caught_up(self) -> None:
        """Returns when this broker has applied the metadata up to its own registration."""
        await self._caught_up.wait()

    async def serve(self) -> None:
        """Asks for unfencing; returns when the controller has unfenced this broker."""
        self._is_ready = True
        self._wake.set()
        await self._unfenced.wait()

    async def leave(self) -> None:
        """Controlled shutdown: returns when the controller has moved this broker's leaderships and permits the stop.

        It returns without permission after `CONTROLLED_SHUTDOWN_MAX_S`, and earlier when no active controller answers
        for longer than an election takes: the last nodes of a cluster that stops as a whole have no controller.
        """
        if self.state is not State.RUNNING:
            return
        if self._config.node_id not in self._controller.image.brokers:
            log.info("stopping without the controller's permission: this broker was unregistered and leads nothing")
            return
        self.state = State.PENDING_CONTROLLED_SHUTDOWN
        self._wake.set()
        config = self._config
        silence_s = (2 * config.quorum.election_timeout_ms + config.quorum.fetch_timeout_ms) / 1000
        self._answered_at = trio.current_time()
        give_up_at = self._answered_at + CONTROLLED_SHUTDOWN_MAX_S
        while not self._may_stop.is_set():
            until = min(give_up_at, self._answered_at + silence_s)
            if trio.current_time() >= until:
                log.warning("stopping without the controller's permission, which did not come in time")
                return
            if self._is_quorum_gone() and trio.current_time() >= self._answered_at + NO_QUORUM_TIMEOUT_S:
                log.info("stopping without the controller's permission: too few controllers answer to elect one")
                return
            with trio.move_on_after(CHECK_INTERVAL_S):
                await self._may_stop.wait()

    def _request_name(self) -> str:
        return "heartbeats" if self._is_registered else "registration"

    def _retry_pause_s(self) -> float:
        return min(RETRY_FIRST_S * 2.0 ** min(self._failures, 10), self._config.broker.heartbeat_interval_ms / 1000)

    async def _register(self) -> float:
        from pykbroker.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=endpoints_as(Listener, self._endpoints),
            features=features_as(Feature, self._features),
            rack=self._config.broker.rack,
            log_dirs=list(self._directories.online_directory_ids()),
            previous_broker_epoch=self._previous_broker_epoch,
        )
        response = await self._channel.request(request, self._config.broker.session_timeout_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            from pykbroker.controller.metadata.brokers import reason_not_supported

            # The response has no text; the unsupported feature is in the metadata, which this node has already.
            reason = reason_not_supported(self._controller.image, self._features)
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason or ErrorCode.UNSUPPORTED_VERSION.name)
        _check(response.error_code)
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._must_amend = False
        log.info("registered as broker %d with broker epoch %d", self._config.node_id, self.broker_epoch)
        return 0.0

    async def _send_heartbeat(self) -> float:
        """Sends one heartbeat; returns the pause before the next one, in seconds."""
        from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

        state = self.state
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._controller.image.offset,
            want_fence=not self._is_ready,
            want_shut_down=state is State.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._directories.offline_directory_ids()),
        )
        # Before the broker has caught up it does not know its dynamic settings.
        if self._caught_up.is_set() and self._controller.image.metadata_version >= CORDONED_LOG_DIRS:
            self._reported_cordoned = list(self._directories.cordoned_directory_ids())
            request.cordoned_log_dirs = self._reported_cordoned
        response = await self._channel.request(request, self._config.broker.session_timeout_ms)
        self._answered_at = trio.current_time()
        code = answered_error(response.error_code)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._check_own_registration()
        _check(code)
        interval_s = self._config.broker.heartbeat_interval_ms / 1000
        match state:
            case State.STARTING:
                if response.is_caught_up:
                    self.state = State.RECOVERY
                    self._caught_up.set()
                return STARTING_PAUSE_S
            case State.RECOVERY:
                if not response.is_fenced:
                    self.state = State.RUNNING
                    self._unfenced.set()
                elif self._is_ready:
                    # The controller has not unfenced this broker yet.
                    return STARTING_PAUSE_S
            case State.PENDING_CONTROLLED_SHUTDOWN:
                if response.should_shut_down:
                    log.info("the controller lets broker %d stop", self._config.node_id)
                    self._is_over = True
                    self._may_stop.set()
                return SHUTDOWN_PAUSE_S
        return interval_s

    def _check_own_registration(self) -> None:
        """Registers again if the registration in the metadata is this broker's own, of another epoch.

        Not if another process has its id: the two would take turns without end. Nor if this broker was unregistered
        (UnregisterBroker): as in Kafka's BrokerLifecycleManager it stays away until its next start, or an
        administrator could not remove a broker that still runs.
        """
        broker = self._controller.image.brokers.get(self._config.node_id)
        if broker is None:
            if self._failures == 0 and self._caught_up.is_set():
                log.error("broker %d was unregistered; restart it to register it again", self._config.node_id)
        elif broker.incarnation_id == self._incarnation_id:
            self._is_registered = False
        elif self._failures == 0:
            log.error(
                "another process has registered as broker %d: each broker needs a node.id of its own",
                self._config.node_id,
            )


def _check(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise KafkaError(answered_error(error_code), answered_error(error_code).name)
