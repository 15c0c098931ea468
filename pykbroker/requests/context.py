"""Context of a request for its handler: the client, its connection, and the services of the node."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER, CLUSTER_NAME, DESCRIBE, GROUP, TOPIC, TRANSACTIONAL_ID
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.quotas.switch import QuotaSwitch

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Collection, Iterable
    from typing import Self

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.active_controller import ActiveController
    from pykbroker.controller.node import ControllerNode
    from pykbroker.controller.peers import Peers
    from pykbroker.groups.coordinator import GroupCoordinator
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.metadata.broker_clients import BrokerClients
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.metadata.producer_ids import ProducerIds
    from pykbroker.protocol.api_keys import ApiKey
    from pykbroker.protocol.fields import Message
    from pykbroker.quotas.throttling import RequestQuota
    from pykbroker.replication.directory_moves import DirectoryMoves
    from pykbroker.replication.fetch_sessions import FetchSessions
    from pykbroker.replication.partitions import Partitions
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.requests.background_tasks import BackgroundTasks
    from pykbroker.run_in_thread import RunInThread
    from pykbroker.security.connection_info import ConnectionInfo, RepeatedRequests
    from pykbroker.security.custom_authorizer import CustomAuthorizer
    from pykbroker.security.principals import CheckedPrincipalBuilder
    from pykbroker.security.standard_authorizer import StandardAuthorizer
    from pykbroker.security.tls.node_tls import NodeTls
    from pykbroker.share_partitions.lazy import LazySharePartitions
    from pykbroker.share_state.coordinator import ShareCoordinator
    from pykbroker.telemetry.client_telemetry import ClientTelemetry
    from pykbroker.transactions.coordinator import TransactionCoordinator
    from pykbroker.wall_clock import WallClock


class NodeServices:
    """The parts of a node that every handler may use, on a broker's listener or on a controller's.

    Attributes:
        config: static settings; `metadata.config` has the dynamic ones too.
        controller: this process's node of the metadata quorum.
        authorizer: None if every client may do everything.
        principal_builder: None for Kafka's default principals.
        channel: connection to the active controller, in this process or another; None on a controller's listener.
        quotas: client quotas; those of a node are the same for its broker and its controller.
        tls: certificates of the node's listeners; None on a node without TLS.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        node_id: int,
        metadata: MetadataCache,
        controller: ControllerNode,
        log_directory: LogDirectory | LogDirectories,
        clock: WallClock,
        random: random.Random,
        run_in_thread: RunInThread,
        authorizer: StandardAuthorizer | CustomAuthorizer | None,
        principal_builder: CheckedPrincipalBuilder | None,
        channel: ControllerChannel | None = None,
        quotas: QuotaSwitch | None,
        tls: NodeTls | None,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.metadata = metadata
        self.controller = controller
        self.log_directory = log_directory
        self.clock = clock
        self.random = random
        self.run_in_thread = run_in_thread
        self.authorizer = authorizer
        self.principal_builder = principal_builder
        self.channel = channel
        self.quotas = QuotaSwitch() if quotas is None else quotas
        self.tls = tls

    def without_authorizer(self) -> Self:
        """The same services for a client that may do everything."""
        services = copy(self)
        services.authorizer = None
        return services


class BrokerServices(NodeServices):
    """The parts that handlers on a broker's listener may use.

    Attributes:
        shares: the share partitions that this broker leads.
        repeated_produce: Produce requests that are served like earlier ones; None before the first one.
        broker_clients, leader_throttle: None without other brokers.
        directory_moves: moves of replicas between log directories; None with a single one.
    """

    def __init__(
        self,
        node: NodeServices,
        *,
        partitions: Partitions,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_state: ShareCoordinator,
        shares: LazySharePartitions,
        producer_ids: ProducerIds,
        fetch_sessions: FetchSessions,
        telemetry: ClientTelemetry,
        background: BackgroundTasks,
        broker_clients: BrokerClients | None,
        directory_moves: DirectoryMoves | None,
        leader_throttle: ReplicationThrottle | None,
    ) -> None:
        super().__init__(**vars(node))
        self.partitions = partitions
        self.groups = groups
        self.transactions = transactions
        self.share_state = share_state
        self.shares = shares
        self.producer_ids = producer_ids
        self.fetch_sessions = fetch_sessions
        self.telemetry = telemetry
        self.background = background
        self.broker_clients = broker_clients
        self.directory_moves = directory_moves
        self.leader_throttle = leader_throttle
        self.repeated_produce: RepeatedRequests | None = None


class ControllerServices(NodeServices):
    """The parts that handlers on a controller's listener may use.

    Attributes:
        peers: connections to the other nodes of the quorum; None in a process that is the whole quorum.
        active_controller: sessions and elections of the active controller; None without other brokers to watch.
    """

    def __init__(self, node: NodeServices, *, peers: Peers | None, active_controller: ActiveController | None) -> None:
        super().__init__(**vars(node))
        self.peers = peers
        self.active_controller = active_controller


