"""BrokerConfig: the settings of one broker, typed and checked, from server.properties keys.

Kafka's whole vocabulary is known (`config_definitions`); what this broker makes no use of is accepted and reported,
so that a file written for Apache Kafka starts us and says what it will not get. A value that Kafka would refuse is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.config.checks import check_replica_selector, check_together, fill_authorizer, topic_defaults
from pykbroker.config.definitions import ConfigDefinition, ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.definitions.topic import BROKER_SYNONYMS, INTERNAL_TOPIC_CONFIGS
from pykbroker.config.listener_addresses import (
    LISTENER_PREFIX,
    ListenerAddress,
    base_of_listener_key,
    parse_listeners,
    parse_protocol_map,
)
from pykbroker.config.roles import BROKER, CONTROLLER, fill_roles, inter_broker_listener

__all__ = ["SINGLE_NODE_DEFAULTS", "BrokerConfig", "ConfigError"]

SINGLE_NODE_DEFAULTS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
}
"""Where Kafka has no default and demands a value, ours makes one node that is broker and controller."""

# Keys with an effect that are not attributes of their own.
_PER_LISTENER = frozenset(
    {"max.connection.creation.rate", "max.connections", "sasl.enabled.mechanisms", "sasl.jaas.config"}
)
_READ_OTHERWISE = _PER_LISTENER | {
    "advertised.listeners",
    "broker.id",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "security.inter.broker.protocol",
    "listener.security.protocol.map",
    "log.dir",
    *(name for synonyms in BROKER_SYNONYMS.values() for name, _ in synonyms),
} - {"log.local.retention.bytes", "log.local.retention.ms"}

AVAILABLE_MECHANISM = "PLAIN"
_AUTHORIZER_KEYS = ("super.users", "allow.everyone.if.no.acl.found")


class BrokerConfig:
    """Settings under Kafka's names with "_" for "."; units are in the names, -1 means unlimited where Kafka says so.

    Attributes that are not plain values of one key:
        listeners: addresses to bind for clients and brokers; empty where there is no broker.
        controller_listeners: addresses to bind that `controller.listener.names` names; empty on a broker alone, and
            on a single node without any.
        advertised_listeners: what `advertised.listeners` says, by listener name; empty when it is not set. `advertised`
            has what follows for clients and nodes.
        advertised_controller_listeners: the same of the controller's listeners.
        quorum_voters: node id -> (host, port) from `controller.quorum.voters`; empty where the log says who votes,
            just this node where nothing is said at all.
        quorum_bootstrap_servers: (host, port) of controllers to ask for the others.
        node_logins: user and password of this node at others, by the name of a SASL listener between nodes.
        super_users, allow_everyone_if_no_acl_found: settings of the authorizer, which Kafka's broker does not know
            by itself; empty and False where there is none.
        static_properties: keys and texts as given.
        unknown_keys: given keys that Kafka does not know.
        ineffective_keys: given keys that Kafka knows and this broker does not act on.
    """

    # One attribute, one key; `_fill` reads these annotations.
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    authorizer_class_name: str
    auto_leader_rebalance_enable: bool
    auto_create_topics_enable: bool
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_end_on_refusal: bool
    broker_session_timeout_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_listener_names: list[str]
    controller_quorum_append_linger_ms: int
    controller_quorum_auto_join_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_on_refusal: bool
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_socket_timeout_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    log_cleaner_backoff_ms: int
    log_cleaner_enable: bool
    log_dirs: list[str]
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    node_id: int
    num_partitions: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: list[str]
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    sasl_server_max_receive_size: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    unclean_leader_election_interval_ms: int

    listeners: tuple[ListenerAddress, ...]
    controller_listeners: tuple[ListenerAddress, ...]
    advertised_listeners: Mapping[str, ListenerAddress]
    advertised_controller_listeners: Mapping[str, ListenerAddress]
    quorum_voters: Mapping[int, tuple[str, int]]
    quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    node_logins: Mapping[str, tuple[str, str]]
    super_users: frozenset[str]
    allow_everyone_if_no_acl_found: bool
    static_properties: Mapping[str, str]
    unknown_keys: tuple[str, ...]
    ineffective_keys: tuple[str, ...]
    topic_defaults: Mapping[str, str]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, is_start: bool = True) -> BrokerConfig:
        """Reads keys as in server.properties; `is_start` is False where some have been changed since.

        Raises:
            ConfigError: a value that Kafka refuses, or a combination that cannot work; names key, value and what is
                allowed.
        """
        config = cls.__new__(cls)
        texts = {key: text.strip() for key, text in properties.items()}
        _agree_on_node_id(texts)
        values: dict[str, Any] = {"static_properties": texts}
        _check_given(texts)
        for name, annotation in cls.__annotations__.items():
            key = name.replace("_", ".")
            if name in _COMPOSED:
                continue
            values[name] = _value_of(key, texts, may_be_null="None" in annotation or name == "log_dirs")
        values["log_dirs"] = values["log_dirs"] or _value_of("log.dir", texts)
        _fill_listeners(values, texts)
        fill_authorizer(values, texts)
        check_replica_selector(values)
        attributes = {name.replace("_", ".") for name in cls.__annotations__ if name not in _COMPOSED}
        known = _AUTHORIZER_KEYS if values["authorizer_class_name"] else ()
        unknown = [key for key in texts if not is_known_key(key) and key not in known]
        values["unknown_keys"] = tuple(sorted(unknown))
        ineffective = {*texts} - {*unknown, *known, *attributes, *_READ_OTHERWISE, "listeners"}
        values["ineffective_keys"] = tuple(sorted(key for key in ineffective if not _is_for_listener(key, values)))
        values["topic_defaults"] = topic_defaults(texts)
        check_together(values, texts, is_start=is_start)
        for name, value in values.items():
            object.__setattr__(config, name, value)
        return config

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"BrokerConfig is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"BrokerConfig is frozen: cannot delete {name}")

    def __repr__(self) -> str:
        return f"BrokerConfig({', '.join(f'{key}={text}' for key, text in sorted(self.static_properties.items()))})"

    def listener_property(self, listener_name: str, key: str) -> str | None:
        """The text of a key for one listener: `listener.name.<name>.<key>` if set, else `<key>`, else its default."""
        text = self.static_properties.get(f"{LISTENER_PREFIX}{listener_name.lower()}.{key}")
        if text is None:
            text = self.static_properties.get(key)
        if text is None and key in BROKER_CONFIGS:
            text = BROKER_CONFIGS[key].default
        return text

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for other brokers: that of `inter.broker.listener.name`, else of the protocol's name."""
        return inter_broker_listener(self.static_properties)

    @property
    def is_broker(self) -> bool:
        """Whether this process serves partitions."""
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this process is a controller."""
        return CONTROLLER in self.process_roles

    @property
    def is_alone(self) -> bool:
        """Whether this process is a quorum of one: its own controller, which needs nobody else."""
        return set(self.quorum_voters) == {self.node_id}

    @property
    def has_peers(self) -> bool:
        """True if other nodes may belong to this cluster: brokers can join a quorum of one by its controller's port."""
        return not self.is_alone or bool(self.controller_listeners)

    def with_dynamic(self, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """These settings under dynamic ones: `own` before `cluster_wide` before the given ones (KIP-226)."""
        if not cluster_wide and not own:
            return self
        return BrokerConfig.from_properties({**self.static_properties, **cluster_wide, **own}, is_start=False)


_COMPOSED = frozenset(
    {
        "advertised_controller_listeners",
        "advertised_listeners",
        "allow_everyone_if_no_acl_found",
        "controller_listeners",
        "ineffective_keys",
        "listeners",
        "node_logins",
        "quorum_bootstrap_servers",
        "quorum_voters",
        "static_properties",
        "super_users",
        "topic_defaults",
        "unknown_keys",
    }
)


def default_text(key: str) -> str | None:
    """The text of a broker key that nobody set; None for none, and for an unknown key."""
    definition = BROKER_CONFIGS.get(key) or INTERNAL_BROKER_CONFIGS.get(key)
    return SINGLE_NODE_DEFAULTS.get(key, None if definition is None else definition.default)


def _value_of(key: str, texts: Mapping[str, str], may_be_null: bool = False) -> Any:
    definition = BROKER_CONFIGS.get(key) or INTERNAL_BROKER_CONFIGS[key]
    text = texts.get(key)
    if text is None:
        text = default_text(key)
    if text is None:
        assert may_be_null, key
        return None
    return definition.parse(key, text)


def _agree_on_node_id(texts: dict[str, str]) -> None:
    """`broker.id` is the old name of `node.id`; Kafka sets the one from the other."""
    if "node.id" not in texts and "broker.id" in texts:
        texts["node.id"] = texts["broker.id"]
    node_id = texts.get("node.id", SINGLE_NODE_DEFAULTS["node.id"])
    if texts.setdefault("broker.id", node_id) != node_id:
        raise ConfigError(
            "broker.id", texts["broker.id"], f"differs from node.id, which is {node_id}; set node.id alone"
        )


def _check_given(texts: Mapping[str, str]) -> None:
    """Every given key is parsed, also those that nothing here acts on: a typing error should not wait for that."""
    for key, text in texts.items():
        definition: ConfigDefinition | None = BROKER_CONFIGS.get(key) or INTERNAL_BROKER_CONFIGS.get(key)
        if definition is None:
            definition = BROKER_CONFIGS.get(base_of_listener_key(key) or "")
        if definition is not None:
            definition.parse(key, text)


def is_known_key(key: str) -> bool:
    """True if a broker of Kafka has a setting of this name, `listener.name.<listener>.<key>` among them."""
    tables = (BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS, INTERNAL_TOPIC_CONFIGS)
    return any(key in table for table in tables) or base_of_listener_key(key) in BROKER_CONFIGS


def _is_for_listener(key: str, values: Mapping[str, Any]) -> bool:
    """Whether a key with a listener's prefix is one that is read, for a listener that there is."""
    name = key.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()
    names = {listener.name for listener in (*values["listeners"], *values["controller_listeners"])}
    return base_of_listener_key(key) in _PER_LISTENER and name in names | values["node_logins"].keys()


def _fill_listeners(values: dict[str, Any], texts: Mapping[str, str]) -> None:
    names: list[str] = values["controller_listener_names"]
    map_text = texts.get("listener.security.protocol.map")
    listener_texts: list[str] = _value_of("listeners", texts)
    protocols = parse_protocol_map(
        map_text if map_text is not None else default_text("listener.security.protocol.map") or "",
        names,
        map_text is not None,
        listener_texts,
    )
    listeners = parse_listeners("listeners", listener_texts, protocols)
    advertised = parse_listeners(
        "advertised.listeners", _value_of("advertised.listeners", texts, may_be_null=True) or [], protocols
    )
    bound = {listener.name for listener in listeners}
    for address in advertised:
        if address.name not in bound:
            raise ConfigError(
                "advertised.listeners", address.name, f"not one of listeners, which are {', '.join(sorted(bound))}"
            )
        if address.host == "0.0.0.0":  # noqa: S104  compared, not bound
            raise ConfigError(
                "advertised.listeners", address.host, "clients cannot dial it; use a host name or address"
            )
    for name in _value_of("early.start.listeners", texts, may_be_null=True) or []:
        if name not in bound:
            raise ConfigError(
                "early.start.listeners", name, f"not one of listeners, which are {', '.join(sorted(bound))}"
            )
    for listener in listeners:
        if listener.security_protocol.endswith("SSL"):
            raise ConfigError("listeners", listener.name, "TLS is not available yet; use PLAINTEXT or SASL_PLAINTEXT")
        if listener.security_protocol.startswith("SASL"):
            _check_mechanisms(listener.name, texts)
    quorum_keys = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
    fill_roles(values, texts, listeners, advertised, protocols, *(_value_of(key, texts) for key in quorum_keys))


def _check_mechanisms(listener_name: str, texts: Mapping[str, str]) -> None:
    """Mechanisms that were asked for must have the one that there is among them; its default in Kafka is GSSAPI."""
    key = "sasl.enabled.mechanisms"
    own = f"{LISTENER_PREFIX}{listener_name.lower()}.{key}"
    text = texts.get(own, texts.get(key))
    if text is not None and AVAILABLE_MECHANISM not in BROKER_CONFIGS[key].parse(key, text):
        raise ConfigError(own if own in texts else key, text, f"only {AVAILABLE_MECHANISM} is available yet")
