"""Bounds of dynamic settings that depend on the current values: Kafka's Reconfigurables (DynamicBrokerConfig).

Numbers of threads have no effect here, as there are no thread pools; clients get the same errors nevertheless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import BROKER_SYNONYMS
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.update_modes import ONLY_PER_LISTENER
from pykbroker.config.validation.log import check_local_retention

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig

_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_POOL_PER_LISTENER = "num.network.threads"
_LIMITS_PER_LISTENER = ("max.connections", "max.connection.creation.rate")
_LISTENER_KEYS = frozenset(
    {
        *_LIMITS_PER_LISTENER,
        _POOL_PER_LISTENER,
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Keys without a listener's prefix with whose change Kafka looks at the settings of all listeners."""
_CHANGING_PER_LISTENER = frozenset({*ONLY_PER_LISTENER, *_LIMITS_PER_LISTENER, _POOL_PER_LISTENER})
_LOG_KEYS = frozenset(name for synonyms in BROKER_SYNONYMS.values() for name, _ in synonyms)


def refusal_of_change(static: BrokerConfig, current: BrokerConfig, new: BrokerConfig) -> str | None:
    """Returns Kafka's error text for a change from the current settings to new ones; None if Kafka would accept it.

    `static` are the settings of the start, without dynamic ones.
    """
    reason = _reason(current, new) or _reason_of_listeners(static, current, new)
    if reason is None:
        return None
    # Kafka passes the exception as the value, and a text as the name of the key.
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} "
        "for configuration Invalid dynamic configuration"
    )


def _reason(current: BrokerConfig, new: BrokerConfig) -> str | None:
    for listener in new.network.listeners:
        before, after = (_limits(config, listener.name) for config in (current, new))
        if before != after:
            for key, value in after.items():
                if value <= 0:
                    return f"Invalid {key} {value}"
        old, number = (_of_listener(config, listener.name, _POOL_PER_LISTENER) for config in (current, new))
        reason = _reason_of_pool(_POOL_PER_LISTENER, old, number)
        if reason is not None:
            return reason
    for key in _POOLS:
        reason = _reason_of_pool(key, current.value(key), new.value(key))
        if reason is not None:
            return reason
    if current.log.cleaner_enable:
        old, number = (config.value("log.cleaner.threads") for config in (current, new))
        if number < old // 2:
            return f"Log cleaner threads cannot be reduced to less than half the current value {old}"
        if number > old * 2:
            return f"Log cleaner threads cannot be increased to more than double the current value {old}"
    if any(current.static_properties.get(key) != new.static_properties.get(key) for key in _LOG_KEYS):
        try:
            check_local_retention(new)
        except ConfigError as error:
            return str(error)
    return None


def _reason_of_listeners(static: BrokerConfig, current: BrokerConfig, new: BrokerConfig) -> str | None:
    """P-311: Kafka's DynamicListenerConfig holds the new settings of a listener against those of the start."""
    if any(current.static_properties.get(key) != new.static_properties.get(key) for key in _LISTENER_KEYS):
        for listener in new.network.listeners:
            if _unchanging(static, listener.name) != _unchanging(new, listener.name):
                return (
                    f"Configs cannot be updated dynamically for existing listener ListenerName({listener.name}), "
                    "restart broker or create a new listener for update"
                )
    return None


def _unchanging(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Settings of a listener that Kafka does not change while it runs, by key without the prefix."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    given = {key.removeprefix(prefix): text for key, text in config.static_properties.items() if key.startswith(prefix)}
    return {key: text for key, text in given.items() if key not in _CHANGING_PER_LISTENER}


def _reason_of_pool(key: str, old: int, new: int) -> str | None:
    what = f"Dynamic thread count update validation failed for {key}={new}, value should"
    if new < old // 2:
        return f"{what} be at least half the current value {old}"
    if new > old * 2:
        return f"{what} not be greater than double the current value {old}"
    return None


def _limits(config: BrokerConfig, listener: str) -> dict[str, int]:
    return {key: _of_listener(config, listener, key) for key in _LIMITS_PER_LISTENER}


def _of_listener(config: BrokerConfig, listener: str, key: str) -> int:
    text = config.listener_property(listener, key)
    assert text is not None
    number: int = BROKER_CONFIGS[key].parse(key, text)
    return number
