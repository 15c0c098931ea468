"""MetadataCache: topics, brokers and effective settings of the newest cluster image, for handlers.

`apply` subscribes to the controller's images; the cache itself changes no metadata. Effective settings of a topic are
the topic's own settings over this broker's defaults. The defaults are dynamic settings over static settings over
Kafka's defaults (P-152).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import ProviderError
from pykbroker.config.listener_addresses import is_every_address
from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    TopicImage,
)
from pykbroker.logstore.log_config import LogConfig
from pykbroker.metadata.advertised_listeners import broker_listeners
from pykbroker.metadata.encoded_topics import EncodedTopics
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pykbroker.security.connection_info import ConnectionInfo

log = logging.getLogger(__name__)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that Metadata marks as internal."""

CLUSTER_WIDE_BROKER = (BROKER_RESOURCE, "")
"""Key in `ClusterImage.configs` of the dynamic settings of all brokers."""

_NOTHING: Mapping[str, str] = {}


class BrokerAddress(NamedTuple):
    """Address of a broker on one of its listeners."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class MetadataCache:
    """The newest image, and views of it.

    Args:
        config: static settings, as given at the start.
        node_id: id of this broker.
        image: the first image; `apply` replaces it.
    """

    def __init__(self, config: BrokerConfig, node_id: int, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.static_config = config
        self._node_id = node_id
        # Listeners of a single broker on every address, without an advertised host.
        self._hostless_listeners = frozenset(
            address.name for address in broker_listeners(config) if config.is_alone and is_every_address(address.host)
        )
        # (cluster-wide, own) dynamic settings from which `_effective` was computed.
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = (_NOTHING, _NOTHING)
        self._effective = config
        self._default_log_config: LogConfig | None = None
        self.encoded_topics = EncodedTopics()

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Replaces the image. A subscriber of metadata changes."""
        self.image = new

    @property
    def expected_broker_count(self) -> int:
        """Number of brokers in the cluster, including those that are down or have not registered yet; at least 1.

        The replication factor of internal topics is limited by this number: a client that connects before the second
        broker of a new cluster has registered must not create topics that keep one replica for ever. A node that is
        broker and controller counts every voter as a broker.
        """
        config = self.static_config
        voters = len(config.quorum.voters) if config.is_controller else 0
        return max(len(self.image.brokers), voters, 1)

    # Topics

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics_by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.image.topics_by_id.get(topic_id)

    # Brokers

    def endpoint(
        self, broker_id: int, client: ConnectionInfo, image: ClusterImage | None = None
    ) -> BrokerAddress | None:
        """Address of a broker on the listener that the client uses (P-27); None if that broker has no such listener.

        The address is from the broker's registration, in the newest image or in `image`. The exception is a single
        broker with a listener on every address: its host is the address that the client dialled, for the reason in
        `advertised_listeners`.
        """
        image = image or self.image
        broker = image.brokers.get(broker_id)
        if broker is None:
            return None
        for endpoint in broker.endpoints:
            if endpoint.name == client.listener_name:
                host = endpoint.host
                if endpoint.name in self._hostless_listeners and len(image.brokers) == 1:
                    host = client.local_host
                return BrokerAddress(broker_id, host, endpoint.port, broker.rack, broker.is_fenced)
        return None

    def brokers(self, client: ConnectionInfo) -> list[BrokerAddress]:
        """Addresses of all registered brokers with the client's listener, fenced ones included, in order of id."""
        addresses = (self.endpoint(broker_id, client) for broker_id in sorted(self.image.brokers))
        return [address for address in addresses if address is not None]

    def is_alive(self, broker_id: int) -> bool:
        """True if a broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def broker_epoch(self) -> int:
        """This broker's epoch, -1 before it is registered."""
        broker: BrokerImage | None = self.image.brokers.get(self._node_id)
        return -1 if broker is None else broker.epoch

    # Settings

    @property
    def config(self) -> BrokerConfig:
        """Current settings of this broker, including dynamic ones."""
        return self.config_under(self.image)

    def config_under(self, image: ClusterImage) -> BrokerConfig:
        """Settings of this broker with the dynamic settings of an image."""
        cluster_wide = image.configs.get(CLUSTER_WIDE_BROKER, _NOTHING)
        own = image.configs.get((BROKER_RESOURCE, str(self._node_id)), _NOTHING)
        if (cluster_wide, own) != self._dynamic:
            self._effective = self._with_dynamic(cluster_wide, own)
            self._default_log_config = None
            self._dynamic = (cluster_wide, own)
        return self._effective

    def is_cordoned(self, path: str) -> bool:
        """True if the log directory of this path gets no new replicas (`cordoned.log.dirs`, KIP-1066)."""
        cordoned = self.config.log.cordoned_dirs
        return bool(cordoned) and ("*" in cordoned or os.path.abspath(path) in map(os.path.abspath, cordoned))

    def throttled_rate(self, key: str) -> int | None:
        """A replication throttle of this broker in bytes per second; None without one.

        The keys of throttles exist only as dynamic settings, so they are not in `config`.
        """
        for resource in ((BROKER_RESOURCE, str(self._node_id)), CLUSTER_WIDE_BROKER):
            text = self.image.configs.get(resource, _NOTHING).get(key)
            if text is not None:
                # The other text is that of a variable of a config provider, which may have no value any more.
                return int(text) if text.isdecimal() else self._value_of_variable(key)
        return None

    def _value_of_variable(self, key: str) -> int | None:
        text = self.config.static_properties.get(key, "")
        return int(text) if text.isdecimal() else None

    def _with_dynamic(self, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        if own or any(not _is_of_elr(name, text) for name, text in cluster_wide.items()):
            # Imported late: most brokers start without other dynamic settings.
            from pykbroker.config.dynamic_changes import usable_settings

            cluster_wide, ignored = usable_settings(cluster_wide, is_one_broker=False)
            own, more = usable_settings(own, is_one_broker=True)
            if ignored or more:
                log.warning(
                    "stored dynamic settings that this broker ignores, as it could not change them while it runs: %s",
                    ", ".join(sorted({*ignored, *more})),
                )
        try:
            return self.static_config.with_dynamic(cluster_wide, own)
        except ProviderError as error:
            log.error("the changed dynamic settings of this broker are not used: %s", error)
            return self._effective
        except ConfigError as error:
            # Changes are checked before they are stored, so these settings come from a log that Kafka has written.
            log.warning("the dynamic settings of this broker are not used: %s", error)
            return self.static_config

    def topic_config(self, name: str) -> dict[str, str]:
        """Current settings of a topic by key. The topic's own settings have the text with which they were set."""
        return {**self.config.topics.defaults, **self.image.topic_config(name)}

    def log_config(self, image: ClusterImage, topic: str) -> LogConfig:
        """Log settings of a topic under an image. Topics without settings of their own share one value."""
        config = self.config_under(image)
        own = image.topic_config(topic)
        if own:
            return LogConfig.from_properties(log_properties(config, own))
        if self._default_log_config is None:
            self._default_log_config = LogConfig.from_properties(log_properties(config, own))
        return self._default_log_config


def _is_of_elr(name: str, text: str) -> bool:
    """True for the setting of all brokers that a new cluster with eligible leader replicas has (KIP-966)."""
    return name == "min.insync.replicas" and text.isdecimal() and int(text) > 0


def log_properties(config: BrokerConfig, topic_settings: Mapping[str, str]) -> dict[str, str]:
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
