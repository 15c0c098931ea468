"""Checks of listeners: advertised ones must be bound, and the SASL mechanisms of each must be available."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.validation.roles import NO_CONTROLLER_LISTENER
from pykbroker.config.values import NODE_MECHANISMS, ConfigValues


def _bound_names(config: ConfigValues) -> str:
    return ", ".join(sorted(address.name for address in config.network.all_listeners))


def check_advertised(config: ConfigValues) -> None:
    network = config.network
    bound = {address.name for address in config.network.all_listeners}
    for address in (*network.advertised_listeners.values(), *network.advertised_controller_listeners.values()):
        if address.name not in bound:
            raise ConfigError(
                "advertised.listeners",
                address.name,
                f"not one of listeners, which are {_bound_names(config)}",
                _kafkas_text(config),
            )
        if address.host == "0.0.0.0":  # noqa: S104  compared, not bound
            raise ConfigError(
                "advertised.listeners", address.host, "clients cannot connect to it; use a host name or address"
            )


def _kafkas_text(config: ConfigValues) -> str:
    """Kafka's error text for an advertised listener that is not bound; it looks for that of the controllers before."""
    if config.is_controller and not config.network.controller_listeners:
        return NO_CONTROLLER_LISTENER
    return (
        "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined in "
        f"listeners. Found {','.join(config.network.advertised_listeners)}. The valid options based on the current "
        f"configuration are {','.join(address.name for address in config.network.all_listeners)}"
    )


def check_early_start(config: ConfigValues) -> None:
    bound = {address.name for address in config.network.all_listeners}
    for name in config.value("early.start.listeners") or []:
        if name not in bound:
            raise ConfigError("early.start.listeners", name, f"not one of listeners, which are {_bound_names(config)}")


def check_mechanisms(config: ConfigValues) -> None:
    """A given list of mechanisms must have an available one; the default, which is not checked, is GSSAPI in Kafka."""
    key = "sasl.enabled.mechanisms"
    texts = config.static_properties
    for listener in config.network.all_listeners:
        if not listener.security_protocol.startswith("SASL"):
            continue
        own = f"{LISTENER_PREFIX}{listener.name.lower()}.{key}"
        text = texts.get(own, texts.get(key))
        if text is not None and not set(NODE_MECHANISMS).intersection(BROKER_CONFIGS[key].parse(key, text)):
            available = ", ".join(NODE_MECHANISMS)
            raise ConfigError(own if own in texts else key, text, f"only {available} are available")


CHECKS = (check_advertised, check_early_start, check_mechanisms)
