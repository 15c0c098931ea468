"""AlterPartition as a command: a leader proposes the in-sync set of its partition (KIP-497, KIP-841, KIP-903).

Until the controller has responded, the leader waits for the members of both sets, so a refused proposal does no harm.
A change that adds the last new replica of a reassignment to the set also completes the reassignment
(`partition_changes`), which may move the leadership to another broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.controller.metadata.broker_elections import is_unclean_election_allowed
from pykbroker.controller.metadata.brokers import registered_broker
from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.eligible_replicas import RECOVERING
from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_builder import NO_LEADER_CHANGE, changed_partition
from pykbroker.controller.metadata.partition_changes import Assignment, Election, change_partition
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import PIECE, Steps

NO_EPOCH = -1
"""Epoch of a replica that is identified by its broker id alone."""

RECOVERED = 0


class InSyncReplica(NamedTuple):
    """A replica and the broker epoch at which it caught up: after a restart the broker may have lost records."""

    broker_id: int
    broker_epoch: int = NO_EPOCH


class IsrChange(NamedTuple):
    """The in-sync set that a partition's leader proposes, with the epochs that the leader has."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[InSyncReplica]
    recovery_state: int = RECOVERED


class IsrChangeResult(NamedTuple):
    """The result for one partition. `after`: its state, which the leader must adopt; None with an error."""

    partition: int
    error: ErrorCode
    after: PartitionImage | None = None


Results = list[tuple[bytes, list[IsrChangeResult]]]


class AlterPartition(NamedTuple):
    """Changes the in-sync sets of partitions that a broker leads; an error of one does not affect the others.

    `topics` are (topic id, changes); the result has (topic id, IsrChangeResults) in the same order.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    broker_id: int
    broker_epoch: int
    topics: Sequence[tuple[bytes, Sequence[IsrChange]]]

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[Results]]:
        registered_broker(image, self.broker_id, self.broker_epoch)
        records: list[PartitionChangeRecord] = []
        results: Results = []
        for topic_id, changes in self.topics:
            topic = image.topics_by_id.get(topic_id)
            of_topic: list[IsrChangeResult] = []
            results.append((topic_id, of_topic))
            for count, change in enumerate(changes):
                if not count % PIECE:
                    yield
                if topic is None:
                    of_topic.append(IsrChangeResult(change.partition, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    of_topic.append(self._change(image, context, topic, change, records))
        return Plan(records, results)

    def _change(
        self,
        image: ClusterImage,
        context: PlanContext,
        topic: TopicImage,
        change: IsrChange,
        records: list[PartitionChangeRecord],
    ) -> IsrChangeResult:
        partition = topic.partitions.get(change.partition)
        if partition is None:
            return IsrChangeResult(change.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._error(image, partition, change)
        if error is not ErrorCode.NONE:
            return IsrChangeResult(change.partition, error)
        target = Assignment.of(partition)._replace(isr=tuple(replica.broker_id for replica in change.isr))
        is_unclean_allowed = is_unclean_election_allowed(image, context, topic.name)
        election = Election.UNCLEAN if is_unclean_allowed else Election.ONLINE
        record = change_partition(image, context, topic, partition, target, election, change.recovery_state)
        if record is None:
            return IsrChangeResult(change.partition, ErrorCode.NONE, partition)
        records.append(record)
        if record.leader not in (self.broker_id, NO_LEADER_CHANGE):
            # The change is made; the metadata shows the former leader that it no longer leads.
            return IsrChangeResult(change.partition, ErrorCode.NEW_LEADER_ELECTED)
        return IsrChangeResult(change.partition, ErrorCode.NONE, changed_partition(partition, record))

    def _error(self, image: ClusterImage, partition: PartitionImage, change: IsrChange) -> ErrorCode:
        # The leader has later epochs than this controller, which has been deposed.
        if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if change.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self.broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if change.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [replica.broker_id for replica in change.isr]
        is_possible = len(set(isr)) == len(isr) and partition.leader in isr and set(isr) <= set(partition.replicas)
        if not is_possible:
            return ErrorCode.INVALID_REQUEST
        if change.recovery_state == RECOVERING:
            # Only after the leader has recovered do the other replicas truncate records that the unclean election lost.
            if len(isr) > 1 or partition.leader_recovery_state != RECOVERING:
                return ErrorCode.INVALID_REQUEST
        elif change.recovery_state != RECOVERED:
            return ErrorCode.INVALID_REQUEST
        if not all(_may_be_in_sync(image, replica) for replica in change.isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE


def _may_be_in_sync(image: ClusterImage, replica: InSyncReplica) -> bool:
    broker = image.brokers.get(replica.broker_id)
    return broker is not None and broker.is_active and replica.broker_epoch in (NO_EPOCH, broker.epoch)
