"""AlterPartition: the brokers that may change an in-sync set, and the effects of a change."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.alter_partition import AlterPartition, InSyncReplica, IsrChange, IsrChangeResult
from pykbroker.controller.metadata.brokers import FenceBroker, StartControlledShutdown
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import PartitionImage
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from tests.controller.world import World

NONE = ErrorCode.NONE


class Partition:
    """Partition t-0 on brokers 1, 2 and 3 of four, and its leader's requests."""

    def __init__(self) -> None:
        self.world = World([1, 2, 3, 4])
        self.world.do(CreateTopics([NewTopic("t", assignments=[(0, (1, 2, 3))])]))
        self.topic_id = self.world.image.topics_by_name["t"].topic_id

    @property
    def now(self) -> PartitionImage:
        return self.world.image.topics_by_name["t"].partitions[0]

    def epoch(self, broker_id: int) -> int:
        return self.world.image.brokers[broker_id].epoch

    def alter(self, *isr: int | InSyncReplica, by: int | None = None, **fields: Any) -> IsrChangeResult:
        """Requests this set as the leader and with the newest epochs, unless the arguments say otherwise."""
        now = self.now
        change = IsrChange(
            0,
            now.leader_epoch,
            now.partition_epoch,
            [InSyncReplica(one) if isinstance(one, int) else one for one in isr],
        )._replace(**fields)
        broker_id = now.leader if by is None else by
        ((topic_id, (result,)),) = self.world.do(
            AlterPartition(broker_id, self.epoch(broker_id), [(self.topic_id, [change])])
        )
        assert topic_id == self.topic_id
        return result

    def change(self, **fields: object) -> None:
        record = PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, **fields)  # type: ignore[arg-type]
        self.world.apply([record])


def test_the_leader_shrinks_and_expands_its_set() -> None:
    partition = Partition()
    result = partition.alter(1, 3)
    assert result == IsrChangeResult(0, NONE, partition.now)
    assert (partition.now.isr, partition.now.partition_epoch, partition.now.leader_epoch) == ((1, 3), 1, 0)
    assert partition.alter(3, 1, 2).after == partition.now
    assert (partition.now.isr, partition.now.partition_epoch, partition.now.leader_epoch) == ((3, 1, 2), 2, 0)


def test_asking_for_what_is_there_changes_nothing() -> None:
    partition = Partition()
    written = len(partition.world.records)
    assert partition.alter(1, 2, 3) == IsrChangeResult(0, NONE, partition.now)
    assert len(partition.world.records) == written
    assert partition.now.partition_epoch == 0


def test_epochs_say_who_is_behind() -> None:
    partition = Partition()
    partition.change(leader=2)
    before = partition.now
    assert partition.alter(1, 2, leader_epoch=2).error == ErrorCode.NOT_CONTROLLER
    assert partition.alter(1, 2, partition_epoch=2).error == ErrorCode.NOT_CONTROLLER
    assert partition.alter(1, 2, leader_epoch=0).error == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.alter(1, 2, leader_epoch=0, partition_epoch=0).error == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.alter(1, 2, partition_epoch=0).error == ErrorCode.INVALID_UPDATE_VERSION
    # A higher epoch of either kind means that the controller is behind, whatever the other says.
    assert partition.alter(1, 2, leader_epoch=0, partition_epoch=9).error == ErrorCode.NOT_CONTROLLER
    assert partition.now == before


@pytest.mark.parametrize(
    ("isr", "fields"),
    [
        ((1, 2), {"by": 2}),
        ((2, 3), {}),
        ((), {}),
        ((1, 4), {}),
        ((1, 1), {}),
        ((1, 2), {"recovery_state": 1}),
        ((1,), {"recovery_state": 1}),
        ((1,), {"recovery_state": 7}),
    ],
    ids=["no leader", "without itself", "empty", "no replica", "twice", "recovering, two", "recovering again", "odd"],
)
def test_what_cannot_be_is_an_invalid_request(isr: tuple[int, ...], fields: dict[str, int]) -> None:
    partition = Partition()
    before = partition.now
    result = partition.alter(*isr, **fields)
    assert (result.error, result.after) == (ErrorCode.INVALID_REQUEST, None)
    assert partition.now == before


