"""AlterPartitionReassignments as a command: new replicas for existing partitions (KIP-455, KIP-860; P-157).

A reassignment is started by one record, which adds the new replicas to the old ones. When the new ones are in sync a
second record removes the old ones; if they are in sync from the start, as for a mere change of order, one record does
both. `partition_changes.change_partition` makes the second one with the change that completes the in-sync set.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.controller.metadata.broker_elections import is_unclean_election_allowed
from pykbroker.controller.metadata.commands import (
    NO_ERROR,
    RECORD_COUNT_MAX,
    ApiError,
    ItemRefused,
    Plan,
    PlanContext,
)
from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.partition_changes import (
    Assignment,
    Election,
    change_partition,
    is_being_reassigned,
)
from pykbroker.controller.metadata.placement import assignment_error
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import Steps


class Reassignment(NamedTuple):
    """New replicas of a partition, in order of preference; None cancels the reassignment that is under way."""

    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    """The result for one partition."""

    partition: int
    error: ApiError


class AlterPartitionReassignments(NamedTuple):
    """Starts, replaces and cancels reassignments; one that is refused does not affect the others.

    The result is a list of (topic, ReassignmentResults) in request order. With `allow_replication_factor_change` False
    each new assignment must have the partition's number of replicas, not counting those that are being removed.
    """

    topics: Sequence[tuple[str, Sequence[Reassignment]]]
    allow_replication_factor_change: bool = True

    def plan_in_steps(
        self, image: ClusterImage, context: PlanContext
    ) -> Steps[Plan[list[tuple[str, list[ReassignmentResult]]]]]:
        records: list[PartitionChangeRecord] = []
        results: list[tuple[str, list[ReassignmentResult]]] = []
        for name, reassignments in self.topics:
            of_topic: list[ReassignmentResult] = []
            results.append((name, of_topic))
            for reassignment in reassignments:
                try:
                    record = self._plan(image, context, name, reassignment)
                except ItemRefused as refused:
                    of_topic.append(ReassignmentResult(reassignment.partition, refused.error))
                else:
                    error = NO_ERROR
                    if record is not None and len(records) == RECORD_COUNT_MAX:
                        error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka has no better code for it
                    elif record is not None:
                        records.append(record)
                    of_topic.append(ReassignmentResult(reassignment.partition, error))
                yield
        return Plan(records, results)

    def _plan(
        self, image: ClusterImage, context: PlanContext, name: str, reassignment: Reassignment
    ) -> PartitionChangeRecord | None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = image.topics_by_name.get(name)
        if topic is None:
            raise ItemRefused(code, f"Unable to find a topic named {name}.")
        partition = topic.partitions.get(reassignment.partition)
        if partition is None:
            raise ItemRefused(code, f"Unable to find partition {name}:{reassignment.partition}.")
        if reassignment.replicas is None:
            return _cancelled(image, context, topic, partition)
        return self._changed(image, context, topic, partition, tuple(reassignment.replicas))

    def _changed(
        self,
        image: ClusterImage,
        context: PlanContext,
        topic: TopicImage,
        partition: PartitionImage,
        wanted: tuple[int, ...],
    ) -> PartitionChangeRecord | None:
        error = assignment_error(wanted, None, image)
        if error.is_failure:
            raise ItemRefused(error.code, error.message)
        if not self.allow_replication_factor_change:
            replication_factor = len(set(partition.replicas) - set(partition.removing_replicas))
            if replication_factor != len(wanted):
                raise ItemRefused(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {replication_factor} to {len(wanted)}",
                )
        # If a reassignment is under way, the new one is compared with the replicas before it. These include replicas
        # that are being removed, and exclude those that are being added. (Kafka compares with the union of both, and
        # never completes a reassignment that is replaced by its reverse.)
        before = set(partition.replicas) - set(partition.adding_replicas)
        removing = tuple(sorted(set(partition.replicas) - set(wanted)))
        adding = tuple(sorted(set(wanted) - before))
        target = Assignment((*wanted, *removing), partition.isr, removing, adding)
        return change_partition(image, context, topic, partition, target)


def _cancelled(
    image: ClusterImage, context: PlanContext, topic: TopicImage, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """Record that cancels a reassignment: replicas that were being added are removed, the others stay."""
    if not is_being_reassigned(partition):
        raise ItemRefused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    is_unclean_allowed = is_unclean_election_allowed(image, context, topic.name)
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.adding_replicas)
    isr = tuple(broker for broker in partition.isr if broker not in partition.adding_replicas)
    if not isr:
        if not replicas:
            raise ItemRefused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not is_unclean_allowed:
            raise ItemRefused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition.partition} because it would "
                "require an unclean leader election.",
            )
        isr = replicas[:1]
    election = Election.UNCLEAN if is_unclean_allowed else Election.ONLINE
    return change_partition(image, context, topic, partition, Assignment(replicas, isr, (), ()), election)
