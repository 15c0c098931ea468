"""One change of one partition: new replicas, new in-sync set, new leader, as a single record (KIP-455, KIP-631).

The caller gives the state that a partition should have. The rules here decide how much of it is possible at once, and
elect the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pykbroker.controller.metadata.broker_elections import has_its_directory, start_epoch_for_shrink
from pykbroker.controller.metadata.commands import PlanContext
from pykbroker.controller.metadata.eligible_replicas import (
    Eligibility,
    elect_leader,
    record_election,
    record_last_known_leader,
)
from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_builder import NO_LEADER_CHANGE
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.controller.metadata.placement import default_directory
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord


class Election(Enum):
    """The rules by which a new leader is chosen when a partition changes."""

    ONLINE = "the present leader if it is in sync and active, else the first such replica"
    PREFERRED = "the first replica if it is in sync and active, else as online"
    UNCLEAN = "as online; without an in-sync replica any active one"


class Assignment(NamedTuple):
    """The replicas of a partition. During a reassignment `replicas` has the old and the new ones."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]

    @classmethod
    def of(cls, partition: PartitionImage) -> Assignment:
        """The replicas that the partition has now."""
        return cls(partition.replicas, partition.isr, partition.removing_replicas, partition.adding_replicas)


def is_being_reassigned(partition: PartitionImage) -> bool:
    """True if replicas of the partition are being added or removed."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def change_partition(
    image: ClusterImage,
    context: PlanContext,
    topic: TopicImage,
    partition: PartitionImage,
    target: Assignment,
    election: Election = Election.ONLINE,
    recovery_state: int | None = None,
) -> PartitionChangeRecord | None:
    """Record that changes the partition to `target`; None if there is nothing to change.

    The same record completes a reassignment whose new replicas are all in sync. `recovery_state`: the leader's recovery
    state after an unclean election (KIP-704); None to keep it.
    """
    target = _completed(target)
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    rules = Eligibility.of(image, context, topic)
    eligible = rules.eligible(partition, target.replicas, target.isr)

    def can_lead(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and broker.is_active and has_its_directory(image, partition, broker_id)

    elected = elect_leader(
        partition._replace(replicas=target.replicas),
        target.isr,
        eligible,
        rules,
        can_lead,
        allow_unclean=election is Election.UNCLEAN,
        is_preferred=election is Election.PREFERRED,
    )
    record_election(record, partition, target.isr, eligible, elected, rules)
    if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(target.replicas):
        # The same leader again starts a leader epoch, in which the removed replicas no longer take part.
        record.leader = partition.leader
    start_epoch_for_shrink(image, partition, record)
    record_last_known_leader(record, partition, rules)
    if (
        recovery_state is not None
        and recovery_state != partition.leader_recovery_state
        and not (elected.is_unclean and elected.leader != partition.leader)
    ):
        record.leader_recovery_state = recovery_state
    if image.metadata_version >= DIRECTORY_ASSIGNMENT:
        directories = _directories(image, partition, target.replicas)
        if directories != partition.directories:
            record.directories = list(directories)
    if target.replicas != partition.replicas:
        record.replicas = list(target.replicas)
    if target.removing != partition.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != partition.adding_replicas:
        record.adding_replicas = list(target.adding)
    unchanged = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    return None if record == unchanged else record


def _completed(target: Assignment) -> Assignment:
    """The assignment after the reassignment if it can be completed at once, else `target`."""
    if not (target.removing or target.adding):
        return target
    isr = _without(target.isr, target.removing)
    replicas = _without(target.replicas, target.removing)
    if not isr or not replicas or not set(target.adding) <= set(isr):
        return target
    # With fewer replicas than before, all remaining ones must be in sync: otherwise an in-sync replica would be removed
    # while one that is not in sync stays.
    if len(target.adding) < len(target.removing) and not set(replicas) <= set(isr):
        return target
    return Assignment(replicas, isr, (), ())


def _without(brokers: tuple[int, ...], removed: Sequence[int]) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker not in removed)


def _directories(image: ClusterImage, partition: PartitionImage, replicas: tuple[int, ...]) -> tuple[bytes, ...]:
    """Log directories of `replicas`: a replica that stays keeps its own, a new one gets `default_directory`."""
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    return tuple(known[broker] if broker in known else default_directory(broker, image) for broker in replicas)
