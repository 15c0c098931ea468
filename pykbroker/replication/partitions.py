"""Partitions: the replicas of this broker, by topic name and id, created and deleted as the metadata changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, changed_partitions
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.logstore.errors import LogError, StorageError
from pykbroker.replication.offset_waiters import ALL
from pykbroker.replication.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
    from pykbroker.logstore.log_config import LogConfig
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.replication.replica_environment import ReplicaEnvironment
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)


class Preparation:
    """Changes of an image that `Partitions.prepare` has made, and those that it has left to `Partitions.apply`.

    Attributes:
        old, image: the image that is published, and the one that is about to be.
        is_complete: True if every change was made or left.
        new_topics: new partitions of new topics, by topic name and number. Lookups find them after `apply`.
        new_partitions: likewise of known topics.
        names: names of both by topic id.
        deleted: deleted topics that are left.
        left: topics with the images of those new and changed partitions that are left.
        configured: names of topics whose logs have the settings of `image`.
    """

    __slots__ = (
        "configured",
        "deleted",
        "image",
        "is_complete",
        "left",
        "names",
        "new_partitions",
        "new_topics",
        "old",
    )

    def __init__(self, old: ClusterImage, image: ClusterImage) -> None:
        self.old = old
        self.image = image
        self.is_complete = False
        self.new_topics: dict[str, dict[int, Partition]] = {}
        self.new_partitions: dict[str, dict[int, Partition]] = {}
        self.names: dict[bytes, str] = {}
        self.deleted: list[TopicImage] = []
        self.left: list[tuple[TopicImage, Iterable[PartitionImage]]] = []
        self.configured: set[str] = set()

    def take(self, topic: str, number: int) -> Partition | None:
        """Removes and returns a new partition, if there is one with this name and number."""
        partitions = self.new_topics.get(topic) or self.new_partitions.get(topic)
        return None if partitions is None else partitions.pop(number, None)

    def leave(self, topic: str, number: int) -> None:
        """Leaves a partition to `apply`, if the image changes it."""
        before, after = self.old.topics_by_name.get(topic), self.image.topics_by_name.get(topic)
        image = None if after is None else after.partitions.get(number)
        if after is not None and image is not None and (before is None or before.partitions.get(number) is not image):
            self.left.append((after, (image,)))


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
        # None but while an image is prepared.
        self._preparation: Preparation | None = None

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
            if self._preparation is not None:
                if partition is None:
                    partition = self._preparation.take(topic, number)
                # The preparation may open the log again, with the old image, before the new image is applied.
                self._preparation.leave(topic, number)
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
        preparation = self._preparation = Preparation(old, new)
        # Leaders compare their followers with the brokers that the same records change.
        self.environment.brokers.brokers = new.brokers
        delta = new.delta
        if delta.is_large_deletion:
            for topic in delta.deleted_topics:
                if topic.name in INTERNAL_TOPICS or topic.name in new.topics_by_name:
                    preparation.deleted.append(topic)
                else:
                    yield from self._delete_early(preparation, topic)
        else:
            preparation.deleted.extend(delta.deleted_topics)
        for topic in delta.created_topics:
            if topic.name in self._by_name or topic.name in old.topics_by_name:
                preparation.left.append((topic, topic.partitions.values()))
            else:
                preparation.names[topic.topic_id] = topic.name
                made = preparation.new_topics[topic.name] = {}
                yield from self._make_early(preparation, topic, topic.partitions.values(), made)
        for before, topic in delta.changed_topics:
            known = before.partitions
            changed = changed_partitions(before, topic)
            if len(topic.partitions) > len(known):
                new_images = [image for image in changed if image.partition not in known]
                changed = [image for image in changed if image.partition in known]
                preparation.names[topic.topic_id] = topic.name
                made = preparation.new_partitions[topic.name] = {}
                yield from self._make_early(preparation, topic, new_images, made)
            if topic.name in INTERNAL_TOPICS:
                preparation.left.append((topic, changed))
            else:
                yield from self._update_early(preparation, topic, changed)
        for name in self._reconfigured(delta.configs):
            if self._preparation is not preparation:
                return
            self._use_config(new, name)
            preparation.configured.add(name)
            yield
        preparation.is_complete = True

    @property
    def is_preparing(self) -> bool:
        """True while an image with many new or changed partitions is being prepared."""
        return self._preparation is not None

    def _delete_early(self, preparation: Preparation, topic: TopicImage) -> Iterator[None]:
        """Deletes the partitions of a topic that an image does not have any more."""
        held = self._by_name.get(topic.name, {})
        for number in list(held):
            if self._preparation is not preparation:
                return
            partition = held.pop(number, None)
            if partition is not None:
                self._delete(partition)
            yield
        if self._preparation is not preparation:
            return
        if self._offline:
            # Until the image is applied its offline partitions may be opened again.
            preparation.deleted.append(topic)
        else:
            self._by_name.pop(topic.name, None)
            self._name_by_id.pop(topic.topic_id, None)

    def _make_early(
        self,
        preparation: Preparation,
        topic: TopicImage,
        images: Iterable[PartitionImage],
        made: dict[int, Partition],
    ) -> Iterator[None]:
        """Makes new partitions of a topic, which `made` gets."""
        config: LogConfig | None = None
        for image in images:
            if self._preparation is not preparation:
                return
            if self._node_id in image.replicas and image.partition not in made:
                config = config or self._log_config_for(preparation.image, topic.name)
                try:
                    made[image.partition] = self._open(topic, image, config)
                except StorageError:
                    preparation.left.append((topic, (image,)))
            yield

    def _update_early(
        self, preparation: Preparation, topic: TopicImage, images: Iterable[PartitionImage]
    ) -> Iterator[None]:
        """Updates partitions of a topic that this broker holds and keeps."""
        for image in images:
            if self._preparation is not preparation:
                return
            partition = self.get_by_id(topic.topic_id, image.partition)
            is_replica = self._node_id in image.replicas
            if is_replica and partition is not None:
                self._update(partition, image)
            # Another broker's partition is not held, and not offline either.
            if (partition is None or partition.is_closed) if is_replica else (partition is not None or self._offline):
                preparation.left.append((topic, (image,)))
            yield

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Applies a change of the metadata, deleted topics first, so that a name can be used again at once.

        Takes half a microsecond for each topic that was prepared completely.
        """
        delta = new.delta
        self.environment.brokers.brokers = new.brokers
        preparation, self._preparation = self._preparation, None
        if preparation is None:
            self._change(new)
            names = self._reconfigured(delta.configs)
        elif preparation.image is new and preparation.is_complete:
            self._take_prepared(preparation)
            for topic in preparation.deleted:
                self._remove(topic)
            for topic, images in preparation.left:
                self._add_or_update(new, topic, images)
            names = self._reconfigured(delta.configs) - preparation.configured
        else:
            # A snapshot has come in the place of that image.
            self._drop_others(preparation, new)
            self._take_prepared(preparation)
            self._change(new)
            # What was prepared or made may have settings that this image has not changed.
            made = preparation.new_topics.keys() | preparation.new_partitions.keys()
            names = self._reconfigured(delta.configs) | preparation.configured | made
        for name in names:
            self._use_config(new, name)
        if delta.brokers:
            # DeleteRecords does not wait for a broker that is gone. No calls: there may be thousands of partitions.
            for partitions in self._by_name.values():
                for partition in partitions.values():
                    waiters = partition.replica.low_waiters
                    if waiters:
                        waiters.notify(ALL)

    def _change(self, new: ClusterImage) -> None:
        """Deletes, makes and updates partitions as the delta of an image says."""
        delta = new.delta
        for topic in delta.deleted_topics:
            self._remove(topic)
        for topic in delta.created_topics:
            self._add_or_update(new, topic, topic.partitions.values())
        for before, topic in delta.changed_topics:
            self._add_or_update(new, topic, changed_partitions(before, topic))

    def mark_stray_logs(self, image: ClusterImage) -> None:
        """Marks the log directories that a starting broker finds and that are not in its metadata as stray.

        While this broker was down the topic was deleted, or created again with another id, or the partition was moved
        to other brokers, and its directory could not be deleted. Kafka marks it stray too, and deletes nothing.
        """
        for found in list(self._log_directory):
            if is_stray(image, self._node_id, found):
                log.warning("%s is not in the metadata; it is marked stray", found.path)
                self._log_directory.mark_stray(found)

    def _drop_others(self, preparation: Preparation, new: ClusterImage) -> None:
        """Deletes the new partitions that were prepared of topics that another image does not have."""
        for topic_id, name in list(preparation.names.items()):
            if topic_id not in new.topics_by_id:
                del preparation.names[topic_id]
                for topics in (preparation.new_topics, preparation.new_partitions):
                    for partition in topics.pop(name, {}).values():
                        self._delete(partition)

    def _take_prepared(self, preparation: Preparation) -> None:
        """Has lookups find the new partitions that were prepared."""
        self._by_name.update(preparation.new_topics)
        for name, partitions in preparation.new_partitions.items():
            self._by_name.setdefault(name, {}).update(partitions)
        self._name_by_id.update(preparation.names)

    def _add_or_update(self, image: ClusterImage, topic: TopicImage, partitions: Iterable[PartitionImage]) -> None:
        """Makes, updates and deletes partitions of a topic."""
        self._name_by_id[topic.topic_id] = topic.name
        held = self._by_name.setdefault(topic.name, {})
        config: LogConfig | None = None
        for partition_image in partitions:
            number = partition_image.partition
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
                self._add_opened(topic, partition_image, config)

    def _update(self, partition: Partition, image: PartitionImage) -> None:
        """Updates a partition; one whose log cannot be read becomes offline and is opened again later."""
        try:
            partition.update(image)
        except LogError as error:
            log.error("%s cannot be served for now: %s", partition, error)
            partition.close()
            del self._by_name[partition.topic][partition.partition]
            self._offline.add((partition.topic, partition.partition))

    def _add_opened(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
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
            if self._preparation is not None:
                # The log may have been opened with the settings of the earlier image.
                self._preparation.configured.discard(topic.name)

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