def test_unknown_topics_and_partitions() -> None:
    partition = Partition()
    command = AlterPartition(
        1,
        partition.epoch(1),
        [
            (bytes(16), [IsrChange(0, 0, 0, [InSyncReplica(1)])]),
            (partition.topic_id, [IsrChange(7, 0, 0, [InSyncReplica(1)]), IsrChange(0, 0, 0, [InSyncReplica(1)])]),
        ],
    )
    (_, unknown), (_, (no_partition, good)) = partition.world.do(command)
    assert [result.error for result in unknown] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert no_partition.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert good.error == NONE
    assert partition.now.isr == (1,)


def test_another_process_under_the_leaders_id_is_refused_as_a_whole() -> None:
    partition = Partition()
    with pytest.raises(CommandRefused) as refused:
        partition.world.do(AlterPartition(1, partition.epoch(1) + 1, []))
    assert refused.value.error.code == ErrorCode.STALE_BROKER_EPOCH


def test_who_does_not_serve_cannot_be_in_sync() -> None:
    """KIP-841: fenced and stopping brokers. KIP-903: a process that came back is not the one that had caught up."""
    partition = Partition()
    partition.alter(1)
    partition.world.do(FenceBroker(2, partition.epoch(2)))
    assert partition.alter(1, 2).error == ErrorCode.INELIGIBLE_REPLICA
    partition.world.do(StartControlledShutdown(3, partition.epoch(3)))
    assert partition.alter(1, 3).error == ErrorCode.INELIGIBLE_REPLICA
    old = InSyncReplica(2, partition.epoch(2))
    partition.world.register(2, incarnation=9)
    assert partition.alter(1, old).error == ErrorCode.INELIGIBLE_REPLICA
    assert partition.alter(1, InSyncReplica(2, partition.epoch(2))).error == NONE
    assert partition.now.isr == (1, 2)


def test_a_leader_recovers_alone_and_then_takes_others_in() -> None:
    """KIP-704."""
    partition = Partition()
    partition.change(leader=1, isr=[1], leader_recovery_state=1)
    assert partition.alter(1, 2, recovery_state=1).error == ErrorCode.INVALID_REQUEST
    assert partition.alter(1, recovery_state=1) == IsrChangeResult(0, NONE, partition.now)
    result = partition.alter(1)
    assert result.after is not None
    assert result.after.leader_recovery_state == partition.now.leader_recovery_state == 0
    assert partition.alter(1, 2).error == NONE


def reassigned(*replicas: int) -> Partition:
    partition = Partition()
    ((_, (result,)),) = partition.world.do(AlterPartitionReassignments([("t", [Reassignment(0, replicas)])]))
    assert not result.error.is_failure
    return partition


def test_the_last_new_replica_in_sync_ends_a_reassignment() -> None:
    partition = reassigned(1, 2, 4)
    assert partition.now.replicas == (1, 2, 4, 3)
    result = partition.alter(1, 2, 3, 4)
    assert result == IsrChangeResult(0, NONE, partition.now)
    now = partition.now
    assert (now.replicas, now.isr, now.adding_replicas, now.removing_replicas) == ((1, 2, 4), (1, 2, 4), (), ())
    assert now.leader_epoch == 1  # a former replica may not change the set


def test_a_leader_that_is_reassigned_away_learns_it_from_the_metadata() -> None:
    partition = reassigned(2, 3, 4)
    assert partition.now.leader == 1
    result = partition.alter(1, 2, 3, 4)
    assert (result.error, result.after) == (ErrorCode.NEW_LEADER_ELECTED, None)
    assert (partition.now.leader, partition.now.isr, partition.now.replicas) == (2, (2, 3, 4), (2, 3, 4))


def test_a_reassignment_goes_on_until_all_new_replicas_are_in_sync() -> None:
    partition = Partition()
    partition.world.do(AlterPartitionReassignments([("t", [Reassignment(0, (1, 4))])]))
    assert partition.alter(1, 2, 3).error == NONE
    assert partition.now.adding_replicas == (4,)
    assert partition.alter(1, 4, 2).error == NONE
    assert (partition.now.replicas, partition.now.isr, partition.now.adding_replicas) == ((1, 4), (1, 4), ())
