"""Update modes of broker keys (KIP-226): read-only, per-broker or cluster-wide.

The mode of each key is in its row of the table. This module has the rules beyond the table: keys that exist only as
dynamic settings, and keys of one listener. DescribeConfigs (`descriptions`) and both APIs that alter configs
(`dynamic_changes`) use it.
"""

from __future__ import annotations

from pykbroker.config.definitions import AT_LEAST_0, LONG, LONG_MAX, PER_BROKER, READ_ONLY, ConfigKey
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS
from pykbroker.config.listener_addresses import base_of_listener_key

_THROTTLE = ConfigKey(LONG, LONG_MAX, AT_LEAST_0)
"""The row of each key in DYNAMIC_ONLY_CONFIGS."""

_CLUSTER_WIDE_PER_LISTENER = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})
"""Settings of one listener that may be set for all brokers."""

ONLY_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys and certificates, which Kafka can change only with a listener's prefix."""


def definition_of_broker_key(name: str) -> ConfigKey | None:
    """The definition of a broker key or of the key that it overrides for a listener."""
    if name in DYNAMIC_ONLY_CONFIGS:
        return _THROTTLE
    definition = BROKER_CONFIGS.get(name)
    if definition is None:
        base = base_of_listener_key(name)
        if base is not None:
            return BROKER_CONFIGS.get(base)
    return definition


def is_dynamic(name: str) -> bool:
    """True if Kafka can change a key while it runs. False for keys with a listener's prefix."""
    if name in DYNAMIC_ONLY_CONFIGS:
        return True
    return name in BROKER_CONFIGS and BROKER_CONFIGS[name].update_mode != READ_ONLY


def is_per_broker(name: str) -> bool:
    """True for a key that cannot be set for all brokers at once."""
    base = base_of_listener_key(name)
    if base is not None:
        return base not in _CLUSTER_WIDE_PER_LISTENER
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.update_mode == PER_BROKER