REFUSALS_MAX = 100
"""Largest number of refusals of one request that are kept for the audit log."""

_AUTHORIZATION_FAILED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

S_co = TypeVar("S_co", bound=NodeServices, covariant=True)


class UnfinishedResponse:
    """A response without its last result, which a handler returns to let the client's next request begin meanwhile.

    `dispatch` makes an UnfinishedReply of it.

    Args:
        response: the response's message.
        finish: waits, and puts the result into the response.
    """

    __slots__ = ("finish", "response")

    def __init__(self, response: Message, finish: Callable[[], Awaitable[None]]) -> None:
        self.response = response
        self.finish = finish


class RequestContext(Generic[S_co]):
    """One request in progress.

    `has_long_response`: True if the response should be encoded in turns with other requests.
    `may_be_unfinished`: True if the handler may return an `UnfinishedResponse` in place of its response.
    `quota`: limits of the client that concern the request; None if there are none.
    `refusals`: what the authorizer has refused so far, as (operation, resource type, name), for the audit log.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "has_long_response",
        "may_be_unfinished",
        "quota",
        "refusals",
        "services",
    )

    def __init__(
        self,
        services: S_co,
        connection: ConnectionInfo,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str,
    ) -> None:
        self.services = services
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.has_long_response = False
        self.may_be_unfinished = False
        self.quota: RequestQuota | None = None
        self.refusals: list[tuple[int, int, str]] | None = None

    def authorize(self, operation: int, resource_type: int, name: str) -> bool:
        """True if the client may do an operation on a resource; the numbers are those of `protocol.acl_codes`."""
        authorizer = self.services.authorizer
        if authorizer is None or authorizer.allows(
            self.connection.principal, self.connection.client_host, operation, resource_type, name
        ):
            return True
        if self.refusals is None:
            self.refusals = []
        if len(self.refusals) < REFUSALS_MAX:
            self.refusals.append((operation, resource_type, name))
        return False

    def require(self, operation: int, resource_type: int, name: str) -> None:
        """Refuses the whole request of a client that may not do an operation on a group or a transactional id.

        Raises:
            KafkaError: GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        if not self.authorize(operation, resource_type, name):
            raise KafkaError(_AUTHORIZATION_FAILED[resource_type])

    def may_describe_topic(self, name: str) -> bool:
        return self.authorize(DESCRIBE, TOPIC, name)

    def authorize_cluster(self, operation: int) -> bool:
        """True if the client may do an operation on the cluster resource."""
        return self.services.authorizer is None or self.authorize(operation, CLUSTER, CLUSTER_NAME)

    def require_cluster(self, operation: int) -> None:
        """Refuses the whole request of a client that may not do an operation on the cluster resource.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.authorize_cluster(operation):
            from pykbroker.requests.api_table import camel_case
            from pykbroker.security.authorization import refusal

            name = camel_case(self.api_key.name.lower())
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, refusal(name, operation))

    def refused(self, operation: int, resource_type: int, names: Iterable[str]) -> Collection[str]:
        """The names on which the client may not do an operation, in the order of `names`, none twice.

        Without an authorizer `names` is not consumed.
        """
        if self.services.authorizer is None:
            return ()
        return {name: None for name in names if not self.authorize(operation, resource_type, name)}

    async def refused_in_turns(self, operation: int, resource_type: int, names: Iterable[str]) -> Collection[str]:
        """As `refused`, for thousands of names, in turns with other requests."""
        if self.services.authorizer is None:
            return ()
        turn = Turn()
        found: dict[str, None] = {}
        for name in names:
            if not self.authorize(operation, resource_type, name):
                found[name] = None
            if turn.is_over:
                await turn.end_if_over()
        return found

    def authorized_operations(self, resource_type: int, name: str) -> int:
        """Operations that the client may do on a topic, group or the cluster, as a bit field (KIP-430, P-30)."""
        from pykbroker.security.authorization import EVERY_OPERATION, SUPPORTED_OPERATIONS, bit_field

        if self.services.authorizer is None:
            return EVERY_OPERATION[resource_type]
        return bit_field(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.authorize(operation, resource_type, name)
        )

    def cluster_operations(self) -> int:
        """Operations that the client may do on the cluster, as a bit field; 0 if it may not DESCRIBE the cluster."""
        return self.authorized_operations(CLUSTER, CLUSTER_NAME) if self.authorize_cluster(DESCRIBE) else 0


NodeContext: TypeAlias = RequestContext[NodeServices]
"""A request that is served on both kinds of listeners."""

BrokerContext: TypeAlias = RequestContext[BrokerServices]
"""A request on a broker's listener."""

ControllerContext: TypeAlias = RequestContext[ControllerServices]
"""A request on a controller's listener."""
