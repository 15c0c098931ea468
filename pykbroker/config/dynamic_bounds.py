"""Bounds of dynamic settings that depend on the current values: Kafka's Reconfigurables (DynamicBrokerConfig).

Numbers of threads have no effect here, as there are no thread pools; clients get the same errors nevertheless.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import ConfigError, default_text
from pykbroker.config.definitions import CLASS, PER_BROKER, ConfigKey, class_not_found
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import BROKER_SYNONYMS
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.update_modes import ONLY_PER_LISTENER, is_dynamic
from pykbroker.config.validation.log import check_local_retention
from pykbroker.config.validation.roles import NO_CONTROLLER_LISTENER, no_inter_broker_listener
from pykbroker.java_order import scala_hash_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykbroker.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

_POOLS = ("background.threads", "num.io.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers")
_REMOTE_POOLS = (
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_POOL_PER_LISTENER = "num.network.threads"
_LIMITS_PER_LISTENER = ("max.connections", "max.connection.creation.rate")
_LISTENER_KEYS = frozenset(
    {key for key, definition in BROKER_CONFIGS.items() if definition.update_mode == PER_BROKER}
    - {*ONLY_PER_LISTENER, "cordoned.log.dirs"}
    | {*_LIMITS_PER_LISTENER, _POOL_PER_LISTENER}
)
"""Keys without a listener's prefix with whose change Kafka looks at the settings of all listeners."""
_CHANGING_PER_LISTENER = frozenset({*ONLY_PER_LISTENER, *_LIMITS_PER_LISTENER, _POOL_PER_LISTENER})
_CLEANER_KEYS = (
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "message.max.bytes",
)
_PACKAGES = ("java.", "javax.", "org.apache.kafka.")
_REPORTERS_KEY = "metric.reporters"
_KAFKAS_REPORTERS = frozenset(
    {"org.apache.kafka.common.metrics.JmxReporter", "org.apache.kafka.tools.PushHttpMetricsReporter"}
)
"""Classes of Kafka itself, which have no effect here."""
_LOG_KEYS = frozenset(name for synonyms in BROKER_SYNONYMS.values() for name in synonyms)


def refusal_of_change(static: BrokerConfig, current: BrokerConfig, new: BrokerConfig) -> str | None:
    """Returns Kafka's error text for a change from the current settings to new ones; None if Kafka would accept it.

    `static` are the settings of the start, without dynamic ones.
    """
    reason = (
        _reason_of_limits(current, new)
        or _reason_of_reporters(static, current, new)
        or _reason_of_pools(_POOLS, current, new)
        or _reason_of_retention(current, new)
        or _reason_of_listeners(static, current, new)
        or _reason_of_pools(_REMOTE_POOLS, current, new)
        or _reason_of_cleaner(current, new)
    )
    return None if reason is None else _reconfiguration_error(reason)


def check_type(key: str, text: str, definition: ConfigKey) -> None:
    """Checks the text of a setting by its definition, and a class by what can be known of Java's.

    Raises:
        ConfigError: the text is refused.
    """
    definition.parse(key, text)
    # A class of a plugin is not there, as nothing of Java is; those of Kafka and of the JDK are in every Kafka.
    if definition.type == CLASS and ":" not in text and not text.startswith(_PACKAGES):
        raise class_not_found(key, text)


def refusal_of_listener_values(config: BrokerConfig, settings: Mapping[str, str]) -> str | None:
    """Kafka's error text for changed settings of a listener whose keys are not dynamic; None if it would accept them.

    Its listeners read all of their settings when one changes, also those that then have no effect.
    """
    for listener in config.network.listeners:
        for key, text in _with_prefix(settings, listener.name).items():
            definition = BROKER_CONFIGS.get(key)
            if definition is not None and not is_dynamic(key):
                try:
                    check_type(key, text, definition)
                except ConfigError as error:
                    return _reconfiguration_error(error.kafkas_text)
    return None


def refusal_of_removal(static: BrokerConfig, new: BrokerConfig) -> str | None:
    """Kafka's error text if a listener that this node needs would be gone: the controllers' or that between brokers.

    A single node could start without them, but the controllers' port cannot be closed while it runs.
    """
    network = new.network
    if len(network.controller_listeners) < len(static.network.controller_listeners):
        return NO_CONTROLLER_LISTENER
    advertised = list(network.advertised_listeners) or [address.name for address in network.listeners]
    needed = static.network.inter_broker_listener
    if needed not in advertised and any(address.name == needed for address in static.network.listeners):
        return no_inter_broker_listener(advertised)
    return None


def _reconfiguration_error(reason: str) -> str:
    """Kafka's error text for a change that a part of the broker refuses."""
    # Kafka passes the exception as the value, and a text as the name of the key.
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} "
        "for configuration Invalid dynamic configuration"
    )


def _has_changed(keys: Iterable[str], current: BrokerConfig, new: BrokerConfig) -> bool:
    return any(current.static_properties.get(key) != new.static_properties.get(key) for key in keys)


