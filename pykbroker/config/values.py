"""The settings of a node as frozen values, grouped as Kafka's documentation and code group them.

A field has the name of its key with "_" for ".", without the words that are in the name of its group:
`controller.quorum.fetch.timeout.ms` is `config.quorum.fetch_timeout_ms`. Units are in the names; -1 means unlimited for
the same keys as in Kafka. The column `attribute` or `part_of` of definitions/broker.py names the field of each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pykbroker.config.definitions import ConfigKey
from pykbroker.config.definitions.broker import BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.listener_addresses import LISTENER_PREFIX, ListenerAddress
from pykbroker.named_tuple import NamedTuple

BROKER = "broker"
CONTROLLER = "controller"

SINGLE_NODE_DEFAULTS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
}
"""Defaults of this broker for keys that Kafka requires and has no default for: one node, broker and controller."""


class Frozen:
    """Immutable values, given by keyword. A subclass declares its attributes by annotations, which mypy checks.

    Sixteen NamedTuples in place of these would cost 5 ms of each start, dataclasses more.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def replaced(self, **values: Any) -> Self:
        """A copy with other values."""
        return type(self)(**(self.__dict__ | values))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class BrokerValues(Frozen):
    """A broker's relation to the controller: registration, heartbeats, shutdown."""

    controlled_shutdown_enable: bool
    heartbeat_interval_ms: int
    initial_registration_timeout_ms: int
    metric_reporters: tuple[str, ...]
    rack: str | None
    session_end_on_refusal: bool
    session_timeout_ms: int
    telemetry_max_bytes: int
    unstable_api_versions_enable: bool
    unstable_feature_versions_enable: bool


class ConnectionValues(Frozen):
    """Limits of connections: their number, their rate, their idle time."""

    failed_authentication_delay_ms: int
    max_creation_rate: int
    max_idle_ms: int
    max_per_ip: int
    max_per_ip_overrides: str
    max_total: int


class ControllerValues(Frozen):
    """The channel of a broker to the active controller."""

    socket_timeout_ms: int


class DelegationTokenValues(Frozen):
    """Delegation tokens (KIP-48).

    Attributes:
        secret_key: secret from which the tokens' HMACs are made; None if there are no tokens.
    """

    expiry_check_interval_ms: int
    expiry_time_ms: int
    max_lifetime_ms: int
    secret_key: str | None


class FetchValues(Frozen):
    """Fetch requests of clients and followers."""

    max_bytes: int
    max_incremental_session_cache_slots: int


class GroupValues(Frozen):
    """The group coordinator and its topic __consumer_offsets."""

    initial_rebalance_delay_ms: int
    max_session_timeout_ms: int
    max_size: int
    min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    rebalance_protocols: tuple[str, ...]


class MemberTimeValues(Frozen):
    """Times of the members of one type of modern groups, and the bounds of a group's own settings."""

    assignment_interval_ms: int
    heartbeat_interval_ms: int
    max_assignment_interval_ms: int
    max_heartbeat_interval_ms: int
    max_session_timeout_ms: int
    min_assignment_interval_ms: int
    min_heartbeat_interval_ms: int
    min_session_timeout_ms: int
    session_timeout_ms: int


class ConsumerGroupValues(MemberTimeValues):
    """Consumer groups (KIP-848). `classic` are the settings of the classic group that a consumer group may become."""

    assignors: tuple[str, ...]
    classic: GroupValues
    max_size: int
    migration_policy: str
    regex_refresh_interval_ms: int

    @property
    def is_upgrade_enabled(self) -> bool:
        """True if a classic group becomes a consumer group when a member of the consumer protocol joins it."""
        return self.migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def is_downgrade_enabled(self) -> bool:
        """True if a consumer group becomes a classic group when its last member of the consumer protocol leaves."""
        return self.migration_policy.lower() in ("downgrade", "bidirectional")

    @property
    def is_migration_enabled(self) -> bool:
        """True if members of the classic protocol may join a consumer group."""
        return self.migration_policy.lower() != "disabled"


class LogValues(Frozen):
    """The log directories and the periodic tasks on their logs.

    `metadata_dir` has __cluster_metadata, by default the first of `dirs`. `cordoned_dirs` are those that get no new
    replicas, or "*" alone for all (`cordoned.log.dirs`).
    """

    cleaner_backoff_ms: int
    cleaner_enable: bool
    cordoned_dirs: tuple[str, ...]
    dir_failure_timeout_ms: int
    dirs: tuple[str, ...]
    flush_offset_checkpoint_interval_ms: int
    flush_scheduler_interval_ms: int
    flush_start_offset_checkpoint_interval_ms: int
    initial_task_delay_ms: int
    metadata_dir: str | None
    retention_check_interval_ms: int


