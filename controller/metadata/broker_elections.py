"""Elections when brokers join or leave, by the rules of KIP-631 and the eligible leader replicas of KIP-966.

A leader must be active and in sync, or eligible when no replica is in sync. Without such a replica the partition has no
leader, unless its topic allows an unclean election: then any active replica leads, which may lose records.

A broker may have thousands of partitions, so their changes are made in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from pykbroker.controller.metadata.commands import PlanContext
from pykbroker.controller.metadata.eligible_replicas import (
    Eligibility,
    elect_leader,
    record_election,
    record_last_known_leader,
)
from pykbroker.controller.metadata.features import are_eligible_replicas_enabled
from pykbroker.controller.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_builder import NO_LEADER_CHANGE, changed_partition
from pykbroker.controller.metadata.metadata_versions import NO_EPOCH_FOR_SHRINKS
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.uuids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

Changes = Steps[list[PartitionChangeRecord]]

UNCLEAN_KEY = "unclean.leader.election.enable"


class Registering(NamedTuple):
    """A broker that registers, with the ids of its log directories; the image does not have this registration yet."""

    broker_id: int
    log_dirs: Collection[bytes]


def changes_when_broker_leaves(
    image: ClusterImage, context: PlanContext, broker_id: int, directories: Collection[bytes] | None = None
) -> Changes:
    """Removes a broker from every in-sync set and leadership.

    Without eligible leader replicas the last in-sync replica stays in the set; the partition then has no leader.
    With `directories`, only for partitions whose replica is in one of these failed directories.
    """
    is_active = _active_brokers(image, leaving=broker_id)
    return (
        yield from _effective_changes(
            _change(image, context, topic, partition, is_active, removed=broker_id)
            for topic, partition in _partitions_in_sync_on(image, broker_id)
            if directories is None or _directory_of(partition, broker_id) in directories
        )
    )


def changes_when_broker_is_replaced(
    image: ClusterImage, context: PlanContext, broker_id: int, *, is_clean: bool
) -> Changes:
    """The changes for a new process of a broker, still fenced.

    The broker is removed from the in-sync sets. After an unclean stop it is not an eligible leader replica either: its
    logs may have lost records.
    """
    if is_clean or not are_eligible_replicas_enabled(image):
        return (yield from changes_when_broker_leaves(image, context, broker_id))
    is_active = _active_brokers(image, leaving=broker_id)
    return (
        yield from _effective_changes(
            _change(image, context, topic, partition, is_active, removed=broker_id, unclean=broker_id)
            for topic, partition in chain(
                _partitions_in_sync_on(image, broker_id), _partitions_eligible_on(image, broker_id)
            )
        )
    )


def changes_when_replicas_leave(
    image: ClusterImage, context: PlanContext, broker_id: int, partitions: Collection[tuple[bytes, int]]
) -> Changes:
    """Removes some replicas of a broker, (topic id, partition) each, from in-sync sets and leadership."""
    is_active = _active_brokers(image, leaving=broker_id)
    return (
        yield from _effective_changes(
            _change(image, context, image.topics_by_id[topic_id], partition, is_active, removed=broker_id)
            for topic_id, number in sorted(partitions)
            if broker_id in (partition := image.topics_by_id[topic_id].partitions[number]).isr
        )
    )


def is_irreplaceable(
    image: ClusterImage, context: PlanContext, topic: TopicImage, partition: PartitionImage, broker_id: int
) -> bool:
    """True if the partition, which this broker leads, would have no leader without it."""
    is_active = _active_brokers(image, leaving=broker_id)

    def can_lead(replica: int) -> bool:
        return is_active(replica) and has_its_directory(image, partition, replica)

    others = tuple(replica for replica in partition.isr if replica != broker_id)
    allow_unclean = is_unclean_election_allowed(image, context, topic.name)
    rules = Eligibility.of(image, context, topic)
    eligible = rules.eligible(partition, partition.replicas, others)
    elected = elect_leader(partition, others, eligible, rules, can_lead, allow_unclean=allow_unclean)
    return partition.leader == broker_id and elected.leader == NO_LEADER


def changes_when_broker_serves(image: ClusterImage, context: PlanContext, broker_id: int) -> Changes:
    """Elects a leader for the leaderless partitions that this broker, which becomes unfenced, can lead."""
    is_active = _active_brokers(image, joining=broker_id)
    return (
        yield from _effective_changes(
            _change(image, context, topic, partition, is_active, removed=None)
            for topic in image.topics_by_name.values()
            for partition in topic.partitions.values()
            if partition.leader == NO_LEADER
        )
    )


def changes_when_broker_restarted(
    image: ClusterImage, context: PlanContext, broker: Registering, *, is_clean: bool
) -> Changes:
    """The changes for a broker that registers unfenced, in place of an earlier registration of its own.

    If other replicas are in sync or eligible, one of them leads, as when a broker leaves. If this broker alone is in
    sync it stays the leader. After an unclean stop it starts a leader epoch: it may have lost the end of its log, which
    followers and consumers detect by the epoch (KIP-101, KIP-320). After a clean stop the log is complete, and no
    record is written for such a partition. This broker leads partitions without a leader, where it may.
    """
    broker_id = broker.broker_id
    others_active = _active_brokers(image, leaving=broker_id)
    is_active = _active_brokers(image, joining=broker_id)
    unclean = broker_id if not is_clean and are_eligible_replicas_enabled(image) else None
    affected = [*_partitions_in_sync_on(image, broker_id), *_partitions_eligible_on(image, broker_id)]
    changes: list[PartitionChangeRecord] = []
    for number, (topic, partition) in enumerate(affected):
        if not number % PIECE:
            yield
        if partition.isr == (broker_id,) and set(partition.eligible_leader_replicas) <= {broker_id}:
            if partition.leader != broker_id or not is_clean:
                record = PartitionChangeRecord(
                    partition_id=partition.partition, topic_id=topic.topic_id, leader=broker_id
                )
                record_last_known_leader(record, partition, Eligibility.of(image, context, topic))
                changes.append(record)
            continue
        removed = broker_id if broker_id in partition.isr else None
        change = _change(image, context, topic, partition, others_active, removed=removed, unclean=unclean)
        if change is not None:
            changes.append(change)
            partition = changed_partition(partition, change)
        if partition.leader == NO_LEADER:
            change = _change(image, context, topic, partition, is_active, removed=None, registering=broker)
            if change is not None:
                changes.append(change)
    seen = {(topic.topic_id, partition.partition) for topic, partition in affected}
    changes += yield from _effective_changes(
        _change(image, context, topic, partition, is_active, removed=None, registering=broker)
        for topic in image.topics_by_name.values()
        for partition in topic.partitions.values()
        if partition.leader == NO_LEADER
        and broker_id in partition.replicas
        and (topic.topic_id, partition.partition) not in seen
    )
    return changes


def _effective_changes(changes: Iterable[PartitionChangeRecord | None]) -> Changes:
    """The changes, without those that change nothing."""
    found: list[PartitionChangeRecord] = []
    for count, change in enumerate(changes, 1):
        if change is not None:
            found.append(change)
        if not count % PIECE:
            yield
    return found


def start_epoch_for_shrink(image: ClusterImage, partition: PartitionImage, record: PartitionChangeRecord) -> None:
    """Sets the same leader again, which starts a leader epoch, if a replica leaves the in-sync set.

    Only below 3.6-IV0: brokers before 3.6 needed that (KAFKA-15021).
    """
    if image.metadata_version >= NO_EPOCH_FOR_SHRINKS or record.leader != NO_LEADER_CHANGE or record.isr is None:
        return
    if not set(partition.isr) <= set(record.isr):
        record.leader = partition.leader


def is_unclean_election_allowed(image: ClusterImage, context: PlanContext, topic: str) -> bool:
    """`unclean.leader.election.enable` for a topic.

    It is the topic's, else that of this controller's node, of the cluster, or at this controller's start.
    """
    value = image.setting_of_topic(UNCLEAN_KEY, topic, context.node_id)
    return context.unclean_election_default if value is None else value.lower() == "true"


def _active_brokers(
    image: ClusterImage, *, leaving: int | None = None, joining: int | None = None
) -> Callable[[int], bool]:
    """Predicate for broker ids: the active brokers of the image, without a leaving one or with a joining one."""

    def is_active(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker_id == joining or (broker_id != leaving and broker is not None and broker.is_active)

    return is_active


def _partitions_in_sync_on(image: ClusterImage, broker_id: int) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_name.values():
        for partition in topic.partitions.values():
            if broker_id in partition.isr:
                yield topic, partition


def _partitions_eligible_on(image: ClusterImage, broker_id: int) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_name.values():
        for partition in topic.partitions.values():
            if broker_id in partition.eligible_leader_replicas:
                yield topic, partition


def has_its_directory(image: ClusterImage, partition: PartitionImage, broker_id: int) -> bool:
    """True if the broker can use the log directory of its replica, or if that is not known (KIP-858)."""
    broker = image.brokers.get(broker_id)
    return can_use(_directory_of(partition, broker_id), None if broker is None else broker.log_dirs)


def can_use(directory: bytes, log_dirs: Collection[bytes] | None) -> bool:
    """True if a broker with these log directories can use this one. `log_dirs`: None for an unregistered broker."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return log_dirs is not None and (directory in log_dirs or not log_dirs)


