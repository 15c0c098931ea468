"""Partitions: the replicas of this broker, by topic name and id, created and deleted as the metadata changes."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, changed_partitions
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.logstore.errors import LogError, StorageError
from pykbroker.named_tuple import NamedTuple
from pykbroker.replication.offset_waiters import ALL
from pykbroker.replication.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
    from pykbroker.logstore.log_config import LogConfig
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.replication.replica_environment import ReplicaEnvironment
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)


class UpdatedTopic(NamedTuple):
    """Numbers of the partitions of a topic that have the state of an image which is about to be applied."""

    topic: TopicImage
    partitions: set[int]


class PreparedTopic(NamedTuple):
    """New partitions of a topic in an image that is about to be applied."""

    topic: TopicImage
    partitions: dict[int, Partition]


class Partitions:
    """Registry of the replicas that this broker holds.

    Args:
        environment: state that the replicas share; also an attribute.
        log_directory: the directory of the logs, or several.
        log_config_for: returns the effective `LogConfig` of a topic under an image.
        clock: time of day, for log files.

    Attributes:
        cleaned: (topic, partition) of the log that is being compacted; None for none.
    """

    def __init__(
        self,
        environment: ReplicaEnvironment,
        log_directory: LogDirectory | LogDirectories,
        log_config_for: Callable[[ClusterImage, str], LogConfig],
        clock: WallClock,
    ) -> None:
        self.environment = environment
        self._node_id = environment.node_id
        self._log_directory = log_directory
        self._log_config_for = log_config_for
        self._clock = clock
        # High watermarks of the last run, read when the first partition with other replicas is opened.
        self._checkpointed: dict[tuple[str, int], int] | None = None
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._name_by_id: dict[bytes, str] = {}
        # Replicas of this broker whose log could not be opened or created.
        self._offline: set[tuple[str, int]] = set()
        self.cleaned: tuple[str, int] | None = None
        # By topic name, new partitions and updated ones; empty but while `_image_prepared` is prepared.
        self._prepared: dict[str, PreparedTopic] = {}
        self._updated: dict[str, UpdatedTopic] = {}
        # Names of topics whose logs have the settings of `_image_prepared`.
        self._configured: set[str] = set()
        self._image_prepared: ClusterImage | None = None

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition if this broker holds it."""
        found = self._by_name.get(topic)
        return None if found is None else found.get(partition)

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        """As `get`, by topic id."""
        found = self._by_name.get(self._name_by_id.get(topic_id, ""))
        return None if found is None else found.get(partition)

    def is_offline(self, topic: str, partition: int) -> bool:
        """True if this broker should hold the partition and cannot, as its log could not be opened or created."""
        return (topic, partition) in self._offline

    def open_offline(self, image: ClusterImage) -> None:
        """Tries again to open the offline logs: a full disk may have space again."""
        for name in {name for name, _ in self._offline}:
            topic = image.topics_by_name.get(name)
            if topic is not None:
                self._add_or_update(image, topic, topic.partitions.values())

    def take_offline(self, keys: Iterable[tuple[str, int]]) -> None:
        """Drops partitions whose log directory has failed; clients get KAFKA_STORAGE_ERROR for them."""
        for topic, number in keys:
            partition = self._by_name.get(topic, {}).pop(number, None)
            if partition is None and topic in self._prepared:
                partition = self._prepared[topic].partitions.pop(number, None)
            if topic in self._updated:
                # It may be opened again, with the old image, before the new one is applied.
                self._updated[topic].partitions.discard(number)
            if partition is not None:
                partition.close()
                self._offline.add((topic, number))

    @property
    def has_offline(self) -> bool:
        """True if there are logs that could not be opened or created."""
        return bool(self._offline)

    def all(self) -> Iterable[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def prepare(self, old: ClusterImage, new: ClusterImage) -> Iterator[None]:
        """Deletes partitions, makes new ones, updates changed ones and settings, with pauses in which others run.

        Lookups find new ones from `apply` on. One whose log cannot be made is left to `apply`, and so is a topic that
        takes the name of a deleted one, whose logs have the same names. Ends early if another image is applied.

        A changed partition has its new leader and epoch before clients get the metadata that say so. In Kafka it has
        them after that: ReplicaManager changes one partition after the other. Internal topics are left to `apply`,
        because their coordinators learn of a new leader epoch in the same step. Logs use changed settings before
        clients can ask for these; in Kafka some time after that. The partitions of a large deletion go one after the
        other; clients get NOT_LEADER_OR_FOLLOWER for them until the image is applied. In Kafka, where the image comes
        first, they get UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._image_prepared = new
        # Leaders compare their followers with the brokers that the same records change.
        self.environment.brokers.brokers = new.brokers
        for topic in new.delta.deleted_topics if new.delta.is_large_deletion else ():
            if topic.name not in INTERNAL_TOPICS and topic.name not in new.topics_by_name:
                yield from self._delete_early(new, topic)
        for topic in new.delta.created_topics:
            if topic.name not in self._by_name and topic.name not in old.topics_by_name:
                yield from self._prepare(new, topic, topic.partitions.values())
        for before, topic in new.delta.changed_topics:
            known = before.partitions
            changed = changed_partitions(before, topic)
            yield from self._prepare(new, topic, [image for image in changed if image.partition not in known])
            if topic.name not in INTERNAL_TOPICS:
                yield from self._update_changed(new, topic, [image for image in changed if image.partition in known])
        for name in self._reconfigured(new.delta.configs):
            if self._image_prepared is not new:
                return
            self._use_config(new, name)
            self._configured.add(name)
            yield

    @property
    def is_preparing(self) -> bool:
        """True while an image with many new or changed partitions is being prepared."""
        return self._image_prepared is not None

    def _delete_early(self, new: ClusterImage, topic: TopicImage) -> Iterator[None]:
        """Deletes the partitions of a topic that an image does not have any more."""
        held = self._by_name.get(topic.name, {})
        for number in list(held):
            if self._image_prepared is not new:
                return
            partition = held.pop(number, None)
            if partition is not None:
                self._delete(partition)
            yield

    def _prepare(self, new: ClusterImage, topic: TopicImage, images: Iterable[PartitionImage]) -> Iterator[None]:
        config: LogConfig | None = None
        prepared = PreparedTopic(topic, {})
        for image in images:
            if self._image_prepared is not new:
                return
            if self._node_id in image.replicas and image.partition not in prepared.partitions:
                config = config or self._log_config_for(new, topic.name)
                self._prepared[topic.name] = prepared
                with suppress(StorageError):
                    prepared.partitions[image.partition] = self._open(topic, image, config)
            yield

    def _update_changed(self, new: ClusterImage, topic: TopicImage, images: Iterable[PartitionImage]) -> Iterator[None]:
        for image in images:
            if self._image_prepared is not new:
                return
            partition = self.get_by_id(topic.topic_id, image.partition)
            if partition is not None and self._node_id in image.replicas:
                self._update(partition, image)
                if not partition.is_closed:
                    self._updated.setdefault(topic.name, UpdatedTopic(topic, set())).partitions.add(image.partition)
            yield

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Applies a change of the metadata, deleted topics first, so that a name can be used again at once."""
        delta = new.delta
        self.environment.brokers.brokers = new.brokers
        if self._prepared:
            self._drop_others(new)
        for topic in delta.deleted_topics:
            self._remove(topic)
        for topic in delta.created_topics:
            prepared = self._take_prepared(topic)
            if len(prepared) == len(topic.partitions):
                self._name_by_id[topic.topic_id] = topic.name
            else:
                self._add_or_update(new, topic, topic.partitions.values(), prepared)
        for before, topic in delta.changed_topics:
            prepared = self._take_prepared(topic)
            updated = self._updated.get(topic.name)
            if updated is not None and updated.topic is topic:
                prepared = updated.partitions.union(prepared)
            self._add_or_update(new, topic, changed_partitions(before, topic), prepared)
        self._prepared.clear()
        self._updated.clear()
        names = self._reconfigured(delta.configs)
        # What was prepared for another image may have settings that this one has not changed.
        names = names - self._configured if self._image_prepared is new else names | self._configured
        for name in names:
            self._use_config(new, name)
        self._configured.clear()
        self._image_prepared = None
        if delta.brokers:
            for partition in self.all():
                # DeleteRecords does not wait for a broker that is gone.
                partition.replica.low_waiters.notify(ALL)

    def mark_stray_logs(self, image: ClusterImage) -> None:
        """Marks the log directories that a starting broker finds and that are not in its metadata as stray.

        While this broker was down the topic was deleted, or created again with another id, or the partition was moved
        to other brokers, and its directory could not be deleted. Kafka marks it stray too, and deletes nothing.
        """
        for found in list(self._log_directory):
            if is_stray(image, self._node_id, found):
                log.warning("%s is not in the metadata; it is marked stray", found.path)
                self._log_directory.mark_stray(found)

    def _drop_others(self, new: ClusterImage) -> None:
        """Deletes what was prepared for another image: a snapshot has come in its place, without these topics."""
        for name, (topic, partitions) in list(self._prepared.items()):
            if topic.topic_id not in new.topics_by_id:
                del self._prepared[name]
                for partition in partitions.values():
                    self._delete(partition)

    def _take_prepared(self, topic: TopicImage) -> Collection[int]:
        """Takes the prepared partitions of a topic; numbers of those that have the state of this very image."""
        prepared = self._prepared.pop(topic.name, None)
        if prepared is None:
            return ()
        self._by_name.setdefault(topic.name, {}).update(prepared.partitions)
        return prepared.partitions.keys() if prepared.topic is topic else ()

    def _add_or_update(
        self,
        image: ClusterImage,
        topic: TopicImage,
        partitions: Iterable[PartitionImage],
        prepared: Collection[int] = (),
    ) -> None:
        """Makes and updates some partitions of a topic, but for those that are prepared."""
        self._name_by_id[topic.topic_id] = topic.name
        held = self._by_name.setdefault(topic.name, {})
        config: LogConfig | None = None
        for partition_image in partitions:
            number = partition_image.partition
            if number in prepared:
                continue
            partition = held.get(number)
            if self._node_id not in partition_image.replicas:
                if partition is not None:
                    log.info("%s is not assigned to this broker any more; its log is deleted", partition)
                    self._delete(held.pop(number))
                self._offline.discard((topic.name, number))
            elif partition is not None:
                self._update(partition, partition_image)
            else:
                config = config or self._log_config_for(image, topic.name)
                self._hold(topic, partition_image, config)

    def _update(self, partition: Partition, image: PartitionImage) -> None:
        """Updates a partition; one whose log cannot be read becomes offline and is opened again later."""
        try:
            partition.update(image)
        except LogError as error:
            log.error("%s cannot be served for now: %s", partition, error)
            partition.close()
            del self._by_name[partition.topic][partition.partition]
            self._offline.add((partition.topic, partition.partition))

    def _hold(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        """Opens the log of a partition. If that fails only this partition is offline."""
        key = (topic.name, image.partition)
        try:
            self._by_name[topic.name][image.partition] = self._open(topic, image, config)
        except StorageError as error:
            if key not in self._offline:
                log.error("%s-%d cannot be served for now: %s", *key, error)
            self._offline.add(key)
            self.environment.storage_failures.report(error)
        else:
            if key in self._offline:
                log.info("%s-%d is served again", *key)
            self._offline.discard(key)
            # Before the prepared image is applied it may be opened with the settings of the one before.
            self._configured.discard(topic.name)

    def _open(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> Partition:
        """Opens or creates the log of a partition; raises StorageError."""
        key = (topic.name, image.partition)
        directory = image.directory_on(self._node_id)
        if self._log_directory.adopt_future(topic.name, image.partition, directory):
            # The broker was killed, or a directory was offline, when the copy was to replace the log.
            log.info("%s-%d: the copy in the directory to which it has moved is its log now", *key)
        found = self._log_directory.create_log(
            topic.name, image.partition, topic.topic_id, config, self._clock.now_ms(), directory
        )
        found.config = config
        return Partition(
            topic.name,
            topic.topic_id,
            found,
            image,
            self.environment,
            self._checkpointed_high_watermark(key, image),
        )

    def _checkpointed_high_watermark(self, key: tuple[str, int], image: PartitionImage) -> int:
        if image.replicas == (self._node_id,):
            return 0
        if self._checkpointed is None:
            self._checkpointed = self._log_directory.high_watermarks()
        return self._checkpointed.get(key, 0)

    def _remove(self, topic: TopicImage) -> None:
        self._name_by_id.pop(topic.topic_id, None)
        self._offline = {key for key in self._offline if key[0] != topic.name}
        for partition in self._by_name.pop(topic.name, {}).values():
            self._delete(partition)

    def _delete(self, partition: Partition) -> None:
        partition.close()
        try:
            self._log_directory.delete_log(partition.topic, partition.partition, self._clock.now_ms())
        except StorageError as error:
            log.error("the log of %s could not be deleted: %s", partition, error)
            self.environment.storage_failures.report(error)

    def _reconfigured(self, changed: frozenset[tuple[int, str]]) -> AbstractSet[str]:
        """Topics whose settings may have changed with these resources: the topic, this broker, or all brokers."""
        if any(kind == BROKER_RESOURCE and name in ("", str(self._node_id)) for kind, name in changed):
            return set(self._by_name)
        return {name for kind, name in changed if kind == TOPIC_RESOURCE}

    def _use_config(self, image: ClusterImage, topic: str) -> None:
        """Has the open logs of a topic use its settings under an image."""
        held = self._by_name.get(topic)
        if held:
            config = self._log_config_for(image, topic)
            for partition in held.values():
                partition.log.config = config
                if partition.future is not None:
                    partition.future.config = config


def is_stray(image: ClusterImage, node_id: int, found: PartitionLog) -> bool:
    """True if a log is no replica of a broker: its topic is gone or another one, or the replica is elsewhere."""
    topic = image.topics_by_name.get(found.topic)
    partition = None if topic is None else topic.partitions.get(found.partition)
    return (
        topic is None
        or partition is None
        or node_id not in partition.replicas
        or found.topic_id not in (None, topic.topic_id)
    )


def directory_of(image: ClusterImage, node_id: int, found: PartitionLog) -> bytes | None:
    """Id of the directory that the metadata has for a log, as `LogDirectories.load_logs` asks for it."""
    from pykbroker.logstore.log_directories import NO_REPLICA

    if is_stray(image, node_id, found):
        return NO_REPLICA
    return image.topics_by_name[found.topic].partitions[found.partition].directory_on(node_id)
