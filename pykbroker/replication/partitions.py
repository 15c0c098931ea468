"""The partitions of this broker: looked up by name or id, created and dropped as the metadata says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.logstore.errors import StorageError
from pykbroker.replication.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
    from pykbroker.logstore.log_config import LogConfig
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

TOPIC_RESOURCE = 2


class Partitions:
    """Registry of the replicas that this broker holds.

    Args:
        node_id: this broker.
        log_directory: where the logs are.
        log_config_for: gives the effective `LogConfig` of a topic under an image.
        clock: for the times of files.
    """

    def __init__(
        self,
        node_id: int,
        log_directory: LogDirectory,
        log_config_for: Callable[[ClusterImage, str], LogConfig],
        clock: WallClock,
    ) -> None:
        self._node_id = node_id
        self._log_directory = log_directory
        self._log_config_for = log_config_for
        self._clock = clock
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._name_by_id: dict[bytes, str] = {}
        # Replicas of ours whose log could not be opened or made.
        self._offline: set[tuple[str, int]] = set()

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition if this broker holds it."""
        found = self._by_name.get(topic)
        return None if found is None else found.get(partition)

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        """As `get`, by topic id."""
        name = self._name_by_id.get(topic_id)
        return None if name is None else self.get(name, partition)

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether this broker should hold the partition and cannot, as its log could not be opened or made."""
        return (topic, partition) in self._offline

    def open_offline(self, image: ClusterImage) -> None:
        """Tries again to open logs that could not be: a full disk may have space again."""
        for name in {name for name, _ in self._offline}:
            topic = image.topics_by_name.get(name)
            if topic is not None:
                self._add_or_update(image, topic)

    @property
    def has_offline(self) -> bool:
        """Whether there are logs that could not be opened or made."""
        return bool(self._offline)

    def all(self) -> Iterable[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Follows a change of the metadata: removed topics first, so that a name can be used again at once."""
        delta = new.delta
        for topic in delta.deleted_topics:
            self._remove(topic)
        for topic in delta.created_topics:
            self._add_or_update(new, topic)
        for _, topic in delta.changed_topics:
            self._add_or_update(new, topic)
        if delta.configs:
            self._update_configs(new, delta.configs)

    def set_strays_aside(self, image: ClusterImage) -> None:
        """Marks the folders of logs that a starting broker finds and its metadata does not know.

        The topic of such a log is gone, or has another id since: it was deleted when the folder could not be. Kafka
        marks it stray too, and deletes nothing.
        """
        for found in self._log_directory:
            topic = image.topics_by_name.get(found.topic)
            if topic is None or found.partition not in topic.partitions or found.topic_id not in (None, topic.topic_id):
                log.warning("%s-%d is not in the metadata; its folder is marked stray", found.topic, found.partition)
                self._log_directory.mark_stray(found.topic, found.partition)

    def _add_or_update(self, image: ClusterImage, topic: TopicImage) -> None:
        held = self._by_name.setdefault(topic.name, {})
        self._name_by_id[topic.topic_id] = topic.name
        config: LogConfig | None = None
        for number, partition_image in topic.partitions.items():
            partition = held.get(number)
            if partition is not None:
                partition.update(partition_image)
            elif self._node_id in partition_image.replicas:
                config = config or self._log_config_for(image, topic.name)
                self._hold(topic, partition_image, config)

    def _hold(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        """Opens the log of a partition. Where that fails the partition is offline, and everything else goes on."""
        key = (topic.name, image.partition)
        try:
            found = self._log_directory.create_log(
                topic.name, image.partition, topic.topic_id, config, self._clock.now_ms()
            )
            found.config = config
            self._by_name[topic.name][image.partition] = Partition(topic.name, topic.topic_id, found, image)
        except StorageError as error:
            if key not in self._offline:
                log.error("%s-%d cannot be served for now: %s", *key, error)
            self._offline.add(key)
        else:
            if key in self._offline:
                log.info("%s-%d is served again", *key)
            self._offline.discard(key)

    def _remove(self, topic: TopicImage) -> None:
        self._name_by_id.pop(topic.topic_id, None)
        self._offline = {key for key in self._offline if key[0] != topic.name}
        for number, partition in self._by_name.pop(topic.name, {}).items():
            partition.close()
            try:
                self._log_directory.delete_log(topic.name, number, self._clock.now_ms())
            except StorageError as error:
                log.error("the log of %s-%d could not be deleted: %s", topic.name, number, error)

    def _update_configs(self, new: ClusterImage, changed: frozenset[tuple[int, str]]) -> None:
        """Hands changed topic settings, or changed defaults of this broker, to the open logs."""
        topics = {name for kind, name in changed if kind == TOPIC_RESOURCE}
        if any(kind != TOPIC_RESOURCE for kind, _ in changed):
            topics = set(self._by_name)
        for topic in topics:
            held = self._by_name.get(topic)
            if held:
                config = self._log_config_for(new, topic)
                for partition in held.values():
                    partition.log.config = config
