"""What a node is in its cluster, from its settings: its roles, the quorum, and which listener is whose.

The combinations that Kafka refuses are refused (KafkaConfig.validateValues, QuorumConfig); a node without any of these
settings is a cluster by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pykbroker.config.definitions import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.listener_addresses import (
    LISTENER_PREFIX,
    ListenerAddress,
    is_every_address,
    parse_bootstrap_servers,
    parse_voters,
)

BROKER = "broker"
CONTROLLER = "controller"

NOT_BETWEEN_NODES = "only PLAINTEXT and SASL_PLAINTEXT are available between nodes yet"

_JAAS_OPTION = re.compile(r'\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


def fill_roles(
    values: dict[str, Any],
    texts: Mapping[str, str],
    listeners: tuple[ListenerAddress, ...],
    advertised: tuple[ListenerAddress, ...],
    protocols: Mapping[str, str],
    voter_texts: list[str],
    bootstrap_texts: list[str],
) -> None:
    """Fills in what the roles and the quorum decide: who votes, and which listeners are for clients or for nodes.

    Args:
        values: parsed values of single keys; gets the composed ones.
        texts: the given texts.
        listeners, advertised: what the keys of these names give.
        protocols: listener name -> security protocol.
        voter_texts, bootstrap_texts: `controller.quorum.voters` and `controller.quorum.bootstrap.servers`.

    Raises:
        ConfigError: these settings contradict one another.
    """
    names = {name.upper() for name in values["controller_listener_names"]}
    values["listeners"] = tuple(listener for listener in listeners if listener.name not in names)
    values["controller_listeners"] = tuple(listener for listener in listeners if listener.name in names)
    values["advertised_listeners"] = {address.name: address for address in advertised if address.name not in names}
    values["advertised_controller_listeners"] = {
        address.name: address for address in advertised if address.name in names
    }
    _fill_quorum(values, texts, parse_voters(voter_texts), parse_bootstrap_servers(bootstrap_texts))
    roles = set(values["process_roles"])
    if not roles:
        raise ConfigError("process.roles", "", "must be broker, controller or broker,controller")
    _check_inter_broker(values, texts, protocols)
    if BROKER in roles:
        _check_broker(values, texts)
    if CONTROLLER in roles:
        _check_controller(values, texts, is_broker_too=BROKER in roles)
    else:
        _check_broker_only(values, texts, protocols)
    _fill_logins(values, texts, protocols)


def _fill_quorum(
    values: dict[str, Any],
    texts: Mapping[str, str],
    voters: dict[int, tuple[str, int]],
    servers: tuple[tuple[str, int], ...],
) -> None:
    node_id: int = values["node_id"]
    is_controller = CONTROLLER in values["process_roles"]
    if not voters and not servers:
        if not is_controller:
            raise ConfigError(
                "controller.quorum.voters",
                "",
                "must name the controllers (id@host:port), or controller.quorum.bootstrap.servers some of them, "
                "where process.roles is broker",
            )
        voters = {node_id: ("localhost", 0)}
    elif voters and is_controller and node_id not in voters:
        raise ConfigError(
            "controller.quorum.voters",
            texts["controller.quorum.voters"],
            f"must name this node ({node_id}), as process.roles has controller",
        )
    elif node_id in voters and not is_controller:
        raise ConfigError(
            "controller.quorum.voters",
            texts["controller.quorum.voters"],
            f"must not name this node ({node_id}), as process.roles is broker alone",
        )
    for voter_id, (host, port) in voters.items():
        if len(voters) > 1 and port == 0:
            raise ConfigError("controller.quorum.voters", f"{voter_id}@{host}:0", "a voter needs a port")
        if len(voters) > 1 and is_every_address(host):
            raise ConfigError(
                "controller.quorum.voters",
                f"{voter_id}@{host}:{port}",
                "nodes cannot dial it; use a host name or address",
            )
    values["quorum_voters"] = voters
    values["quorum_bootstrap_servers"] = servers


def _check_inter_broker(values: Mapping[str, Any], texts: Mapping[str, str], protocols: Mapping[str, str]) -> None:
    """Check the listener between brokers as Kafka does in every role."""
    key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
    name = inter_broker_listener(texts)
    if key in texts:
        if not texts[key]:
            raise ConfigError(key, "", "must name a listener")
        if protocol_key in texts:
            raise ConfigError(protocol_key, texts[protocol_key], f"cannot be set beside {key}, which says it already")
        if name not in protocols:
            raise ConfigError(key, name, "has no entry in listener.security.protocol.map")
        if BROKER not in values["process_roles"] and name in values["controller_listener_names"]:
            raise ConfigError(key, name, "must not be one of controller.listener.names")
    if not protocols.get(name, "PLAINTEXT").startswith("SASL"):
        return
    mechanism_key, enabled_key = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
    mechanism = texts.get(mechanism_key, BROKER_CONFIGS[mechanism_key].default)
    enabled = texts.get(enabled_key, BROKER_CONFIGS[enabled_key].default or "")
    enabled = texts.get(f"{LISTENER_PREFIX}{name.lower()}.{enabled_key}", enabled)
    if mechanism not in BROKER_CONFIGS[enabled_key].parse(enabled_key, enabled):
        raise ConfigError(mechanism_key, mechanism, f"must be one of {enabled_key}, which are {enabled}")


def _check_broker(values: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    if not values["listeners"]:
        raise ConfigError(
            "listeners", texts.get("listeners", ""), "no listener for clients: all are controller listeners"
        )
    if "advertised.listeners" in texts and not values["advertised_listeners"]:
        raise ConfigError("advertised.listeners", texts["advertised.listeners"], "must have a listener for clients")
    # A cluster of one has nobody who would dial the listener between brokers, so its name may be anything there.
    name = inter_broker_listener(texts)
    is_alone = set(values["quorum_voters"]) == {values["node_id"]}
    names = {listener.name for listener in values["listeners"]}
    if values["advertised_listeners"]:
        names &= set(values["advertised_listeners"])
    given = [key for key in ("inter.broker.listener.name", "security.inter.broker.protocol") if key in texts]
    if name not in names and (given or not is_alone):
        raise ConfigError(
            given[0] if given else "inter.broker.listener.name",
            name,
            f"must be one of the advertised listeners, which are {', '.join(sorted(names))}",
        )
    interval, session = values["broker_heartbeat_interval_ms"], values["broker_session_timeout_ms"]
    if interval <= 0:
        raise ConfigError("broker.heartbeat.interval.ms", interval, "must be at least 1")
    if session <= 0:
        raise ConfigError("broker.session.timeout.ms", session, "must be at least 1")


def _check_broker_only(values: Mapping[str, Any], texts: Mapping[str, str], protocols: Mapping[str, str]) -> None:
    names: list[str] = values["controller_listener_names"]
    if values["controller_quorum_auto_join_enable"]:
        raise ConfigError(
            "controller.quorum.auto.join.enable", "true", "is for nodes whose process.roles has controller"
        )
    if not names:
        raise ConfigError("controller.listener.names", "", "must name a listener of the controllers")
    if values["controller_listeners"]:
        raise ConfigError(
            "controller.listener.names",
            ",".join(names),
            "must not name one of this node's listeners where process.roles is broker",
        )
    for name in names:
        if name.upper() not in protocols:
            raise ConfigError(
                "controller.listener.names",
                name,
                "has no entry in listener.security.protocol.map, which must have one for each listener once it is set",
            )


def _check_controller(values: Mapping[str, Any], texts: Mapping[str, str], *, is_broker_too: bool) -> None:
    names: list[str] = values["controller_listener_names"]
    own = values["controller_listeners"]
    if not is_broker_too and values["listeners"]:
        raise ConfigError(
            "listeners",
            texts.get("listeners", ""),
            "must be controller listeners alone (controller.listener.names) where process.roles is controller",
        )
    is_alone = set(values["quorum_voters"]) == {values["node_id"]}
    if is_alone and is_broker_too and not own:
        return
    if len({listener.name for listener in own}) != len({name.upper() for name in names}) or not own:
        raise ConfigError(
            "controller.listener.names",
            ",".join(names),
            "each must be one of listeners where process.roles has controller",
        )
    for address in values["advertised_controller_listeners"].values():
        if not address.host:
            raise ConfigError("advertised.listeners", f"{address.name}://", "needs a host name that nodes can dial")


def _fill_logins(values: dict[str, Any], texts: Mapping[str, str], protocols: Mapping[str, str]) -> None:
    """How this node logs in at others: by SASL/PLAIN, where that is the protocol of a listener between nodes.

    A quorum of one may have no other broker ever, so nothing is asked of it; with other brokers it replicates from them
    as any broker does, and gets the login that its settings have.
    """
    logins: dict[str, tuple[str, str]] = {}
    values["node_logins"] = logins
    if set(values["quorum_voters"]) == {values["node_id"]}:
        if values["controller_listeners"] and BROKER in values["process_roles"]:
            _fill_login_of_only_voter(logins, texts, protocols)
        return
    wanted = [(name.upper(), "controller") for name in values["controller_listener_names"][:1]]
    if BROKER in values["process_roles"]:
        wanted.append((inter_broker_listener(texts), "inter.broker"))
    for name, kind in wanted:
        protocol = protocols.get(name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            continue
        if protocol != "SASL_PLAINTEXT":
            raise ConfigError("listener.security.protocol.map", f"{name}:{protocol}", NOT_BETWEEN_NODES)
        mechanism_key = f"sasl.mechanism.{kind}.protocol"
        mechanism = texts.get(mechanism_key, "GSSAPI")
        if mechanism != "PLAIN":
            raise ConfigError(mechanism_key, mechanism, "only PLAIN is available yet")
        logins[name] = _login_of(name, texts)


def _fill_login_of_only_voter(
    logins: dict[str, tuple[str, str]], texts: Mapping[str, str], protocols: Mapping[str, str]
) -> None:
    name = inter_broker_listener(texts)
    is_plain = texts.get("sasl.mechanism.inter.broker.protocol") == "PLAIN"
    if protocols.get(name) == "SASL_PLAINTEXT" and is_plain and (login := _find_login(name, texts)) is not None:
        logins[name] = login


def _login_of(name: str, texts: Mapping[str, str]) -> tuple[str, str]:
    """User and password of this node, from the login module of a listener.

    Raises:
        ConfigError: there are none.
    """
    login = _find_login(name, texts)
    if login is None:
        raise ConfigError(
            _jaas_key(name), "", 'must have username="..." password="...", with which this node logs in at others'
        )
    return login


def _jaas_key(name: str) -> str:
    return f"{LISTENER_PREFIX}{name.lower()}.plain.sasl.jaas.config"


def _find_login(name: str, texts: Mapping[str, str]) -> tuple[str, str] | None:
    jaas = next((texts[key] for key in (_jaas_key(name), "sasl.jaas.config") if key in texts), "")
    found = {
        key: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for key, quoted, bare in _JAAS_OPTION.findall(jaas)
    }
    if not found.get("username") or not found.get("password"):
        return None
    return found["username"], found["password"]


def inter_broker_listener(texts: Mapping[str, str]) -> str:
    """Name of the listener for other brokers: that of `inter.broker.listener.name`, else of the protocol's name."""
    name = texts.get("inter.broker.listener.name")
    return (name or texts.get("security.inter.broker.protocol") or "PLAINTEXT").upper()
