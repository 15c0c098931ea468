"""DynamicBrokerConfig: the settings that this broker uses, from its static settings and the dynamic ones of an image.

Effective settings of a topic are the topic's own settings over this broker's defaults. The defaults are dynamic
settings, its own before those of all brokers, over static settings over Kafka's defaults (P-152). The rules by which
dynamic settings are refused when they are stored are in `config/dynamic_changes.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import ProviderError
from pykbroker.controller.metadata.image import BROKER_RESOURCE
from pykbroker.logstore.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.controller.metadata.image import ClusterImage

log = logging.getLogger(__name__)

CLUSTER_WIDE_BROKER = (BROKER_RESOURCE, "")
"""Key in `ClusterImage.configs` of the dynamic settings of all brokers."""

LOG_CONFIGS_MAX = 1000
"""Largest number of log settings that are kept for topics to come."""

_NOTHING: Mapping[str, str] = {}


class DynamicBrokerConfig:
    """Settings of one broker under an image. The settings under the last image are kept until its settings change.

    Args:
        static: settings as given at the start.
        node_id: id of this broker.
    """

    def __init__(self, static: BrokerConfig, node_id: int) -> None:
        self.static = static
        self._own_resource = (BROKER_RESOURCE, str(node_id))
        # (cluster-wide, own) dynamic settings from which `_effective` was computed.
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = (_NOTHING, _NOTHING)
        self._effective = static
        # By the own settings of a topic, under `_effective`: thousands of topics have a few different ones.
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def under(self, image: ClusterImage) -> BrokerConfig:
        """Settings of this broker with the dynamic settings of an image."""
        cluster_wide = image.configs.get(CLUSTER_WIDE_BROKER, _NOTHING)
        own = image.configs.get(self._own_resource, _NOTHING)
        if (cluster_wide, own) != self._dynamic:
            self._effective = self._with_dynamic(cluster_wide, own)
            self._log_configs = {}
            self._dynamic = (cluster_wide, own)
        return self._effective

    def _with_dynamic(self, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        if own or any(not _is_of_elr(name, text) for name, text in cluster_wide.items()):
            # Imported late: most brokers start without other dynamic settings.
            from pykbroker.config.dynamic_changes import usable_settings, within_bounds

            cluster_wide, ignored = usable_settings(cluster_wide, is_one_broker=False)
            own, more = usable_settings(own, is_one_broker=True)
            if ignored or more:
                log.warning(
                    "ignoring stored dynamic settings that cannot be changed while a broker runs: %s",
                    ", ".join(sorted({*ignored, *more})),
                )
            cluster_wide, own = (within_bounds(level, self.static) for level in (cluster_wide, own))
        try:
            return self.static.with_dynamic(cluster_wide, own)
        except ProviderError as error:
            log.error("the changed dynamic settings of this broker are not used: %s", error)
            return self._effective
        except ConfigError as error:
            # Changes are checked before they are stored, but not at a controller's port or against new static settings.
            log.warning("the changed dynamic settings of this broker are not used: %s", error)
            return self._effective

    def log_config(self, image: ClusterImage, topic: str) -> LogConfig:
        """Log settings of a topic under an image. Topics with the same settings of their own share one value."""
        return self._log_config(self.under(image), image.topic_config(topic))

    def default_log_config(self, image: ClusterImage) -> LogConfig:
        """Log settings of a topic without any of its own."""
        return self._log_config(self.under(image), _NOTHING)

    def _log_config(self, config: BrokerConfig, own: Mapping[str, str]) -> LogConfig:
        settings = tuple(own.items())
        found = self._log_configs.get(settings)
        if found is None:
            if len(self._log_configs) >= LOG_CONFIGS_MAX:
                self._log_configs = {}
            found = self._log_configs[settings] = LogConfig.from_properties(_log_properties(config, own))
        return found

    def throttled_rate(self, image: ClusterImage, key: str) -> int | None:
        """A replication throttle of this broker under an image, in bytes per second; None without one.

        The keys of throttles exist only as dynamic settings, so they are not in `BrokerConfig`.
        """
        for resource in (self._own_resource, CLUSTER_WIDE_BROKER):
            text = image.configs.get(resource, _NOTHING).get(key)
            if text is not None:
                if not text.isdecimal():
                    # The text of a variable of a config provider, which may have no value any more.
                    text = self.under(image).static_properties.get(key, "")
                return int(text) if text.isdecimal() else None
        return None


def _is_of_elr(name: str, text: str) -> bool:
    """True for the setting of all brokers that a new cluster with eligible leader replicas has (KIP-966)."""
    return name == "min.insync.replicas" and text.isdecimal() and int(text) > 0


def _log_properties(config: BrokerConfig, topic_settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for `LogConfig.from_properties`: a topic's own over the broker's defaults."""
    properties = {
        "producer.id.expiration.ms": str(config.transactions.producer_id_expiration_ms),
        "transaction.partition.verification.enable": str(config.transactions.partition_verification_enable),
        **config.topics.defaults,
        **topic_settings,
    }
    small_segments = properties.get("internal.segment.bytes")
    if small_segments is not None:
        properties["segment.bytes"] = small_segments
    return properties
