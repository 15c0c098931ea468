"""Eligible leader replicas (KIP-966; P-200): replicas outside of the in-sync set that have every committed record.

The high watermark does not move while the in-sync set is smaller than `min.insync.replicas`. A replica that leaves the
set then, or leaves it that small, lacks nothing that was committed, so it may lead later without a loss. The rules need
`eligible.leader.replicas.version` 1; without it these lists of a partition are emptied by its next change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from pykbroker.controller.metadata.commands import PlanContext
from pykbroker.controller.metadata.features import MIN_ISR_KEY, are_eligible_replicas_enabled
from pykbroker.controller.metadata.image import (
    NO_LEADER,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from pykbroker.controller.metadata.image_builder import NO_LEADER_CHANGE
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord

RECOVERING = 1


class Eligibility(NamedTuple):
    """The rules for one topic. `min_isr` is its `min.insync.replicas`, at most its number of replicas."""

    is_enabled: bool
    min_isr: int

    @classmethod
    def of(cls, image: ClusterImage, context: PlanContext, topic: TopicImage) -> Eligibility:
        """The rules for a topic. `min.insync.replicas`: of the topic, else of this node, of the cluster, or static."""
        if not are_eligible_replicas_enabled(image):
            return cls(False, 1)
        value = image.setting_of_topic(MIN_ISR_KEY, topic.name, context.node_id)
        min_isr = context.min_insync_replicas_default if value is None else int(value)
        return cls(True, min(min_isr, len(topic.partitions[0].replicas)))

    def eligible(
        self,
        partition: PartitionImage,
        replicas: Collection[int],
        isr: tuple[int, ...],
        unclean: Collection[int] = (),
    ) -> tuple[int, ...]:
        """The eligible leader replicas after a change: those of the new `replicas` that are outside of the new `isr`.

        `unclean`: brokers that stopped uncleanly. They may have lost records, so they are not eligible.
        """
        if not self.is_enabled:
            return partition.eligible_leader_replicas
        if len(isr) >= self.min_isr:
            return ()
        # A replica that a reassignment removes is not eligible any more. (In Kafka it stays, and keeps the last leader
        # from being elected.)
        candidates = {*partition.eligible_leader_replicas, *partition.isr}.intersection(replicas)
        return tuple(sorted(candidates.difference(isr, unclean)))


class Elected(NamedTuple):
    """The leader, -1 for none; `is_unclean`: it may lack committed records."""

    leader: int
    is_unclean: bool


def elect_leader(
    partition: PartitionImage,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    rules: Eligibility,
    can_lead: Callable[[int], bool],
    *,
    allow_unclean: bool,
    is_preferred: bool = False,
) -> Elected:
    """The leader for this in-sync set and these eligible replicas; `partition` has the replicas to choose from.

    The present leader stays if it may, unless `is_preferred` asks for the first replica. When no replica is in sync or
    eligible, the last leader leads again, alone, as soon as it serves: its log is the best that is left.
    """

    def is_valid(replica: int) -> bool:
        return replica in (isr or eligible) and can_lead(replica)

    if is_preferred and partition.replicas and is_valid(partition.replicas[0]):
        return Elected(partition.replicas[0], False)
    if is_valid(partition.leader):
        return Elected(partition.leader, False)
    for replica in partition.replicas:
        if is_valid(replica):
            return Elected(replica, False)
    known = partition.last_known_elr
    if rules.is_enabled and not isr and not eligible and len(known) == 1 and can_lead(known[0]):
        return Elected(known[0], True)
    if allow_unclean:
        for replica in partition.replicas:
            if can_lead(replica):
                return Elected(replica, True)
    return Elected(NO_LEADER, False)


def record_election(
    record: PartitionChangeRecord,
    partition: PartitionImage,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    elected: Elected,
    rules: Eligibility,
) -> None:
    """Sets leader, in-sync set and eligible replicas of the change where they differ from the partition's.

    An empty in-sync set is written with eligible replicas only; without them the last in-sync replica stays in it.
    """
    if elected.leader != partition.leader:
        record.leader = elected.leader
        if elected.leader in eligible:
            isr, eligible = (elected.leader,), tuple(r for r in eligible if r != elected.leader)
        if elected.is_unclean:
            record.isr = [elected.leader]
            if partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
    if record.isr is not None or not rules.is_enabled:
        eligible = ()
    if eligible != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = list(eligible)
    if record.isr is None and (isr or rules.is_enabled) and isr != partition.isr:
        record.isr = list(isr)


def record_last_known_leader(record: PartitionChangeRecord, partition: PartitionImage, rules: Eligibility) -> None:
    """Sets `last_known_elr`: the leader that a partition loses; empty once there is a leader again.

    Call it when the record's leader is final.
    """
    if not rules.is_enabled or record.leader == NO_LEADER_CHANGE:
        return
    if record.leader == NO_LEADER:
        if not partition.last_known_elr and partition.leader != NO_LEADER:
            record.last_known_elr = [partition.leader]
    elif partition.last_known_elr:
        record.last_known_elr = []


def cleared_eligible_replicas(records: Iterable[Any], image: ClusterImage) -> list[ClearElrRecord]:
    """Records to write after these ones: a change of `min.insync.replicas` empties the eligible replicas."""
    if not are_eligible_replicas_enabled(image):
        return []
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else "")
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR_KEY
    ]
