"""Settings of groups for tests: Kafka's defaults, and others by the names of Kafka's keys."""

from __future__ import annotations

from typing import Any

from pykbroker.config.broker_config import BrokerConfig

DEFAULT_CONFIG = BrokerConfig.from_properties({})


def classic_config(**values: Any) -> BrokerConfig:
    """The defaults with other values for classic groups or for offsets."""
    return DEFAULT_CONFIG.replaced(groups=DEFAULT_CONFIG.groups.replaced(**values))
