"""Elections that the active controller holds periodically, without a request."""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.controller.metadata.broker_elections import is_unclean_election_allowed
from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.partition_changes import Assignment, Election, change_partition
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import PIECE, Steps

ELECTION_COUNT_MAX = 1000
"""Largest number of changes in one round, as in Kafka. After a full round the next one follows at once."""


class ElectPreferredLeaders(NamedTuple):
    """Elects the preferred leaders that are in sync and active (`auto.leader.rebalance.enable`).

    The result is True if the round reached its limit, so that partitions may be left.
    """

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[bool]]:
        return _plan(image, context, _imbalanced(image), Election.PREFERRED)


class ElectUncleanLeaders(NamedTuple):
    """Elects any active replica in leaderless partitions of topics with `unclean.leader.election.enable`.

    The result is True if the round reached its limit, so that partitions may be left.
    """

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[bool]]:
        return _plan(image, context, _leaderless(image, context), Election.UNCLEAN)


def _plan(
    image: ClusterImage,
    context: PlanContext,
    candidates: Iterator[tuple[TopicImage, PartitionImage]],
    election: Election,
) -> Steps[Plan[bool]]:
    records: list[PartitionChangeRecord] = []
    for count, (topic, partition) in enumerate(candidates, 1):
        record = change_partition(image, context, topic, partition, Assignment.of(partition), election)
        if record is not None:
            records.append(record)
            if len(records) == ELECTION_COUNT_MAX:
                return Plan(records, True)
        if not count % PIECE:
            yield
    return Plan(records, False)


def _imbalanced(image: ClusterImage) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            if partition.leader != partition.replicas[0]:
                yield topic, partition


def _leaderless(image: ClusterImage, context: PlanContext) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_id.values():
        leaderless = [partition for partition in topic.partitions.values() if partition.leader == NO_LEADER]
        if leaderless and is_unclean_election_allowed(image, context, topic.name):
            for partition in leaderless:
                yield topic, partition
