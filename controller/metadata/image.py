"""ClusterImage: state of the cluster after the records of the metadata log up to an offset.

An image is immutable. `apply_records` makes the next one, which shares all objects that the records do not change. So
an old image takes little memory, and `old.topics_by_id.get(id) is new.topics_by_id.get(id)` is false if a topic has
changed. A batch of records copies each table that it changes once: the copy of a table of 5,000 topics takes some tens
of microseconds, which is why the tables are plain dictionaries and not trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, METADATA_VERSION_LATEST
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.uuids import LOST_DIRECTORY

NO_LEADER = -1


class Endpoint(NamedTuple):
    """A listener of a node. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


class PartitionImage(NamedTuple):
    """One partition.

    Attributes:
        replicas: broker ids, the preferred leader first.
        leader: broker id, -1 for none.
        leader_epoch: grows with each change of the leader.
        partition_epoch: grows with each change of the partition.
        directories: id of the log directory of each replica, in the order of `replicas`.
        leader_recovery_state: 1 while the partition recovers from an unclean election (KIP-704).
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_on(self, broker_id: int) -> bytes | None:
        """Id of the log directory of a broker's replica, which may be a reserved one.

        None if the broker has no replica or the metadata has no directories.
        """
        if broker_id not in self.replicas or not self.directories:
            return None
        return self.directories[self.replicas.index(broker_id)]

    def is_lost_on(self, broker_id: int) -> bool:
        """True if a broker's replica is in a lost log directory (`LOST_DIRECTORY`, KIP-858)."""
        return self.directory_on(broker_id) == LOST_DIRECTORY


class TopicImage(NamedTuple):
    """One topic; `partitions` has the keys 0 to n-1."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]


class BrokerImage(NamedTuple):
    """One registered broker. `features`: feature name -> (lowest, highest level supported)."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None = None

    @property
    def is_active(self) -> bool:
        """True if it may lead partitions and be in an in-sync set."""
        return not self.is_fenced and not self.in_controlled_shutdown


class ControllerImage(NamedTuple):
    """One registered controller."""

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]


