"""Checks of settings that a node needs for its roles: listeners, names of listeners, times of heartbeats."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.config.definitions import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.values import ConfigValues

NO_CONTROLLER_LISTENER = (
    "requirement failed: controller.listener.names must contain at least one value appearing in the 'listeners' "
    "configuration when running the KRaft controller role"
)
"""Kafka's error text."""


def no_inter_broker_listener(advertised: Iterable[str]) -> str:
    """Kafka's error text where the listener between brokers is not among the advertised ones."""
    return (
        "requirement failed: inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {','.join(advertised)}"
    )


def check_inter_broker_name(config: ConfigValues) -> None:
    """`inter.broker.listener.name`, which Kafka checks in every role."""
    key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
    texts, name = config.static_properties, config.network.inter_broker_listener
    if key not in texts:
        return
    if not texts[key]:
        raise ConfigError(key, "", "must name a listener")
    if protocol_key in texts:
        raise ConfigError(protocol_key, texts[protocol_key], f"cannot be set together with {key}")
    if name not in config.network.security_protocols:
        raise ConfigError(key, name, "has no entry in listener.security.protocol.map")
    if not config.is_broker and name in config.network.controller_listener_names:
        raise ConfigError(key, name, "must not be one of controller.listener.names")


def check_inter_broker_mechanism(config: ConfigValues) -> None:
    """The mechanism between brokers must be one that their listener offers."""
    name = config.network.inter_broker_listener
    if not config.network.security_protocols.get(name, "PLAINTEXT").startswith("SASL"):
        return
    mechanism_key, enabled_key = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
    mechanism = config.value(mechanism_key)
    enabled = config.listener_property(name, enabled_key) or ""
    if mechanism not in BROKER_CONFIGS[enabled_key].parse(enabled_key, enabled):
        raise ConfigError(mechanism_key, mechanism, f"must be one of {enabled_key}, which are {enabled}")


def check_listeners_of_broker(config: ConfigValues) -> None:
    """A broker needs a listener for clients, and one of its advertised listeners must be for other brokers."""
    if not config.is_broker:
        return
    texts, network = config.static_properties, config.network
    if not network.listeners:
        raise ConfigError(
            "listeners",
            texts.get("listeners", ""),
            "no listener for clients: all are controller listeners",
            "requirement failed: There must be at least one broker advertised listener. Perhaps all listeners appear "
            "in controller.listener.names?",
        )
    if "advertised.listeners" in texts and not network.advertised_listeners:
        raise ConfigError("advertised.listeners", texts["advertised.listeners"], "must have a listener for clients")
    # In a single-node cluster no broker connects to the inter-broker listener: its default name need not be a listener.
    names = {listener.name for listener in network.listeners}
    if network.advertised_listeners:
        names &= set(network.advertised_listeners)
    given = [key for key in ("inter.broker.listener.name", "security.inter.broker.protocol") if key in texts]
    if network.inter_broker_listener not in names and (given or not config.is_alone):
        raise ConfigError(
            given[0] if given else "inter.broker.listener.name",
            network.inter_broker_listener,
            f"must be one of the advertised listeners, which are {', '.join(sorted(names))}",
            no_inter_broker_listener(network.advertised_listeners or [listener.name for listener in network.listeners]),
        )


def check_heartbeats(config: ConfigValues) -> None:
    """Heartbeat interval and session timeout must be positive; Kafka accepts others."""
    if not config.is_broker:
        return
    if config.broker.heartbeat_interval_ms <= 0:
        raise ConfigError("broker.heartbeat.interval.ms", config.broker.heartbeat_interval_ms, "must be at least 1")
    if config.broker.session_timeout_ms <= 0:
        raise ConfigError("broker.session.timeout.ms", config.broker.session_timeout_ms, "must be at least 1")


def check_auto_join(config: ConfigValues) -> None:
    if config.quorum.auto_join_enable and not config.is_controller:
        raise ConfigError(
            "controller.quorum.auto.join.enable", "true", "is for nodes whose process.roles has controller"
        )


def check_controller_names_of_broker(config: ConfigValues) -> None:
    """A node that is only a broker must name the controllers' listeners, none of which is its own."""
    if config.is_controller:
        return
    network = config.network
    key, names = "controller.listener.names", network.controller_listener_names
    if network.controller_listeners:
        raise ConfigError(
            key, ",".join(names), "must not name one of this node's listeners where process.roles is broker"
        )
    for name in names:
        if name.upper() not in network.security_protocols:
            raise ConfigError(
                key,
                name,
                "has no entry in listener.security.protocol.map, which must have one for each listener once it is set",
            )


def check_listeners_of_controller(config: ConfigValues) -> None:
    """A controller needs each of `controller.listener.names`; if it is not a broker it has no other listener."""
    if not config.is_controller:
        return
    network = config.network
    if not config.is_broker and network.listeners:
        raise ConfigError(
            "listeners",
            config.static_properties.get("listeners", ""),
            "must be controller listeners alone (controller.listener.names) where process.roles is controller",
        )
    names, own = network.controller_listener_names, network.controller_listeners
    if config.is_alone and config.is_broker and not own:
        return
    if len({listener.name for listener in own}) != len({name.upper() for name in names}) or not own:
        raise ConfigError(
            "controller.listener.names",
            ",".join(names),
            "each must be one of listeners where process.roles has controller",
            NO_CONTROLLER_LISTENER,
        )
    for address in network.advertised_controller_listeners.values():
        if not address.host:
            raise ConfigError(
                "advertised.listeners", f"{address.name}://", "needs a host name that nodes can connect to"
            )


CHECKS = (
    check_inter_broker_name,
    check_inter_broker_mechanism,
    check_listeners_of_controller,
    check_listeners_of_broker,
    check_heartbeats,
    check_auto_join,
    check_controller_names_of_broker,
)