def _directory_of(partition: PartitionImage, broker_id: int) -> bytes:
    return partition.directory_on(broker_id) or UNASSIGNED_DIRECTORY


def _change(
    image: ClusterImage,
    context: PlanContext,
    topic: TopicImage,
    partition: PartitionImage,
    is_active: Callable[[int], bool],
    *,
    removed: int | None,
    unclean: int | None = None,
    registering: Registering | None = None,
) -> PartitionChangeRecord | None:
    """Record of a partition's new leader, in-sync set and eligible replicas; None if nothing changes.

    Args:
        removed: broker that leaves the in-sync set.
        unclean: broker that is no longer an eligible leader replica.
        registering: broker that the image does not have yet, or has with other directories.
    """

    def can_lead(replica: int) -> bool:
        if registering is not None and replica == registering.broker_id:
            return can_use(_directory_of(partition, replica), registering.log_dirs)
        return is_active(replica) and has_its_directory(image, partition, replica)

    target = tuple(replica for replica in partition.isr if replica != removed)
    rules = Eligibility.of(image, context, topic)
    eligible = rules.eligible(partition, partition.replicas, target, () if unclean is None else (unclean,))
    allow_unclean = is_unclean_election_allowed(image, context, topic.name)
    elected = elect_leader(partition, target, eligible, rules, can_lead, allow_unclean=allow_unclean)
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    unchanged = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    record_election(record, partition, target, eligible, elected, rules)
    start_epoch_for_shrink(image, partition, record)
    record_last_known_leader(record, partition, rules)
    return None if record == unchanged else record
