"""What a handler is given besides the request: who asks, over what, and the services of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER, CLUSTER_NAME, OPERATIONS
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.active_controller import ActiveController
    from pykbroker.controller.node import ControllerNode
    from pykbroker.controller.peers import Peers
    from pykbroker.groups.coordinator import GroupCoordinator
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.metadata.broker_clients import BrokerClients
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.metadata.producer_ids import ProducerIds
    from pykbroker.protocol.api_keys import ApiKey
    from pykbroker.protocol.fields import Message
    from pykbroker.replication.fetch_sessions import FetchSessions
    from pykbroker.replication.partitions import Partitions
    from pykbroker.replication.replica_manager import ReplicaManager
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
    from pykbroker.security.standard_authorizer import StandardAuthorizer
    from pykbroker.transactions.coordinator import TransactionCoordinator
    from pykbroker.wall_clock import WallClock


class Services(NamedTuple):
    """The parts of one broker that handlers may use; made once by the composition root (`broker`).

    `authorizer` is None where everybody may do everything; `peers` and `active_controller` are None where this process
    has no controller's port, `broker_clients`, `replicas` and `leader_throttle` where there are no
    other brokers.
    """

    config: BrokerConfig
    cluster_id: str
    node_id: int
    metadata: MetadataCache
    partitions: Partitions
    controller: ControllerNode
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    log_directory: LogDirectory
    clock: WallClock
    random: random.Random
    run_in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    authorizer: StandardAuthorizer | None = None
    peers: Peers | None = None
    active_controller: ActiveController | None = None
    channel: ControllerChannel | None = None
    broker_clients: BrokerClients | None = None
    replicas: ReplicaManager | None = None
    leader_throttle: ReplicationThrottle | None = None


class Unfinished:
    """A response that is complete but for what has to be waited for; the client's next request can begin meanwhile.

    Args:
        response: the response's message.
        finish: waits, and puts into the response what came of it.
    """

    __slots__ = ("finish", "response")

    def __init__(self, response: Message, finish: Callable[[], Awaitable[None]]) -> None:
        self.response = response
        self.finish = finish


class RequestContext:
    """One request in progress.

    `may_be_unfinished`: whether the handler may give an `Unfinished` in place of its response.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "may_be_unfinished",
        "services",
    )

    def __init__(
        self,
        services: Services,
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
        self.may_be_unfinished = False

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def listener_kind(self) -> ListenerKind:
        return self.connection.listener_kind

    @property
    def local_host(self) -> str:
        return self.connection.local_host

    @property
    def local_port(self) -> int:
        return self.connection.local_port

    def authorize(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do this; the numbers are those of `protocol.acl_codes`."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.allows(
            self.connection.principal, self.connection.client_host, operation, resource_type, name
        )

    def authorize_cluster(self, operation: int) -> bool:
        """Whether the client may do this to the cluster as a whole."""
        return self.services.authorizer is None or self.authorize(operation, CLUSTER, CLUSTER_NAME)

    def require_cluster(self, operation: int) -> None:
        """Refuses the whole request of a client that may not do this to the cluster.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.authorize_cluster(operation):
            name = "".join(word.capitalize() for word in self.api_key.name.split("_"))
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"Request {name} needs {OPERATIONS[operation]} permission."
            )

    def refused(self, operation: int, resource_type: int, names: Iterable[str]) -> Collection[str]:
        """Those of the names with which the client may not do this; nothing is looked at without an authorizer."""
        if self.services.authorizer is None:
            return ()
        return {name for name in names if not self.authorize(operation, resource_type, name)}

    def authorized_operations(self, resource_type: int, name: str) -> int:
        """What the client may do to a topic, group or the cluster, as a bit field (KIP-430, P-30)."""
        from pykbroker.security.authorization import EVERY_OPERATION, SUPPORTED_OPERATIONS, bit_field

        if self.services.authorizer is None:
            return EVERY_OPERATION[resource_type]
        return bit_field(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.authorize(operation, resource_type, name)
        )