class MetadataLogValues(Frozen):
    """Records, segments and snapshots of __cluster_metadata."""

    max_idle_interval_ms: int
    max_record_bytes_between_snapshots: int
    max_snapshot_interval_ms: int
    segment_bytes: int
    segment_ms: int


class NetworkValues(Frozen):
    """Listeners: the addresses that a node binds, and those that it advertises.

    Attributes:
        all_listeners: addresses to bind, in the order of `listeners`.
        listeners: those for clients and brokers; empty unless the node is a broker.
        controller_listeners: those that `controller.listener.names` names; empty if the node is only a broker, and on
            a single node without any.
        advertised_listeners: `advertised.listeners` by listener name, as given; empty if it is not set. The addresses
            for clients and nodes that follow from it are in pykbroker/metadata/advertised_listeners.py.
        advertised_controller_listeners: the same of the controller's listeners.
        inter_broker_listener: name of the listener for other brokers: `inter.broker.listener.name`, else the name of
            the protocol.
        security_protocols: listener name -> security protocol; names are in upper case.
    """

    advertised_controller_listeners: Mapping[str, ListenerAddress]
    advertised_listeners: Mapping[str, ListenerAddress]
    all_listeners: tuple[ListenerAddress, ...]
    controller_listener_names: tuple[str, ...]
    controller_listeners: tuple[ListenerAddress, ...]
    inter_broker_listener: str
    listeners: tuple[ListenerAddress, ...]
    security_protocols: Mapping[str, str]

    @property
    def controller_listener(self) -> str:
        """Name of the listener on which nodes connect to controllers: the first of `controller.listener.names`."""
        return self.controller_listener_names[0].upper() if self.controller_listener_names else "CONTROLLER"


class QuorumValues(Frozen):
    """The quorum of controllers (KRaft): keys that begin with `controller.quorum.`.

    Attributes:
        voters: node id -> (host, port) from `controller.quorum.voters`; empty if the voters are in the log, only this
            node if neither voters nor bootstrap servers are set.
        bootstrap_servers: (host, port) of controllers; their responses name the other controllers.
    """

    append_linger_ms: int
    auto_join_enable: bool
    bootstrap_servers: tuple[tuple[str, int], ...]
    election_backoff_max_ms: int
    election_on_refusal: bool
    election_timeout_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    voters: Mapping[int, tuple[str, int]]


class QuotaValues(Frozen):
    """Windows in which the rates of client quotas and replication throttles are measured."""

    alter_log_dirs_window_num: int
    alter_log_dirs_window_size_seconds: int
    controller_window_num: int
    controller_window_size_seconds: int
    replication_window_num: int
    replication_window_size_seconds: int
    window_num: int
    window_size_seconds: int


class ReplicationValues(Frozen):
    """Followers' fetches, in-sync replicas and the balance of leaders."""

    alter_log_dirs_threads: int | None
    auto_leader_rebalance_enable: bool
    fetch_backoff_ms: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    fetch_response_max_bytes: int
    fetch_wait_max_ms: int
    high_watermark_checkpoint_interval_ms: int
    lag_time_max_ms: int
    leader_imbalance_check_interval_seconds: int
    selector_class: str | None
    socket_timeout_ms: int
    unclean_leader_election_interval_ms: int


NODE_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""SASL mechanisms that a listener can offer, and by which a node can log in at others."""


class NodeLogin(NamedTuple):
    """A login of this node at other nodes.

    Attributes:
        mechanism: SASL mechanism.
        options: options of its login module: `username`, `password`, `tokenauth`, ...
        settings: keys that begin with `sasl.oauthbearer.`, those of the listener first; for GSSAPI
            `sasl.kerberos.service.name`.
    """

    mechanism: str
    options: Mapping[str, str]
    settings: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"NodeLogin({self.mechanism}, {self.options.get('username', '')})"


class SecurityValues(Frozen):
    """Authorizer and SASL.

    Attributes:
        super_users, allow_everyone_if_no_acl_found: settings of the authorizer, which are not keys of Kafka's broker
            itself; empty and False without an authorizer.
        node_logins: logins of this node at other nodes, by name of a SASL listener between nodes.
    """

    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    node_logins: Mapping[str, NodeLogin]
    principal_builder_class: str
    super_users: frozenset[str]


class ShareCoordinatorValues(Frozen):
    """The share coordinator and its topic __share_group_state."""

    cold_partition_snapshot_interval_ms: int
    snapshot_update_records_per_snapshot: int
    state_topic_compression_codec: int
    state_topic_min_isr: int
    state_topic_num_partitions: int
    state_topic_prune_interval_ms: int
    state_topic_replication_factor: int
    state_topic_segment_bytes: int
    write_timeout_ms: int


class ShareGroupValues(MemberTimeValues):
    """Share groups (KIP-932): their members, and the leaders of their share partitions."""

    delivery_count_limit: int
    initialize_retry_interval_ms: int
    max_delivery_count_limit: int
    max_partition_max_record_locks: int
    max_record_lock_duration_ms: int
    max_share_sessions: int
    max_size: int
    min_delivery_count_limit: int
    min_partition_max_record_locks: int
    min_record_lock_duration_ms: int
    partition_max_record_locks: int
    record_lock_duration_ms: int


class StreamsGroupValues(MemberTimeValues):
    """Streams groups (KIP-1071)."""

    initial_rebalance_delay_ms: int
    max_size: int
    max_standby_replicas: int
    num_standby_replicas: int


class SocketValues(Frozen):
    """Sizes of requests, and of the kernel's buffers and backlog of a socket."""

    listen_backlog_size: int
    queued_max_request_bytes: int
    receive_buffer_bytes: int
    request_max_bytes: int
    send_buffer_bytes: int