def _reason_of_limits(current: BrokerConfig, new: BrokerConfig) -> str | None:
    # A listener that the change adds may have any values.
    for listener in current.network.listeners:
        before, after = (_limits(config, listener.name) for config in (current, new))
        if before != after:
            for key, value in after.items():
                if value <= 0:
                    return f"Invalid {key} {value}"
        old, number = (_listener_number(config, listener.name, _POOL_PER_LISTENER) for config in (current, new))
        reason = _reason_of_pool(_POOL_PER_LISTENER, old, number)
        if reason is not None:
            return reason
    return None


def _reason_of_reporters(static: BrokerConfig, current: BrokerConfig, new: BrokerConfig) -> str | None:
    """Kafka's DynamicMetricsReporters: classes that cannot be loaded are refused. Java's classes of the start stay."""
    if not _has_changed((_REPORTERS_KEY,), current, new):
        return None
    known = _KAFKAS_REPORTERS.union(static.broker.metric_reporters)
    if all(name in known or _is_receiver(name) for name in new.broker.metric_reporters):
        return None
    before, after = current.static_properties, new.static_properties
    # A setting with its default is in the texts only if another one has changed; ids are added to them.
    changed = [
        key
        for key, text in after.items()
        if key not in ("broker.id", "node.id") and before.get(key, default_text(key)) != text
    ]
    return (
        f"Validation of dynamic config update of Set({', '.join(scala_hash_order(changed))}) failed with class "
        "class kafka.server.DynamicMetricsReporters"
    )


def _is_receiver(name: str) -> bool:
    """True for `module:Class` if it can be imported; `telemetry.receivers` makes one later."""
    module, colon, attribute = name.partition(":")
    if not colon:
        return False
    try:
        return callable(getattr(import_module(module), attribute))
    except Exception as error:
        # An import may raise anything. The client gets Kafka's text, which has no reason.
        log.warning("%s: the class %s cannot be loaded: %r", _REPORTERS_KEY, name, error)
        return False


def _reason_of_pools(keys: Iterable[str], current: BrokerConfig, new: BrokerConfig) -> str | None:
    reasons = (_reason_of_pool(key, current.value(key), new.value(key)) for key in keys)
    return next((reason for reason in reasons if reason is not None), None)


def _reason_of_cleaner(current: BrokerConfig, new: BrokerConfig) -> str | None:
    if not current.log.cleaner_enable or not _has_changed(_CLEANER_KEYS, current, new):
        return None
    old, number = (config.value("log.cleaner.threads") for config in (current, new))
    if number < old // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {old}"
    if number > old * 2:
        return f"Log cleaner threads cannot be increased to more than double the current value {old}"
    return None


def _reason_of_retention(current: BrokerConfig, new: BrokerConfig) -> str | None:
    if _has_changed(_LOG_KEYS, current, new):
        try:
            check_local_retention(new)
        except ConfigError as error:
            return str(error)
    return None


def _reason_of_listeners(static: BrokerConfig, current: BrokerConfig, new: BrokerConfig) -> str | None:
    """P-311, P-484: Kafka's DynamicListenerConfig. It holds the settings of a listener against those of the start."""
    if not _has_changed(_LISTENER_KEYS, current, new):
        return None
    before, after = ([address.name for address in config.network.all_listeners] for config in (current, new))
    # An advertised listener stays: without advertised.listeners each one that was added, too.
    advertised = list(current.network.advertised_listeners) or [address.name for address in current.network.listeners]
    if not set(advertised).issubset(after):
        return f"Advertised listeners '{_as_set(advertised)}' must be a subset of listeners '{_as_set(after)}'"
    for name in after:
        if name not in before:
            continue
        if _unchangeable_settings(static, name) != _unchangeable_settings(new, name):
            return (
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), "
                "restart broker or create a new listener for update"
            )
        if current.network.security_protocols[name] != new.network.security_protocols[name]:
            return f"Security protocol cannot be updated for existing listener ListenerName({name})"
    return None


def _as_set(names: Iterable[str]) -> str:
    """A set of names of listeners as Scala shows it."""
    return f"Set({', '.join(f'ListenerName({name})' for name in names)})"


def _unchangeable_settings(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Settings of a listener that Kafka does not change while it runs, by key without the prefix."""
    given = _with_prefix(config.static_properties, listener)
    return {key: text for key, text in given.items() if key not in _CHANGING_PER_LISTENER}


def _with_prefix(settings: Mapping[str, str], listener: str) -> dict[str, str]:
    """Settings with the prefix of a listener, by key without it."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return {key.removeprefix(prefix): text for key, text in settings.items() if key.startswith(prefix)}


def _reason_of_pool(key: str, old: int, new: int) -> str | None:
    what = f"Dynamic thread count update validation failed for {key}={new}, value should"
    if new < old // 2:
        return f"{what} be at least half the current value {old}"
    if new > old * 2:
        return f"{what} not be greater than double the current value {old}"
    return None


def _limits(config: BrokerConfig, listener: str) -> dict[str, int]:
    return {key: _listener_number(config, listener, key) for key in _LIMITS_PER_LISTENER}


def _listener_number(config: BrokerConfig, listener: str, key: str) -> int:
    text = config.listener_property(listener, key)
    assert text is not None
    number: int = BROKER_CONFIGS[key].parse(key, text)
    return number
