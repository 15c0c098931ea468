"""Parsing of the texts of server.properties into values.

A value of a wrong type, outside of its key's own bounds, or malformed is refused here. Combinations are checked later,
in `validation`: until then values may contradict one another.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from pykbroker.config.definitions import ConfigError, format_value
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.definitions.topic import (
    BROKER_SYNONYMS,
    INTERNAL_TOPIC_CONFIGS,
    TOPIC_CONFIGS,
    factor_to_topic_unit,
)
from pykbroker.config.listener_addresses import (
    LISTENER_PREFIX,
    ListenerAddress,
    base_of_listener_key,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from pykbroker.config.values import (
    BROKER,
    CONTROLLER,
    NODE_MECHANISMS,
    SINGLE_NODE_DEFAULTS,
    BrokerValues,
    ConfigValues,
    ConnectionValues,
    ConsumerGroupValues,
    ControllerValues,
    DelegationTokenValues,
    FetchValues,
    GroupValues,
    LogValues,
    MetadataLogValues,
    NetworkValues,
    NodeLogin,
    QuorumValues,
    QuotaValues,
    ReplicationValues,
    SecurityValues,
    ShareCoordinatorValues,
    ShareGroupValues,
    SocketValues,
    StreamsGroupValues,
    TopicValues,
    TransactionValues,
    broker_definition,
    default_text,
    value_of,
)
from pykbroker.java_order import trim

AUTHORIZER_KEYS = ("super.users", "allow.everyone.if.no.acl.found")


def parse_properties(properties: Mapping[str, str]) -> ConfigValues:
    """Parses keys as in server.properties.

    Raises:
        ConfigError: a text is not of its key's type, is outside of the key's own bounds, or is malformed.
    """
    texts = {key: trim(text) for key, text in properties.items()}
    _agree_on_node_id(texts)
    plain = _plain_values(texts)
    top = plain[""]
    network = _network(plain["network"], texts)
    quorum = _quorum(plain["quorum"], texts, top["node_id"], top["process_roles"])
    logins = _node_logins(network, texts, top["process_roles"], is_alone=set(quorum.voters) == {top["node_id"]})
    log: dict[str, Any] = plain["log"]
    log["dirs"] = log["dirs"] or _frozen(value_of("log.dir", texts))
    security = _security(plain["security"], texts, logins)
    known = AUTHORIZER_KEYS if security.authorizer_class_name else ()
    unknown = [key for key in texts if key not in known and not is_known_key(key)]
    listener_names = {address.name for address in network.all_listeners} | logins.keys()
    ineffective = [
        key
        for key in texts.keys() - known - set(unknown)
        if not _has_effect(key) and not _is_for_listener(key, listener_names)
    ]
    groups = GroupValues(**plain["groups"])
    return ConfigValues(
        **top,
        broker=BrokerValues(**plain["broker"]),
        connections=ConnectionValues(**plain["connections"]),
        controller=ControllerValues(**plain["controller"]),
        delegation_tokens=DelegationTokenValues(**plain["delegation_tokens"]),
        fetch=FetchValues(**plain["fetch"]),
        consumer_groups=ConsumerGroupValues(**plain["consumer_groups"], classic=groups),
        groups=groups,
        log=LogValues(**log),
        metadata_log=MetadataLogValues(**plain["metadata_log"]),
        network=network,
        quorum=quorum,
        quotas=QuotaValues(**plain["quotas"]),
        replication=ReplicationValues(**plain["replication"]),
        security=security,
        share_coordinator=ShareCoordinatorValues(**plain["share_coordinator"]),
        share_groups=ShareGroupValues(**plain["share_groups"]),
        sockets=SocketValues(**plain["sockets"]),
        streams_groups=StreamsGroupValues(**plain["streams_groups"]),
        topics=TopicValues(**plain["topics"], defaults=_topic_defaults(texts)),
        transactions=TransactionValues(**plain["transactions"]),
        static_properties=MappingProxyType(texts),
        unknown_keys=tuple(sorted(unknown)),
        ineffective_keys=tuple(sorted(ineffective)),
    )


def is_known_key(key: str) -> bool:
    """True if Kafka's broker has a setting of this name, also as `listener.name.<listener>.<key>`."""
    tables = (BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS, INTERNAL_TOPIC_CONFIGS)
    return any(key in table for table in tables) or base_of_listener_key(key) in BROKER_CONFIGS


def _has_effect(key: str) -> bool:
    definition = broker_definition(key)
    return definition is not None and definition.has_effect


def _is_for_listener(key: str, listener_names: Collection[str]) -> bool:
    """True for a key with a listener's prefix that this broker reads, if it has that listener."""
    definition = BROKER_CONFIGS.get(base_of_listener_key(key) or "")
    name = key.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()
    return definition is not None and definition.per_listener and name in listener_names


