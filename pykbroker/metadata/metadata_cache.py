"""MetadataCache: topics, brokers and effective settings of the newest cluster image, for handlers.

`apply` subscribes to the controller's images; the cache itself changes no metadata.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.listener_addresses import is_every_address
from pykbroker.controller.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage, TopicImage
from pykbroker.metadata.advertised_listeners import broker_listeners
from pykbroker.metadata.dynamic_broker_config import DynamicBrokerConfig
from pykbroker.metadata.encoded_topics import EncodedTopics
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from random import Random

    from pykbroker.security.connection_info import ConnectionInfo

NO_CONTROLLER = -1


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

    Attributes:
        settings: the broker's settings under any image; `config` has those under the newest one.
    """

    def __init__(self, config: BrokerConfig, node_id: int, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.settings = DynamicBrokerConfig(config, node_id)
        self._node_id = node_id
        # Listeners of a single broker on every address, without an advertised host.
        self._hostless_listeners = frozenset(
            address.name for address in broker_listeners(config) if config.is_alone and is_every_address(address.host)
        )
        self.encoded_topics = EncodedTopics()

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Replaces the image. A subscriber of metadata changes."""
        self.image = new
        self.encoded_topics.remove_topics(new.delta.deleted_topics)

    @property
    def expected_broker_count(self) -> int:
        """Number of brokers in the cluster, including those that are down or have not registered yet; at least 1.

        The replication factor of internal topics is limited by this number: a client that connects before the second
        broker of a new cluster has registered must not create topics that keep one replica for ever. A node that is
        broker and controller counts every voter as a broker.
        """
        config = self.settings.static
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

    def any_alive(self, random: Random) -> int:
        """Id of a live broker for clients that look for the controller: each forwards (P-25); -1 if there is none."""
        alive = [broker_id for broker_id, broker in self.image.brokers.items() if not broker.is_fenced]
        return random.choice(alive) if alive else NO_CONTROLLER

    def broker_epoch(self) -> int:
        """This broker's epoch, -1 before it is registered."""
        broker: BrokerImage | None = self.image.brokers.get(self._node_id)
        return -1 if broker is None else broker.epoch

    # Settings

    @property
    def config(self) -> BrokerConfig:
        """Current settings of this broker, including dynamic ones."""
        return self.settings.under(self.image)

    def is_cordoned(self, path: str) -> bool:
        """True if the log directory of this path gets no new replicas (`cordoned.log.dirs`, KIP-1066)."""
        cordoned = self.config.log.cordoned_dirs
        return bool(cordoned) and ("*" in cordoned or os.path.abspath(path) in map(os.path.abspath, cordoned))