class TopicValues(Frozen):
    """Creation of topics, and default settings of topics.

    Attributes:
        defaults: every topic key with its text, from the broker keys that a topic inherits from.
    """

    auto_create_enable: bool
    default_replication_factor: int
    defaults: Mapping[str, str]
    delete_enable: bool
    max_request_partition_size_limit: int
    num_partitions: int


class TransactionValues(Frozen):
    """The transaction coordinator and its topic __transaction_state, and producer ids."""

    abort_timed_out_transaction_cleanup_interval_ms: int
    add_partitions_retry_backoff_max_ms: int
    add_partitions_retry_backoff_ms: int
    max_timeout_ms: int
    partition_verification_enable: bool
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    remove_expired_transaction_cleanup_interval_ms: int
    state_log_min_isr: int
    state_log_num_partitions: int
    state_log_replication_factor: int
    state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    two_phase_commit_enable: bool


class ConfigValues(Frozen):
    """All settings of one node.

    Attributes:
        static_properties: keys and texts as given, without blanks around them.
        unknown_keys: given keys that Kafka does not know.
        ineffective_keys: given keys that Kafka knows and this broker does not act on.
    """

    node_id: int
    process_roles: tuple[str, ...]
    request_timeout_ms: int
    broker: BrokerValues
    connections: ConnectionValues
    controller: ControllerValues
    delegation_tokens: DelegationTokenValues
    fetch: FetchValues
    consumer_groups: ConsumerGroupValues
    groups: GroupValues
    log: LogValues
    metadata_log: MetadataLogValues
    network: NetworkValues
    quorum: QuorumValues
    quotas: QuotaValues
    replication: ReplicationValues
    security: SecurityValues
    share_coordinator: ShareCoordinatorValues
    share_groups: ShareGroupValues
    sockets: SocketValues
    streams_groups: StreamsGroupValues
    topics: TopicValues
    transactions: TransactionValues
    static_properties: Mapping[str, str]
    unknown_keys: tuple[str, ...]
    ineffective_keys: tuple[str, ...]

    @property
    def is_broker(self) -> bool:
        """True if this process serves partitions."""
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """True if this process is a controller."""
        return CONTROLLER in self.process_roles

    @property
    def is_alone(self) -> bool:
        """True if this process is a quorum of one: the only controller of its cluster."""
        return set(self.quorum.voters) == {self.node_id}

    @property
    def has_peers(self) -> bool:
        """True if other nodes may belong to this cluster: brokers can join a quorum of one by a controller listener."""
        return not self.is_alone or bool(self.network.controller_listeners)

    def value(self, key: str) -> Any:
        """The typed value of any broker key, given or by default; None without both.

        For keys without an attribute: they are only checked, or are bounds of others, and have no effect by themselves.
        """
        return value_of(key, self.static_properties)

    def listener_property(self, listener_name: str, key: str) -> str | None:
        """The text of a key for one listener: `listener.name.<name>.<key>` if set, else `<key>`, else its default."""
        text = self.static_properties.get(f"{LISTENER_PREFIX}{listener_name.lower()}.{key}")
        if text is None:
            text = self.static_properties.get(key)
        return default_text(key) if text is None else text


def broker_definition(key: str) -> ConfigKey | None:
    """Definition of a broker key, listed by Kafka or not; None for an unknown key."""
    return BROKER_CONFIGS.get(key) or INTERNAL_BROKER_CONFIGS.get(key)


def default_text(key: str) -> str | None:
    """Default text of a broker key; None for a key without default and for an unknown key."""
    definition = broker_definition(key)
    return SINGLE_NODE_DEFAULTS.get(key, None if definition is None else definition.default)


def value_of(key: str, texts: Mapping[str, str]) -> Any:
    """The typed value of a broker key in these texts, or its default; None without both.

    Raises:
        ConfigError: the text is not of the key's type or not allowed.
    """
    text = texts.get(key)
    if text is None:
        text = default_text(key)
    if text is None:
        return None
    definition = broker_definition(key)
    assert definition is not None, key
    return definition.parse(key, text)