def _agree_on_node_id(texts: dict[str, str]) -> None:
    """Sets `node.id` from its old name `broker.id` or the reverse, as Kafka does."""
    if "node.id" not in texts and "broker.id" in texts:
        texts["node.id"] = texts["broker.id"]
    node_id = texts.get("node.id", SINGLE_NODE_DEFAULTS["node.id"])
    if texts.setdefault("broker.id", node_id) != node_id:
        raise ConfigError(
            "broker.id", texts["broker.id"], f"differs from node.id, which is {node_id}; set node.id alone"
        )


def _plain_values(texts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Group -> field -> value, for the fields with the value of one key; the group of node_id is "".

    Every given key is parsed, also keys without effect here, so that typing errors are reported.
    """
    groups = {group: fields.copy() for group, fields in _default_values().items()}
    for key, text in texts.items():
        definition = broker_definition(key)
        if definition is None:
            definition = BROKER_CONFIGS.get(base_of_listener_key(key) or "")
            if definition is not None:
                definition.parse(key, text)
            continue
        value = definition.parse(key, text)
        if definition.attribute is not None:
            group, _, field = definition.attribute.rpartition(".")
            groups[group][field] = _frozen(value)
    return groups


@functools.cache
def _default_values() -> dict[str, dict[str, Any]]:
    """`_plain_values` of no given keys. Parsed once per process, as each dynamic change makes new values."""
    groups: dict[str, dict[str, Any]] = {}
    for table in (BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS):
        for key, definition in table.items():
            if definition.attribute is not None:
                group, _, field = definition.attribute.rpartition(".")
                groups.setdefault(group, {})[field] = _frozen(value_of(key, {}))
    return groups


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _network(plain: Mapping[str, Any], texts: Mapping[str, str]) -> NetworkValues:
    controller_names: tuple[str, ...] = plain["controller_listener_names"]
    listener_texts: list[str] = value_of("listeners", texts)
    map_text = texts.get("listener.security.protocol.map")
    protocols = parse_protocol_map(
        map_text if map_text is not None else default_text("listener.security.protocol.map") or "",
        controller_names,
        map_text is not None,
        listener_texts,
    )
    listeners = parse_listeners("listeners", listener_texts, protocols)
    advertised = parse_listeners("advertised.listeners", value_of("advertised.listeners", texts) or [], protocols)
    inter_broker = texts.get("inter.broker.listener.name") or value_of("security.inter.broker.protocol", texts)
    names = {name.upper() for name in controller_names}
    return NetworkValues(
        **plain,
        all_listeners=tuple(listeners),
        listeners=tuple(address for address in listeners if address.name not in names),
        controller_listeners=tuple(address for address in listeners if address.name in names),
        advertised_listeners=_by_name(address for address in advertised if address.name not in names),
        advertised_controller_listeners=_by_name(address for address in advertised if address.name in names),
        inter_broker_listener=inter_broker.upper(),
        security_protocols=MappingProxyType(protocols),
    )


def _by_name(addresses: Any) -> Mapping[str, ListenerAddress]:
    return MappingProxyType({address.name: address for address in addresses})


def _quorum(plain: Mapping[str, Any], texts: Mapping[str, str], node_id: int, roles: Collection[str]) -> QuorumValues:
    voters = parse_voters(value_of("controller.quorum.voters", texts))
    servers = parse_bootstrap_servers(value_of("controller.quorum.bootstrap.servers", texts))
    if not voters and not servers and CONTROLLER in roles:
        # A node without any of these settings is a single-node cluster.
        voters = {node_id: ("localhost", 0)}
    return QuorumValues(**plain, voters=MappingProxyType(voters), bootstrap_servers=servers)


def _security(plain: Mapping[str, Any], texts: Mapping[str, str], logins: Mapping[str, NodeLogin]) -> SecurityValues:
    # Only Kafka's authorizer reads these two keys: without one they have no effect.
    given = texts if plain["authorizer_class_name"] else {}
    return SecurityValues(
        **plain,
        super_users=frozenset(filter(None, map(str.strip, given.get("super.users", "").split(";")))),
        allow_everyone_if_no_acl_found=given.get("allow.everyone.if.no.acl.found", "").lower() == "true",
        node_logins=logins,
    )


def _node_logins(
    network: NetworkValues, texts: Mapping[str, str], roles: Collection[str], *, is_alone: bool
) -> Mapping[str, NodeLogin]:
    """This node's logins at other nodes, by name of a listener between nodes that has SASL."""
    logins: dict[str, NodeLogin] = {}
    for name, mechanism_key in listeners_between_nodes(network, roles, is_alone=is_alone):
        mechanism: str = value_of(mechanism_key, texts)
        has_sasl = network.security_protocols.get(name, "").startswith("SASL")
        login = find_login(name, mechanism, texts) if has_sasl and mechanism in NODE_MECHANISMS else None
        if login is not None:
            logins[name] = login
    return MappingProxyType(logins)


def listeners_between_nodes(network: NetworkValues, roles: Collection[str], *, is_alone: bool) -> list[tuple[str, str]]:
    """Names of the listeners of other nodes that this node connects to, each with the key of its SASL mechanism.

    A quorum of one connects to no controller, but to other brokers, from which it replicates as any broker does.
    """
    found = []
    if not is_alone and network.controller_listener_names:
        found.append((network.controller_listener, "sasl.mechanism.controller.protocol"))
    if BROKER in roles and (not is_alone or network.controller_listeners):
        found.append((network.inter_broker_listener, "sasl.mechanism.inter.broker.protocol"))
    return found


def listeners_with_tls(config: ConfigValues) -> list[str]:
    """Names of this node's listeners, and of listeners of other nodes that it connects to, which have TLS."""
    network = config.network
    own = (address.name for address in network.all_listeners)
    between = listeners_between_nodes(network, config.process_roles, is_alone=config.is_alone)
    names = dict.fromkeys((*own, *sorted({name for name, _ in between})))
    return [name for name in names if network.security_protocols.get(name, "").endswith("SSL")]


def jaas_key(listener_name: str, mechanism: str) -> str:
    """The key of the login module of a mechanism on a listener."""
    return f"{LISTENER_PREFIX}{listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"


def find_jaas(listener_name: str, mechanism: str, texts: Mapping[str, str]) -> tuple[str, str]:
    """The key that has the login module of a mechanism on a listener, with its text; "" if there is none.

    A key without the mechanism's name, which Kafka ignores, serves all mechanisms.
    """
    key, text = find_setting_of_mechanism(listener_name, mechanism, "sasl.jaas.config", texts)
    return key, text or ""


def find_setting_of_mechanism(
    listener_name: str, mechanism: str, key: str, texts: Mapping[str, str]
) -> tuple[str, str | None]:
    """The key that sets `key` for a mechanism on a listener, with its text; None if there is none.

    The first one that is given of `listener.name.<listener>.<mechanism>.<key>`, `listener.name.<listener>.<key>` and
    `<key>`.
    """
    prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
    own = f"{prefix}{mechanism.lower()}.{key}"
    found = next((name for name in (own, prefix + key, key) if name in texts), own)
    return found, texts.get(found)


def find_login(listener_name: str, mechanism: str, texts: Mapping[str, str]) -> NodeLogin | None:
    """This node's login in the login module of a listener; None if the module lacks options of the mechanism."""
    from pykbroker.config.jaas import JaasError, jaas_options

    try:
        options = jaas_options(find_jaas(listener_name, mechanism, texts)[1])
    except JaasError:
        return None  # the validation has refused it with the reason
    prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
    oauth = "sasl.oauthbearer."
    settings = {key: text for key, text in texts.items() if key.startswith(oauth)}
    settings |= {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix + oauth)}
    if mechanism == "OAUTHBEARER":
        is_usable = bool(settings.get("sasl.oauthbearer.token.endpoint.url")) or any(
            name.startswith("unsecuredLogin") for name in options
        )
    elif mechanism == "GSSAPI":
        key = "sasl.kerberos.service.name"
        service = options.get("serviceName") or texts.get(prefix + key) or texts.get(key)
        is_usable = bool(options.get("principal")) and options.get("useKeyTab", "").lower() == "true" and bool(service)
        settings = {key: service or ""}
    else:
        is_usable = bool(options.get("username")) and bool(options.get("password"))
    return NodeLogin(mechanism, options, settings) if is_usable else None


def _topic_defaults(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Every topic key with the text that topics without a setting of their own inherit, in the topic key's unit."""
    changed = {_topic_key_of_synonym()[key] for key in texts.keys() & _topic_key_of_synonym().keys()}
    return MappingProxyType({**_unset_topic_defaults(), **{name: _topic_default(name, texts) for name in changed}})


@functools.cache
def _unset_topic_defaults() -> dict[str, str]:
    return {name: _topic_default(name, {}) for name in TOPIC_CONFIGS}


@functools.cache
def _topic_key_of_synonym() -> dict[str, str]:
    return {synonym: name for name, synonyms in BROKER_SYNONYMS.items() for synonym in synonyms}


def _topic_default(name: str, texts: Mapping[str, str]) -> str:
    for synonym in BROKER_SYNONYMS.get(name, ()):
        value = value_of(synonym, texts)
        if value is not None:
            factor = factor_to_topic_unit(synonym)
            if factor != 1 or name == "retention.ms":
                # Kafka's broker treats each negative retention as unlimited.
                value = -1 if value < 0 else value * factor
            return format_value(value)
    return TOPIC_CONFIGS[name].default or ""