class Acl(NamedTuple):
    """One access control entry; numbers as in `protocol.acl_codes`, principal and host as in the request."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


LARGE_DELETION = 1024
"""Number of deleted partitions from which brokers delete them in steps, before the image is published. One takes 3 us.
Requests that wait for such a partition get another error than in Kafka, so that smaller deletions have no steps."""


class ImageDelta(NamedTuple):
    """The changes of one step, against the image before it.

    changed_topics has (before, after) pairs. A topic that was deleted and created again has two ids, so it is in
    created_topics and deleted_topics. configs has (resource type, resource name) keys, brokers and controllers ids.
    """

    created_topics: tuple[TopicImage, ...] = ()
    changed_topics: tuple[tuple[TopicImage, TopicImage], ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    configs: frozenset[tuple[int, str]] = frozenset()
    brokers: frozenset[int] = frozenset()
    controllers: frozenset[int] = frozenset()
    features: frozenset[str] = frozenset()

    @property
    def is_large_deletion(self) -> bool:
        """True if the deleted topics have LARGE_DELETION partitions."""
        return sum(len(topic.partitions) for topic in self.deleted_topics) >= LARGE_DELETION


def changed_partitions(before: TopicImage, after: TopicImage) -> list[PartitionImage]:
    """The partitions of a later state of a topic that are new or changed."""
    known = before.partitions
    return [partition for number, partition in after.partitions.items() if known.get(number) is not partition]


class ClusterImage:
    """The cluster after the record at `offset`, written in `epoch` at `timestamp_ms`; each is -1 in the empty image.

    Attributes:
        topics_by_name, topics_by_id: the same topics under both keys.
        colliding_names: a name with "_" in place of "." -> the names of topics that have this form and contain one of
            the two characters (P-143).
        configs: (resource type, resource name) -> {key: value}, only what was set; types as on the wire.
        brokers, controllers: by node id.
        features: finalized levels, metadata.version among them; a feature at level 0 has no entry.
        next_producer_id: first id of the next block (P-59).
        acls: access control entries by their 16-byte ids; no two are equal.
        kept_records: records that are kept whole (quotas, SCRAM credentials, delegation tokens), by (record type,
            their key), so that a log or snapshot that Kafka wrote loses nothing.
        open_transaction: records of a metadata transaction (KIP-868) that has not ended yet, else None.
        delta: what changed since the image before this one.
    """

    __slots__ = (
        "acls",
        "brokers",
        "colliding_names",
        "configs",
        "controllers",
        "delta",
        "epoch",
        "features",
        "kept_records",
        "next_producer_id",
        "offset",
        "open_transaction",
        "timestamp_ms",
        "topics_by_id",
        "topics_by_name",
    )

    topics_by_name: Mapping[str, TopicImage]
    topics_by_id: Mapping[bytes, TopicImage]
    colliding_names: Mapping[str, tuple[str, ...]]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    brokers: Mapping[int, BrokerImage]
    controllers: Mapping[int, ControllerImage]
    features: Mapping[str, int]
    next_producer_id: int
    acls: Mapping[bytes, Acl]
    kept_records: Mapping[tuple[Any, ...], Any]
    open_transaction: tuple[Any, ...] | None
    offset: int
    epoch: int
    timestamp_ms: int
    delta: ImageDelta

    def __init__(self) -> None:
        """Makes an empty image; `apply_records` makes others from it."""
        self.topics_by_name = {}
        self.topics_by_id = {}
        self.colliding_names = {}
        self.configs = {}
        self.brokers = {}
        self.controllers = {}
        self.features = {}
        self.next_producer_id = 0
        self.acls = {}
        self.kept_records = {}
        self.open_transaction = None
        self.offset = -1
        self.epoch = -1
        self.timestamp_ms = -1
        self.delta = ImageDelta()

    @property
    def is_bootstrapped(self) -> bool:
        """True once the first records of the cluster are in it, which finalize a metadata.version."""
        return METADATA_VERSION in self.features

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; the latest in an image without one, before the bootstrap records."""
        return self.features.get(METADATA_VERSION, METADATA_VERSION_LATEST)

    def setting_of_topic(self, key: str, topic: str, node_id: int) -> str | None:
        """Value that is set for a key of a topic: on the topic, else on this node, else for the cluster."""
        for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, str(node_id)), (BROKER_RESOURCE, "")):
            value = self.configs.get(resource, _NO_CONFIGS).get(key)
            if value is not None:
                return value
        return None

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The configs that are set on the topic."""
        return self.configs.get((TOPIC_RESOURCE, name), _NO_CONFIGS)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """The configs that are set on the group."""
        return self.configs.get((GROUP_RESOURCE, group_id), _NO_CONFIGS)

    def __eq__(self, other: object) -> bool:
        """True if both describe the same cluster at the same offset; the delta is not compared."""
        if not isinstance(other, ClusterImage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "delta")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"ClusterImage(offset={self.offset}, epoch={self.epoch}, {len(self.topics_by_name)} topics, "
            f"{len(self.brokers)} brokers)"
        )


TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

CLIENT_QUOTA_RECORD = 14
"""Type of the record that sets a quota."""

_NO_CONFIGS: Mapping[str, str] = {}

EMPTY_IMAGE = ClusterImage()


def quota_key(entity: Iterable[tuple[str, str | None]], key: str) -> tuple[Any, ...]:
    """The key in `kept_records` of one quota of an entity, which is given as (type, name) pairs in any order.

    A null name is the default entity; an empty one is not.
    """
    # None and str cannot be compared: the second element separates the null names.
    return (CLIENT_QUOTA_RECORD, tuple(sorted((kind, name is None, name or "") for kind, name in entity)), key)


class InconsistentMetadata(Exception):
    """A metadata record contradicts the image that it is applied to."""


class UnsupportedMetadataVersion(InconsistentMetadata):
    """The cluster was upgraded to a metadata.version that this software does not have."""
